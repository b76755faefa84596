package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// flipNewestMeta flips one bit in the newer of bbolt's two meta pages.
func flipNewestMeta(t *testing.T, nd *node) {
	t.Helper()
	const txid, root = 48, 16
	path := filepath.Join(nd.dir, "raft.db")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := int(binary.NativeEndian.Uint32(data[metaOffset+metaPageSize:]))
	newest := 0
	if binary.NativeEndian.Uint64(data[page+metaOffset+txid:]) > binary.NativeEndian.Uint64(data[metaOffset+txid:]) {
		newest = 1
	}
	data[newest*page+metaOffset+root] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// dropLastEntry removes the newest entry and leaves a flawless store.
func dropLastEntry(t *testing.T, nd *node, kind StoreKind) {
	t.Helper()
	s, g, _ := openTest(t, nd.dir, kind)
	defer g.close()
	last := s.logs.last.Load()
	if err := errors.Join(s.entries.DeleteRange(last, last), s.close()); err != nil {
		t.Fatal(err)
	}
}

// eachStore runs a test with each kind of log store.
func eachStore(t *testing.T, test func(t *testing.T, kind StoreKind)) {
	for _, kind := range []StoreKind{WAL, BoltDB} {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

// storageConfig is all that a storage needs.
func storageConfig(dir string, kind StoreKind) *Config {
	cfg := &Config{Dir: dir, LogStore: kind}
	cfg.setDefaults()
	return cfg
}

// openTest opens only the storage of a replica.
func openTest(t *testing.T, dir string, kind StoreKind) (*storage, *guard, chan error) {
	t.Helper()
	exit := make(chan error, 16)
	g := newGuard(time.Minute, func(err error) { exit <- err }, hclog.NewNullLogger())
	s, err := openStorage(storageConfig(dir, kind), g)
	if err != nil {
		t.Fatal(err)
	}
	if err := leaveEmpty(s); err != nil {
		t.Fatal(err)
	}
	return s, g, exit
}

// leaveEmpty makes an empty storage that of a new cluster, which is what a replica does
// when it has asked the others.
func leaveEmpty(s *storage) error {
	if !s.blank {
		return nil
	}
	s.suspect = ""
	return s.mark.release(0, 0)
}

// The two writes of raft's vote are one record: a crash between them leaves the
// vote before (hashicorp/raft issue 661).
func TestVoteIsOneRecord(t *testing.T) { eachStore(t, testVoteIsOneRecord) }

func testVoteIsOneRecord(t *testing.T, kind StoreKind) {
	dir := t.TempDir()
	s, g, _ := openTest(t, dir, kind)
	if _, err := s.stable.GetUint64([]byte(keyVoteTerm)); err == nil || err.Error() != "not found" {
		t.Errorf("missing vote term: %v, want the text that raft compares", err)
	}
	if _, err := s.stable.Get([]byte(keyVoteCand)); err == nil || err.Error() != "not found" {
		t.Errorf("missing candidate: %v, want the text that raft compares", err)
	}
	set := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	set(s.stable.SetUint64([]byte(keyCurrentTerm), 3))
	set(s.stable.SetUint64([]byte(keyVoteTerm), 3))
	set(s.stable.Set([]byte(keyVoteCand), []byte("a")))
	set(s.stable.SetUint64([]byte(keyCurrentTerm), 4))
	set(s.stable.SetUint64([]byte(keyVoteTerm), 4)) // and no candidate: the crash

	check := func(when string, st *stableStore) {
		t.Helper()
		term, _ := st.GetUint64([]byte(keyCurrentTerm))
		voteTerm, _ := st.GetUint64([]byte(keyVoteTerm))
		cand, _ := st.Get([]byte(keyVoteCand))
		if term != 4 || voteTerm != 3 || string(cand) != "a" {
			t.Errorf("%s: term %d, vote for %q in term %d; want 4, a, 3", when, term, cand, voteTerm)
		}
	}
	check("between the writes", s.stable)
	set(s.close())
	g.close()
	s, g, _ = openTest(t, dir, kind)
	defer g.close()
	check("after the crash", s.stable)
	set(s.close())

	// bbolt loses the vote, the mark has it.
	set(os.Remove(filepath.Join(dir, "raft.db")))
	s, g2, _ := openTest(t, dir, kind)
	defer g2.close()
	check("after the store lost it", s.stable)
	set(s.close())
}

func TestMarkSurvivesTornWrite(t *testing.T) {
	dir := t.TempDir()
	g := newGuard(time.Minute, func(error) {}, hclog.NewNullLogger())
	defer g.close()
	for i := uint64(1); i <= 4; i++ {
		m, err := openMark(dir, g)
		if err != nil {
			t.Fatal(err)
		}
		m.raise(i*10, i)
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "mark")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newest := 0
	if a, _ := decodeMark(whole[:markSlot]); a.index != 40 {
		newest = markSlot
	}
	for name, tc := range map[string]struct {
		damage func(b []byte)
		want   uint64
		err    error
	}{
		"whole":        {func([]byte) {}, 40, nil},
		"newest torn":  {func(b []byte) { clear(b[newest+8 : newest+24]) }, 30, nil},
		"oldest torn":  {func(b []byte) { clear(b[markSlot-newest+8 : markSlot-newest+24]) }, 40, nil},
		"both damaged": {func(b []byte) { b[20] ^= 1; b[markSlot+20] ^= 1 }, 0, errMarkDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(whole)
			tc.damage(b)
			f := filepath.Join(t.TempDir(), "mark")
			if err := os.WriteFile(f, b, 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := openMark(filepath.Dir(f), g)
			if !errors.Is(err, tc.err) {
				t.Fatalf("got %v, want %v", err, tc.err)
			}
			if err != nil {
				return
			}
			defer m.close()
			if got := m.snapshot().index; got != tc.want {
				t.Errorf("mark at %d, want %d", got, tc.want)
			}
		})
	}
}

// Cutting off a conflicting tail lowers the mark, or the server would be
// quarantined for entries that nobody had acknowledged.
func TestTruncationLowersTheMark(t *testing.T) { eachStore(t, testTruncationLowersTheMark) }

func testTruncationLowersTheMark(t *testing.T, kind StoreKind) {
	dir := t.TempDir()
	s, g, _ := openTest(t, dir, kind)
	var logs []*raft.Log
	for i := uint64(1); i <= 10; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: []byte("x")})
	}
	if err := s.logs.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	if err := s.logs.DeleteRange(1, 3); err != nil { // compaction
		t.Fatal(err)
	}
	if got := s.mark.snapshot().index; got != 10 {
		t.Errorf("mark after compaction %d, want 10", got)
	}
	if err := s.logs.DeleteRange(6, 10); err != nil { // conflict
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	g.close()
	s, g, _ = openTest(t, dir, kind)
	defer g.close()
	defer s.close()
	if s.marked.index != 5 || s.suspect != "" {
		t.Errorf("mark %d, suspect %q; want 5 and none", s.marked.index, s.suspect)
	}
	for i := uint64(4); i <= 5; i++ {
		if err := s.logs.GetLog(i, &raft.Log{}); err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	if err := s.logs.GetLog(6, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry 6, which was cut off: %v", err)
	}
	if err := s.logs.StoreLog(&raft.Log{Index: 6, Term: 2}); err != nil {
		t.Error(err)
	}
}

// A conflict directly behind the gap that a snapshot of the leader has left is cut off like any other.
// A log in files begins anew at such a gap, so only the database has one.
func TestAConflictBehindAGapIsCutOff(t *testing.T) {
	for name, snapshot := range map[string]bool{"the snapshot is there": true, "the snapshot is lost": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, g, _ := openTest(t, dir, BoltDB)
			must := func(errs ...error) {
				t.Helper()
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
			}
			store := func(from, to, term uint64) {
				t.Helper()
				for i := from; i <= to; i++ {
					must(s.logs.StoreLog(&raft.Log{Index: i, Term: term}))
				}
			}
			reopen := func() {
				t.Helper()
				must(s.close())
				g.close()
				s, g, _ = openTest(t, dir, BoltDB)
			}
			store(1, 5, 1)
			if snapshot {
				_, trans := raft.NewInmemTransport("") // only to encode addresses
				sink, err := s.snaps.Create(1, 10, 2, raft.Configuration{}, 1, trans)
				must(err, sink.Close())
			}
			store(11, 20, 3)
			must(s.logs.DeleteRange(11, 20))
			if m := s.mark.snapshot(); m.index != 10 || m.term != 3 {
				t.Errorf("the mark is at %d in term %d, want 10 and 3", m.index, m.term)
			}
			store(11, 12, 4)
			must(s.logs.DeleteRange(11, 12)) // the same, of a log that has been cut before
			reopen()
			defer func() { must(s.close()); g.close() }()
			if suspect := s.suspect != ""; suspect == snapshot || s.marked.index != 10 {
				t.Errorf("marked %d, suspect %q", s.marked.index, s.suspect)
			}
			store(11, 11, 5)
			reopen()
			var entry raft.Log
			must(s.logs.GetLog(11, &entry))
			if entry.Term != 5 {
				t.Errorf("entry 11 is of term %d, want 5", entry.Term)
			}
			for _, gone := range []uint64{6, 10, 12, 20} {
				if err := s.logs.GetLog(gone, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
					t.Errorf("entry %d: %v", gone, err)
				}
			}
		})
	}
}

