package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"rota/jepsen/disk"
)

// flipBit flips one bit of a file.
func flipBit(t *testing.T, path string, offset int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[offset] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newest is the last of the files of a log.
func newest(files []string) string { return files[len(files)-1] }

// tailOf is where the content of a segment ends.
func tailOf(t *testing.T, path string) segmentTail {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return readTail(data)
}

// flipNewestAppend flips a bit of the newest entry.
func flipNewestAppend(t *testing.T, nd *node) {
	t.Helper()
	path := newest(segments(t, nd.dir))
	flipBit(t, path, tailOf(t, path).end-2*frameHeader)
}

func removeNewestSegment(t *testing.T, nd *node) { remove(t, newest(segments(t, nd.dir))) }

func removeWAL(t *testing.T, nd *node) { remove(t, filepath.Join(nd.dir, walName)) }

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// entriesOf are entries of one term.
func entriesOf(first, last, term uint64) (logs []*raft.Log) {
	for i := first; i <= last; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: term, Data: data(i, term)})
	}
	return logs
}

// opened is what came of opening a storage and reading its whole log.
type opened struct {
	err     error // of opening, or of the first entry that could not be read
	suspect string
	entries int
}

// noticed says whether damage was noticed.
func (o opened) noticed() bool { return o.err != nil || o.suspect != "" }

// reopen opens a storage with small segments and reads it.
func reopen(dir string) (o opened) {
	g := newGuard(time.Minute, func(error) {}, hclog.NewNullLogger())
	defer g.close()
	cfg := storageConfig(dir, WAL)
	cfg.segmentBytes = smallestSegment
	s, err := openStorage(cfg, g)
	if err != nil {
		return opened{err: err}
	}
	defer s.close()
	o.suspect = s.suspect
	first, err := s.logs.FirstIndex()
	for i := max(first, 1); i <= s.logs.last.Load() && err == nil; i++ {
		var l raft.Log
		if err = s.logs.GetLog(i, &l); err == nil && string(l.Data) != string(data(i, l.Term)) {
			err = fmt.Errorf("entry %d is served as %q", i, l.Data)
		}
		o.entries++
	}
	o.err = err
	return o
}

const (
	// smallestSegment is one of a few entries.
	smallestSegment = 8 << 10
	// written is how many entries writtenWAL has.
	written = 60
)

