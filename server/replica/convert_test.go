package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// convertible is a storage that is opened with one store after the other.
type convertible struct {
	dir string
	// first and last index of the log.
	first, last uint64
}

const convertedTerm = 7

// newConvertible writes a log to a store. It is longer than one batch of a conversion,
// and does not begin with the first entry.
func newConvertible(t *testing.T, kind StoreKind) *convertible {
	t.Helper()
	c := &convertible{dir: t.TempDir(), first: 4, last: 2*convertEntries + 100}
	s, g, _ := openTest(t, c.dir, kind)
	defer g.close()
	if err := errors.Join(
		s.logs.StoreLogs(entriesOf(1, c.last, convertedTerm)), s.logs.DeleteRange(1, c.first-1),
		s.stable.SetUint64([]byte(keyCurrentTerm), convertedTerm), s.close()); err != nil {
		t.Fatal(err)
	}
	return c
}

var errCrash = errors.New("crash")

// open opens the storage. It ends after so many steps of a conversion, if it has as many.
func (c *convertible) open(kind StoreKind, steps int) (s *storage, stop func(), err error) {
	g := newGuard(time.Minute, func(error) {}, hclog.NewNullLogger())
	cfg := storageConfig(c.dir, kind)
	cfg.segmentBytes = smallSegment
	cfg.converting = func(string) error {
		if steps--; steps < 0 {
			return errCrash
		}
		return nil
	}
	if s, err = openStorage(cfg, g); err != nil {
		return nil, g.close, err
	}
	return s, func() { _ = s.close(); g.close() }, nil
}

// check opens the storage, which must hold everything, and ends it.
func (c *convertible) check(t *testing.T, kind StoreKind) {
	t.Helper()
	s, stop, err := c.open(kind, 1<<30)
	defer stop()
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.logs.FirstIndex()
	if last := s.logs.last.Load(); err != nil || first != c.first || last != c.last || s.suspect != "" {
		t.Fatalf("%s holds %d to %d, %v, suspect %q; want %d to %d", kind, first, last, err, s.suspect, c.first, c.last)
	}
	for i := c.first; i <= c.last; i++ {
		var l raft.Log
		if err := s.logs.GetLog(i, &l); err != nil || l.Term != convertedTerm || string(l.Data) != string(data(i, l.Term)) {
			t.Fatalf("%s: entry %d of term %d is %q, %v", kind, i, l.Term, l.Data, err)
		}
	}
	if s.stable.term() != convertedTerm {
		t.Errorf("term %d", s.stable.term())
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, walName+".*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}

// where says which of the places hold entries.
func (c *convertible) where(t *testing.T) (inWAL, inBolt bool) {
	t.Helper()
	_, err := os.Stat(filepath.Join(c.dir, walName))
	inWAL = err == nil
	db, err := openReadOnly(filepath.Join(c.dir, boltName))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	last, err := db.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	return inWAL, last > 0
}

// The log moves to the store that is asked for, there and back, and once.
func TestTheLogIsConverted(t *testing.T) {
	c := newConvertible(t, BoltDB)
	for _, kind := range []StoreKind{WAL, WAL, BoltDB, BoltDB, WAL} {
		c.check(t, kind)
		if inWAL, inBolt := c.where(t); inWAL != (kind == WAL) || inBolt != (kind == BoltDB) {
			t.Errorf("with %s, entries are in the folder: %v, in the database: %v", kind, inWAL, inBolt)
		}
	}
}

// A crash after any step of a conversion loses nothing, whichever store is asked for
// next, also if that conversion is cut short as well.
func TestACrashWhileTheLogIsConverted(t *testing.T) {
	for _, from := range []StoreKind{BoltDB, WAL} {
		to := other(from)
		for _, next := range []StoreKind{to, from} {
			t.Run(fmt.Sprintf("from %s, then %s", from, next), func(t *testing.T) {
				t.Parallel()
				steps := 0
				for converted := false; !converted; steps++ {
					c := newConvertible(t, from)
					_, stop, err := c.open(to, steps)
					stop()
					if converted = err == nil; !converted && !errors.Is(err, errCrash) {
						t.Fatal(err)
					}
					if _, stop, err = c.open(next, steps/2); err != nil && !errors.Is(err, errCrash) {
						t.Fatal(err)
					}
					stop()
					c.check(t, next)
					if inWAL, inBolt := c.where(t); inWAL == inBolt {
						t.Errorf("after %d steps both hold entries, or none does", steps)
					}
				}
				if steps < 6 {
					t.Errorf("a conversion has only %d steps", steps)
				}
			})
		}
	}
}

// The power is lost before each flush of a conversion.
func TestPowerLossWhileTheLogIsConverted(t *testing.T) {
	t.Parallel()
	p := newPowered(t, BoltDB)
	p.run(t, 20, 0)
	fsyncs := 0
	for done := false; !done; fsyncs++ {
		p.kind = other(p.kind)
		acked, tried := p.acked, p.tried
		if done = p.cutOpening(t, fsyncs, uint64(fsyncs)); done {
			break // before the cut, so that it has gone on to write
		}
		if p.check(t, *p.run(t, 1, 0), acked, tried); t.Failed() {
			t.Fatalf("the power was lost before fsync %d", fsyncs+1)
		}
	}
	if fsyncs < 8 {
		t.Errorf("a conversion makes only %d fsyncs", fsyncs)
	}
}

// A version that knows only the database has gone on with it: which log is right is
// not to be guessed.
func TestTwoLogs(t *testing.T) {
	c := newConvertible(t, WAL)
	db, err := openBolt(filepath.Join(c.dir, boltName))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.StoreLogs(sealed(entriesOf(c.last-1, c.last+1, convertedTerm+1))), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []StoreKind{WAL, BoltDB} {
		_, stop, err := c.open(kind, 1<<30)
		if stop(); !errors.Is(err, errTwoLogs) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := ReadLog(c.dir); !errors.Is(err, errTwoLogs) {
		t.Errorf("read: %v", err)
	}
}

// A damaged entry is not converted, and a hole only below a snapshot.
func TestADamagedLogIsNotConverted(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"flipped bit": func(t *testing.T, dir string) { replaceInLog(t, dir, BoltDB, "50 in 7", "50 in 6") },
		"hole": func(t *testing.T, dir string) {
			db, err := openBolt(filepath.Join(dir, boltName))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.DeleteRange(50, 51), db.Close()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConvertible(t, BoltDB)
			damage(t, c.dir)
			_, stop, err := c.open(WAL, 1<<30)
			if stop(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
			if inWAL, inBolt := c.where(t); inWAL || !inBolt {
				t.Errorf("entries are in the folder: %v, in the database: %v", inWAL, inBolt)
			}
		})
	}
}