// A log that contradicts the newest snapshot is dropped: raft would keep its
// tail and then refuse every append.
func TestLogThatContradictsSnapshotIsDropped(t *testing.T) {
	eachStore(t, testLogThatContradictsSnapshotIsDropped)
}

func testLogThatContradictsSnapshotIsDropped(t *testing.T, kind StoreKind) {
	dir := t.TempDir()
	s, g, _ := openTest(t, dir, kind)
	for i := uint64(1); i <= 10; i++ {
		if err := s.logs.StoreLog(&raft.Log{Index: i, Term: 1}); err != nil {
			t.Fatal(err)
		}
	}
	_, trans := raft.NewInmemTransport("") // only to encode addresses
	sink, err := s.snaps.Create(1, 7, 2, raft.Configuration{}, 1, trans)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sink.Close(), s.close()); err != nil {
		t.Fatal(err)
	}
	g.close()
	s, g, _ = openTest(t, dir, kind)
	defer g.close()
	defer s.close()
	if last, err := s.logs.LastIndex(); last != 0 || err != nil {
		t.Errorf("log ends at %d, %v; want an empty one", last, err)
	}
}

// replaceInLog replaces some text in the files of the log, in which it must be.
func replaceInLog(t *testing.T, dir string, kind StoreKind, old, text string) {
	t.Helper()
	files := []string{filepath.Join(dir, boltName)}
	if kind == WAL {
		files = segments(t, dir)
	}
	found := 0
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found += bytes.Count(data, []byte(old))
		if err := os.WriteFile(path, bytes.ReplaceAll(data, []byte(old), []byte(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Fatalf("%q is not in %q", old, files)
	}
}

// segments are the files of a log in the folder "wal", oldest first.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, walName, "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("segments in %s: %q, %v", dir, files, err)
	}
	return files
}