// writtenWAL is a log of many segments, of which the newest has more than one append.
func writtenWAL(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	g := newGuard(time.Minute, func(err error) { t.Error(err) }, hclog.NewNullLogger())
	defer g.close()
	cfg := storageConfig(dir, WAL)
	cfg.segmentBytes = smallestSegment
	s, err := openStorage(cfg, g)
	if err != nil {
		t.Fatal(err)
	}
	if err := leaveEmpty(s); err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= written; i += 2 {
		if err := s.logs.StoreLogs(entriesOf(i, i+1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	files := segments(t, dir)
	if tail := tailOf(t, newest(files)); len(files) < 4 || tail.entries < 4 {
		t.Fatalf("%d segments, the newest has %d entries", len(files), tail.entries)
	}
	return dir
}

// Whatever is damaged in the files, or missing, the server stops or is in quarantine.
func TestDamageOfTheWAL(t *testing.T) {
	list := func(dir string) string { return filepath.Join(dir, walName, segmentListName) }
	for name, test := range map[string]struct {
		damage func(t *testing.T, dir string, files []string)
		// stops: ErrCorrupt, and not quarantine.
		stops bool
	}{
		"entry of an old file":              {func(t *testing.T, _ string, files []string) { flipBit(t, files[1], 200) }, true},
		"header of an old file":             {func(t *testing.T, _ string, files []string) { flipBit(t, files[1], 9) }, true},
		"index of an old file":              {func(t *testing.T, _ string, files []string) { flipBit(t, files[1], tailOf(t, files[1]).indexStart+5) }, true},
		"end of an old file":                {func(t *testing.T, _ string, files []string) { truncate(t, files[1], 3000) }, true},
		"an old file":                       {func(t *testing.T, _ string, files []string) { remove(t, files[1]) }, true},
		"entry of the newest file":          {func(t *testing.T, _ string, files []string) { flipBit(t, newest(files), segmentHeader+frameHeader+3) }, true},
		"header of an append in the newest": {func(t *testing.T, _ string, files []string) { flipBit(t, newest(files), segmentHeader+7) }, false},
		"newest append": {func(t *testing.T, _ string, files []string) {
			flipBit(t, newest(files), tailOf(t, newest(files)).end-2*frameHeader)
		}, false},
		"end of the newest file": {func(t *testing.T, _ string, files []string) {
			truncate(t, newest(files), int64(tailOf(t, newest(files)).end-100))
		}, false},
		"the newest file":      {func(t *testing.T, _ string, files []string) { remove(t, newest(files)) }, false},
		"bit of the list":      {func(t *testing.T, dir string, _ []string) { flipBit(t, list(dir), 40) }, true},
		"checksum of the list": {func(t *testing.T, dir string, _ []string) { flipBit(t, list(dir), 9) }, true},
		"end of the list":      {func(t *testing.T, dir string, _ []string) { truncate(t, list(dir), 60) }, true},
		"the list":             {func(t *testing.T, dir string, _ []string) { remove(t, list(dir)) }, true},
		"the folder":           {func(t *testing.T, dir string, _ []string) { remove(t, filepath.Join(dir, walName)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writtenWAL(t)
			test.damage(t, dir, segments(t, dir))
			o := reopen(dir)
			if test.stops && !errors.Is(o.err, ErrCorrupt) || !test.stops && o.suspect == "" || !test.stops && o.err != nil {
				t.Errorf("%+v, want it to stop: %v", o, test.stops)
			}
		})
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// No bit of the files can flip and something be served that was not written, or be
// missing without notice.
func TestNoFlippedBitOfTheWALIsMissed(t *testing.T) {
	t.Parallel()
	const step = 97 // bytes between those that are tried
	dir := writtenWAL(t)
	if o := reopen(dir); o.noticed() || o.entries != written {
		t.Fatalf("whole files: %+v", o)
	}
	files := append(segments(t, dir), filepath.Join(dir, walName, segmentListName))
	noticed, harmless := 0, 0
	for _, path := range files {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < usedBytes(whole); at += step {
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(dir, path)
			flipBit(t, filepath.Join(copied, name), at)
			switch o := reopen(copied); {
			case o.noticed() && !errors.Is(o.err, ErrCorrupt) && o.err != nil:
				t.Errorf("byte %d of %s: %+v", at, name, o)
			case o.noticed():
				noticed++
			case o.entries != written:
				t.Errorf("byte %d of %s: %d entries, and nobody notices", at, name, o.entries)
			default:
				harmless++ // padding, the checksum of an append, or what is reserved
			}
		}
	}
	if noticed < 5*harmless {
		t.Errorf("%d flipped bits were noticed, %d do no harm", noticed, harmless)
	}
	t.Logf("%d flipped bits were noticed, %d do no harm", noticed, harmless)
}

// rewrite brings the file of a segment to a state that a crash can leave.
func rewrite(t *testing.T, path string, edit func(data []byte)) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edit(content)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A crash between the end of a file and the begin of the next one: the list does not
// say that the file is full, which raft-wal takes for a reason to refuse every append.
func TestACrashBetweenTwoFiles(t *testing.T) {
	dir := t.TempDir()
	s, g, _ := openTest(t, dir, WAL)
	if err := s.logs.StoreLogs(entriesOf(1, 20, 1)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, walName, segmentListName))
	if err != nil {
		t.Fatal(err)
	}
	// Cutting a tail ends the file, with an index.
	if err := errors.Join(s.entries.DeleteRange(20, 20), s.close()); err != nil {
		t.Fatal(err)
	}
	g.close()
	files := segments(t, dir)
	if len(files) != 2 || tailOf(t, files[0]).indexStart == 0 {
		t.Fatalf("%q: the first has no index", files)
	}
	remove(t, files[1])
	if err := os.WriteFile(filepath.Join(dir, walName, segmentListName), before, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := uint64(20); end < 23; end++ {
		s, g, _ := openTest(t, dir, WAL)
		if last := s.logs.last.Load(); last != end || s.suspect != "" {
			t.Errorf("the log ends at %d, suspect %q; want %d", last, s.suspect, end)
		}
		if err := errors.Join(s.logs.StoreLog(&raft.Log{Index: end + 1, Term: 1, Data: data(end+1, 1)}), s.close()); err != nil {
			t.Error(err)
		}
		g.close()
	}
	if o := reopen(dir); o.noticed() || o.entries != 23 {
		t.Errorf("%+v", o)
	}
}

// What a torn append has left is cleared: raft-wal would take parts of it for entries,
// or for the end of the file, once it is behind a later append.
func TestATornAppendIsCleared(t *testing.T) {
	for name, tear := range map[string]func(content []byte, from, to int){
		"its beginning is missing": func(content []byte, from, to int) { clear(content[from : from+(to-from)/2]) },
		"its end is missing":       func(content []byte, from, to int) { clear(content[from+(to-from)/2 : to]) },
		"its middle is missing":    func(content []byte, from, to int) { clear(content[from+64 : to-64]) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, g, _ := openTest(t, dir, WAL)
			path := segments(t, dir)[0]
			if err := s.logs.StoreLogs(entriesOf(1, 10, 1)); err != nil {
				t.Fatal(err)
			}
			from := tailOf(t, path).end
			if err := s.entries.StoreLogs(sealed(entriesOf(11, 30, 1))); err != nil { // the mark has not seen it
				t.Fatal(err)
			}
			to := tailOf(t, path).end
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			g.close()
			rewrite(t, path, func(content []byte) { tear(content, from, to) })
			s, g, _ = openTest(t, dir, WAL)
			if last := s.logs.last.Load(); last != 10 || s.suspect != "" {
				t.Errorf("the log ends at %d, suspect %q", last, s.suspect)
			}
			if end := usedBytes(read(t, path)); end > from {
				t.Errorf("the file has %d bytes more than its entries", end-from)
			}
			if err := errors.Join(s.logs.StoreLogs(entriesOf(11, 11, 2)), s.close()); err != nil {
				t.Error(err)
			}
			g.close()
			if o := reopen(dir); o.noticed() || o.entries != 11 {
				t.Errorf("%+v", o)
			}
		})
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// sealed are entries as logStore hands them down.
func sealed(logs []*raft.Log) (all []*raft.Log) {
	for _, l := range logs {
		s := seal(l)
		all = append(all, &s)
	}
	return all
}

// A gap, as behind a snapshot of the leader, replaces the log; what was compacted away
// is not served.
func TestAGapReplacesTheWAL(t *testing.T) {
	dir := t.TempDir()
	s, g, _ := openTest(t, dir, WAL)
	defer g.close()
	defer s.close()
	if err := s.logs.StoreLogs(entriesOf(1, 10, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.logs.DeleteRange(1, 4); err != nil {
		t.Fatal(err)
	}
	if err := s.entries.GetLog(4, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry 4: %v, want ErrLogNotFound", err)
	}
	if err := s.logs.StoreLogs(entriesOf(50, 52, 2)); err != nil {
		t.Fatal(err)
	}
	first, err1 := s.logs.FirstIndex()
	last, err2 := s.logs.LastIndex()
	if err := errors.Join(err1, err2); err != nil || first != 50 || last != 52 {
		t.Errorf("the log is from %d to %d, %v", first, last, err)
	}
	if err := s.entries.GetLog(10, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry 10: %v, want ErrLogNotFound", err)
	}
}

// A full disk, and a flush that fails, end the process; nothing is lost that was
// acknowledged before.
func TestAFailingDiskEndsTheWriter(t *testing.T) {
	for name, fail := range map[string]struct {
		how func(p *powered)
		hit func(p *powered) int
	}{
		"full":         {func(p *powered) { p.Full(0) }, func(p *powered) int { return p.Counters().RefusedWrites }},
		"failed flush": {func(p *powered) { p.Fail(disk.Fsync, 1) }, func(p *powered) int { return p.Counters().FailedFsyncs }},
		"failed write": {func(p *powered) { p.Fail(disk.Write, 1) }, func(p *powered) int { return p.Counters().FailedWrites }},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, kind StoreKind) {
				// Another file may be hit first, such as the mark.
				for tries := 1; !endsInTheLog(t, kind, fail.how, fail.hit); tries++ {
					if tries == 30 {
						t.Fatalf("no fault hit the log in %d tries", tries)
					}
				}
			})
		})
	}
}

// endsInTheLog breaks the disk under a writer, and reports whether it ended because of
// a file of the log.
func endsInTheLog(t *testing.T, kind StoreKind, fail func(*powered), hit func(*powered) int) bool {
	t.Helper()
	p := newPowered(t, kind)
	said := p.runUntilItEnds(t, func() { fail(p) })
	if hit(p) == 0 {
		t.Fatalf("nothing failed: %+v", p.Counters())
	}
	p.Heal()
	if _, err := p.PowerLoss(1, true); err != nil {
		t.Fatal(err)
	}
	acked, tried := p.acked, p.tried
	p.check(t, *p.run(t, 5, 0), acked, tried)
	return strings.Contains(said, "append to log") || strings.Contains(said, "log segment")
}

// runUntilItEnds breaks the disk under a writer, which has to end by itself. It returns
// the writer's last words. The disk breaks again and again, because a failure may do no
// harm: if the second part of a large write fails, the kernel reports a short write, and Go
// writes the rest again, with success.
func (p *powered) runUntilItEnds(t *testing.T, fail func()) string {
	t.Helper()
	words, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer words.Close()
	cmd, lines := p.writer(t, words)
	for said := 0; ; said++ {
		if said%100 == 20 {
			fail()
		}
		var s holding
		if lines.Decode(&s) != nil {
			break
		}
		if p.tried = s; s.Acked {
			p.acked = s
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("the writer ended with %v", err)
	}
	return string(read(t, words.Name()))
}

// other is the kind of store that the given one is not.
func other(kind StoreKind) StoreKind {
	if kind == WAL {
		return BoltDB
	}
	return WAL
}