// A flipped bit in an entry is found when the entry is read, and never served.
func TestFlippedBitInEntry(t *testing.T) { eachStore(t, testFlippedBitInEntry) }

func testFlippedBitInEntry(t *testing.T, kind StoreKind) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.LogStore = kind })
	nd := c.leader()
	const needle = "needle-in-the-log"
	c.propose(nd, needle)
	c.propose(nd, "after it") // the newest append could be a torn one
	c.kill(nd)
	replaceInLog(t, nd.dir, kind, needle, strings.Replace(needle, "n", "o", 1))
	nd.stream, nd.machine, nd.exit = listen(t, nd.address), &machine{}, make(chan error, 16)
	r, err := Open(c.config(nd, nil))
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("open: %v, want ErrCorrupt", err)
	}
	if r != nil {
		nd.replica = r
	}
	if err := <-nd.exit; !errors.Is(err, ErrCorrupt) {
		t.Errorf("exit: %v, want ErrCorrupt", err)
	}
	if got := nd.machine.view().Names; len(got) != 0 {
		t.Errorf("corrupt entries were applied: %q", got)
	}
}

// faultyLogs fails or delays appends when told to.
type faultyLogs struct {
	LogStore
	fail atomic.Bool
	hang atomic.Pointer[chan struct{}]
}

var errDisk = errors.New("input/output error")

func (f *faultyLogs) StoreLogs(logs []*raft.Log) error {
	if ch := f.hang.Load(); ch != nil {
		<-*ch
	}
	if f.fail.Load() {
		return errDisk
	}
	return f.LogStore.StoreLogs(logs)
}

func faultyCluster(t *testing.T, kind StoreKind, edit func(*Config)) (*cluster, map[string]*faultyLogs) {
	disks := make(map[string]*faultyLogs)
	c := newCluster(t, 3, func(cfg *Config) {
		id := cfg.ServerID
		cfg.LogStore = kind
		cfg.WrapLogs = func(s LogStore) LogStore {
			disks[id] = &faultyLogs{LogStore: s}
			return disks[id]
		}
		if edit != nil {
			edit(cfg)
		}
	})
	return c, disks
}

// The first failed write ends the process; the disk that works again afterwards
// does not make it succeed.
func TestWriteErrorIsFinal(t *testing.T) { eachStore(t, testWriteErrorIsFinal) }

func testWriteErrorIsFinal(t *testing.T, kind StoreKind) {
	c, disks := faultyCluster(t, kind, nil)
	lead := c.leader()
	c.propose(lead, "before")
	disks[lead.id].fail.Store(true)
	if _, err := lead.replica.ProposeLocal(c.ctx(), create("x")); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v, want ErrUnknownOutcome", err)
	}
	if err := <-lead.exit; !errors.Is(err, ErrWriteFailed) || !errors.Is(err, errDisk) {
		t.Errorf("exit: %v", err)
	}
	disks[lead.id].fail.Store(false)
	for i := range 3 {
		if _, err := lead.replica.ProposeLocal(c.ctx(), create(fmt.Sprint(i))); err == nil {
			t.Error("a proposal succeeded after a failed write")
		}
	}
	if len(lead.exit) > 0 {
		t.Error("Exit was called twice")
	}
	c.kill(lead)
	c.propose(c.leader(), "the others go on")
}

// A disk that does not answer ends the leader; raft alone would wait for ever
// (hashicorp/raft issue 503).
func TestDiskHangIsFatal(t *testing.T) { eachStore(t, testDiskHangIsFatal) }

func testDiskHangIsFatal(t *testing.T, kind StoreKind) {
	c, disks := faultyCluster(t, kind, func(cfg *Config) { cfg.DiskHangLimit = 2 * time.Second })
	lead := c.leader()
	c.propose(lead, "before")
	release := make(chan struct{})
	disks[lead.id].hang.Store(&release)
	answer := make(chan error, 1)
	go func() {
		_, err := lead.replica.ProposeLocal(c.ctx(), create("x"))
		answer <- err
	}()
	if err := <-lead.exit; !errors.Is(err, ErrDiskHang) {
		t.Errorf("exit: %v, want ErrDiskHang", err)
	}
	close(release)
	if err := <-answer; err == nil {
		t.Error("the proposal succeeded after the watchdog gave up")
	}
}
