package replica

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"rota/internal/need"
	"rota/jepsen/disk"
)

const (
	// storeEnv makes this test binary a process that writes to the storage in the
	// folder named there until it is killed.
	storeEnv = "ROTA_TEST_STORE"
	// kindEnv is the kind of store that it uses.
	kindEnv = "ROTA_TEST_STORE_KIND"
	// idleEnv makes it only open the storage, or append to it once.
	idleEnv = "ROTA_TEST_STORE_IDLE"
)

// smallSegment is short enough that a test fills some.
const smallSegment = 128 << 10

func TestMain(m *testing.M) {
	if dir := os.Getenv(storeEnv); dir != "" {
		if err := keepWriting(dir, json.NewEncoder(os.Stdout)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// holding is what a storage holds: as it was found, about to be, or acknowledged.
type holding struct {
	Acked bool
	// Log: the term of each entry from First on.
	First uint64
	Terms []uint64
	Vote  [2]uint64 // current term, term of the vote
	Cand  string
	// Snapshot is the last index of the newest one.
	Snapshot uint64
	Suspect  string
}

func (s holding) last() uint64 { return s.First + uint64(len(s.Terms)) - 1 }

// partOf says whether the log is a part of another, without a hole.
func (s holding) partOf(o holding) bool {
	return s.First >= o.First && s.last() <= o.last() && s.First <= s.last()+1 &&
		slices.Equal(s.Terms, o.Terms[s.First-o.First:s.last()+1-o.First])
}

// data is the only content that an entry can have.
func data(index, term uint64) []byte {
	return fmt.Appendf(nil, "%d in %d %*s", index, term, index*37%1500, "")
}

// writer does at random what raft does to its storage. It says before each step
// what will be there, and after it that it is.
type writer struct {
	*storage
	now  holding
	say  *json.Encoder
	rand *rand.Rand
}

func keepWriting(dir string, say *json.Encoder) error {
	g := newGuard(time.Minute, func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}, hclog.NewNullLogger())
	cfg := storageConfig(dir, StoreKind(os.Getenv(kindEnv)))
	cfg.segmentBytes = smallSegment
	s, err := openStorage(cfg, g)
	if err != nil {
		return err
	}
	if err := leaveEmpty(s); err != nil {
		return err
	}
	w := &writer{storage: s, say: say, rand: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))}
	if err := w.read(); err != nil {
		return err
	}
	w.now.Acked = true
	if err := say.Encode(w.now); err != nil {
		return err
	}
	if idle := os.Getenv(idleEnv); idle != "" {
		return w.stayIdle(idle == "append")
	}
	for {
		if err := w.step(); err != nil {
			return err
		}
	}
}

// stayIdle waits to be killed, after one append or none.
func (w *writer) stayIdle(appends bool) error {
	if appends {
		next := w.now
		if err := errors.Join(w.append(&next)(), w.say.Encode(next)); err != nil {
			return err
		}
	}
	time.Sleep(time.Hour)
	return nil
}

// read reads everything that is in the storage.
func (w *writer) read() error {
	w.now = holding{First: 1, Suspect: w.suspect}
	snap, err := w.snaps.newest()
	if err != nil {
		return err
	}
	if w.now.Snapshot = snap.index; snap.index > 0 {
		if err := w.readSnapshot(); err != nil {
			return err
		}
	}
	first, err := w.logs.FirstIndex()
	if err != nil {
		return err
	}
	if w.now.First = max(first, 1); first == 0 {
		w.now.First = snap.index + 1
	}
	for i := w.now.First; i <= w.logs.last.Load(); i++ {
		var entry raft.Log
		if err := w.logs.GetLog(i, &entry); err != nil {
			return err
		}
		if string(entry.Data) != string(data(i, entry.Term)) {
			return fmt.Errorf("entry %d is %q", i, entry.Data)
		}
		w.now.Terms = append(w.now.Terms, entry.Term)
	}
	w.now.Vote[0], _ = w.stable.GetUint64([]byte(keyCurrentTerm))
	w.now.Vote[1], _ = w.stable.GetUint64([]byte(keyVoteTerm))
	cand, _ := w.stable.Get([]byte(keyVoteCand))
	w.now.Cand = string(cand)
	return nil
}

func (w *writer) readSnapshot() error {
	list, err := w.snaps.List()
	if err != nil {
		return err
	}
	_, r, err := w.snaps.Open(list[0].ID)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}

func (w *writer) step() error {
	next := w.now
	var do func() error
	switch n := w.rand.IntN(20); {
	case n == 0 && len(next.Terms) > 1:
		do = w.cut(&next)
	case n == 1:
		do = w.vote(&next)
	case n == 2 && next.last() > next.Snapshot:
		do = w.snapshot(&next)
	case n == 3 && next.Snapshot > next.First+5 && next.Snapshot < next.last():
		do = w.compact(&next)
	default:
		do = w.append(&next)
	}
	next.Acked = false
	if err := w.say.Encode(next); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	next.Acked = true
	w.now = next
	return w.say.Encode(next)
}

func (w *writer) append(next *holding) func() error {
	term := max(1, next.Vote[0])
	var logs []*raft.Log
	for i := range uint64(1 + w.rand.IntN(90)) {
		index := next.last() + 1 + i
		logs = append(logs, &raft.Log{Index: index, Term: term, Data: data(index, term)})
	}
	next.Terms = slices.Concat(next.Terms, slices.Repeat([]uint64{term}, len(logs)))
	return func() error { return w.logs.StoreLogs(logs) }
}

// cut removes a tail that conflicts with a leader's log, none of it in a snapshot.
func (w *writer) cut(next *holding) func() error {
	from, last := max(next.First+1, next.Snapshot+1), next.last()
	if from > last {
		return w.append(next)
	}
	from += uint64(w.rand.IntN(int(last - from + 1)))
	next.Terms = next.Terms[:from-next.First]
	return func() error { return w.logs.DeleteRange(from, last) }
}

func (w *writer) vote(next *holding) func() error {
	term := next.Vote[0] + 1
	next.Vote, next.Cand = [2]uint64{term, term}, fmt.Sprint("candidate ", term)
	return func() error {
		return errors.Join(
			w.stable.SetUint64([]byte(keyCurrentTerm), term),
			w.stable.SetUint64([]byte(keyVoteTerm), term),
			w.stable.Set([]byte(keyVoteCand), []byte(next.Cand)))
	}
}

func (w *writer) snapshot(next *holding) func() error {
	index := next.last()
	term := next.Terms[len(next.Terms)-1]
	next.Snapshot = index
	return func() error {
		_, trans := raft.NewInmemTransport("")
		sink, err := w.snaps.Create(1, index, term, raft.Configuration{}, 1, trans)
		if err != nil {
			return err
		}
		_, err = sink.Write(make([]byte, 20_000))
		return errors.Join(err, sink.Close())
	}
}

func (w *writer) compact(next *holding) func() error {
	first, last := next.First, next.Snapshot-1
	next.Terms, next.First = next.Terms[last+1-first:], last+1
	return func() error { return w.logs.DeleteRange(first, last) }
}

// powered is a storage on a disk that loses power.
type powered struct {
	*disk.FS
	mountpoint string
	data       string // name of the data directory
	kind       StoreKind
	// acked and tried are the last that the writer said.
	acked, tried holding
	steps        int
	// hit counts power losses that took something from the files of the log.
	hit map[StoreKind]int
}

func newPowered(t *testing.T, kind StoreKind) *powered {
	t.Helper()
	need.FUSE(t)
	dir := t.TempDir()
	below, mountpoint := filepath.Join(dir, "below"), filepath.Join(dir, "disk")
	if err := errors.Join(os.Mkdir(below, 0o700), os.Mkdir(mountpoint, 0o700)); err != nil {
		t.Fatal(err)
	}
	fs, err := disk.Mount(below, mountpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &powered{FS: fs, mountpoint: mountpoint, kind: kind, hit: map[StoreKind]int{}}
	p.fresh("data")
	return p
}

// fresh begins with a data directory that does not exist yet.
func (p *powered) fresh(data string) {
	p.data, p.acked = data, holding{Acked: true, First: 1}
	p.tried = p.acked
}

// writer starts a process that opens the storage and writes to it.
func (p *powered) writer(t *testing.T, stderr *os.File) (cmd *exec.Cmd, lines *json.Decoder) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), storeEnv+"="+filepath.Join(p.mountpoint, p.data), kindEnv+"="+string(p.kind))
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, json.NewDecoder(bufio.NewReader(out))
}

// run has the storage opened and written to, and kills the writer after so many
// steps and a moment more.
func (p *powered) run(t *testing.T, steps int, moment time.Duration) (found *holding) {
	t.Helper()
	cmd, lines := p.writer(t, os.Stderr)
	kill := func() { time.AfterFunc(moment, func() { _ = cmd.Process.Kill() }) }
	if steps == 0 {
		kill()
	}
	said := 0
	for ; ; said++ {
		var s holding
		if lines.Decode(&s) != nil {
			break
		}
		if said == 0 {
			found = &s
		}
		if p.tried = s; s.Acked {
			p.acked = s
			p.steps++
		}
		if said == 2*steps && steps > 0 {
			kill()
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	return found
}

// check compares what was found after a power loss with what was acknowledged.
func (p *powered) check(t *testing.T, found, acked, tried holding) {
	t.Helper()
	if found.Suspect != "" {
		t.Errorf("a power loss looks like damage: %s", found.Suspect)
	}
	either := func(what string, got, was, would any) {
		if got != was && got != would {
			t.Errorf("%s is %v; acknowledged was %v, under way was %v", what, got, was, would)
		}
	}
	log := func(s holding) string { return fmt.Sprint("from ", s.First, " ", s.Terms) }
	if !found.partOf(acked) || !tried.partOf(found) { // else a long deletion was cut short
		either("the log", log(found), log(acked), log(tried))
	}
	either("the snapshot", found.Snapshot, acked.Snapshot, tried.Snapshot)
	if half := [2]uint64{tried.Vote[0], acked.Vote[1]}; found.Vote != half || found.Cand != acked.Cand {
		either("the vote", fmt.Sprint(found.Vote, found.Cand), fmt.Sprint(acked.Vote, acked.Cand), fmt.Sprint(tried.Vote, tried.Cand))
	}
}

// note notes which files had lost something.
func (p *powered) note(lost disk.Loss) {
	for _, file := range lost.Files {
		switch {
		case strings.Contains(file, "/"+walName+"/") && filepath.Ext(file) == ".wal":
			p.hit[WAL]++
		case filepath.Base(file) == boltName:
			p.hit[BoltDB]++
		}
	}
}

// Whatever was acknowledged is there after the power was lost, and nothing that
// was under way is there in part; and a power loss is not taken for damage.
func TestAcknowledgedWritesSurvivePowerLoss(t *testing.T) {
	for name, kinds := range map[string][]StoreKind{
		"wal": {WAL}, "boltdb": {BoltDB}, "converted at each start": {WAL, BoltDB},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testAcknowledgedWritesSurvivePowerLoss(t, kinds)
		})
	}
}

func testAcknowledgedWritesSurvivePowerLoss(t *testing.T, kinds []StoreKind) {
	p := newPowered(t, "")
	const rounds = 20
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	missed := func(kind StoreKind) bool { return p.hit[kind] == 0 }
	for round := 0; round < rounds || slices.ContainsFunc(kinds, missed) && round < 6*rounds; round++ {
		steps := r.IntN(40)
		if round%8 == 0 {
			steps = 0 // in the middle of opening
		}
		acked, tried := p.acked, p.tried
		p.kind = kinds[round%len(kinds)]
		found := p.run(t, steps, time.Duration(r.IntN(20_000))*time.Microsecond)
		if found != nil {
			p.check(t, *found, acked, tried)
		}
		lost, err := p.PowerLoss(r.Uint64(), round%3 != 0)
		if err != nil {
			t.Fatal(err)
		}
		p.note(lost)
		if t.Failed() {
			t.Fatalf("round %d of seed %d; the last power loss: %v", round, seed, lost)
		}
	}
	if p.steps < 10*rounds {
		t.Errorf("only %d steps in %d rounds: nothing was tested", p.steps, rounds)
	}
	for _, kind := range kinds {
		if missed(kind) {
			t.Errorf("no power loss took anything from the log in %s", kind)
		}
	}
	t.Logf("%d steps, the log ends at %d, counters %+v", p.steps, p.acked.last(), p.Counters())
}

// A server that lost power while it was started for the first time, before any
// of its fsyncs, starts the next time.
func TestPowerLossWhileTheStorageIsCreated(t *testing.T) {
	eachStore(t, testPowerLossWhileTheStorageIsCreated)
}

func testPowerLossWhileTheStorageIsCreated(t *testing.T, kind StoreKind) {
	t.Parallel()
	p := newPowered(t, kind)
	const seeds = 3
	fsyncs := 0
	for done := false; !done; fsyncs++ {
		for seed := range uint64(seeds) {
			p.fresh(fmt.Sprint("data-", fsyncs, "-", seed))
			if done = p.cutOpening(t, fsyncs, seed); done {
				break
			}
			acked, tried := p.acked, p.tried
			if p.check(t, *p.run(t, 1, 0), acked, tried); t.Failed() {
				t.Fatalf("the power was lost before fsync %d, seed %d", fsyncs+1, seed)
			}
		}
	}
	if fsyncs < 8 {
		t.Errorf("the storage was created after %d fsyncs: was it there before?", fsyncs)
	}
}

// cutOpening cuts the power when so many fsyncs have been made. It returns true
// if the storage was open before.
func (p *powered) cutOpening(t *testing.T, fsyncs int, seed uint64) (opened bool) {
	t.Helper()
	release := p.HangAfter(fsyncs, disk.Fsync)
	defer release()
	cmd, lines := p.writer(t, os.Stderr)
	for deadline := time.Now().Add(20 * time.Second); p.Counters().Hanging == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no fsync %d in 20 s", fsyncs+1)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.PowerLoss(seed, seed > 0); err != nil {
		t.Fatal(err)
	}
	release()
	var first holding
	opened = lines.Decode(&first) == nil
	_ = cmd.Wait()
	return opened
}

// diesOnDelete is a store whose process dies in its second deletion.
type diesOnDelete struct {
	LogStore
	deletions int
}

func (d *diesOnDelete) DeleteRange(first, last uint64) error {
	if d.deletions++; d.deletions > 1 {
		return errDisk
	}
	return d.LogStore.DeleteRange(first, last)
}

// A long tail goes in several transactions, and a crash between them leaves no
// hole in the log: raft could not start over one.
func TestATruncationCutShortLeavesNoHole(t *testing.T) {
	dir := t.TempDir()
	s, g, _ := openTest(t, dir, BoltDB)
	const kept, last = 10, 4 * deleteChunk
	var logs []*raft.Log
	for i := uint64(1); i <= last; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1})
	}
	if err := s.logs.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	s.logs.raw = &diesOnDelete{LogStore: s.entries}
	if err := s.logs.DeleteRange(kept+1, last); !errors.Is(err, errDisk) {
		t.Fatalf("got %v, want it cut short", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	g.close()
	s, g, _ = openTest(t, dir, BoltDB)
	defer g.close()
	defer s.close()
	end := s.logs.last.Load()
	if end < kept || end >= last || s.suspect != "" {
		t.Errorf("the log ends at %d, suspect %q", end, s.suspect)
	}
	for i := uint64(1); i <= end; i++ {
		var entry raft.Log
		if err := s.logs.GetLog(i, &entry); err != nil {
			t.Fatalf("the log ends at %d, but entry %d: %v", end, i, err)
		}
	}
}

// What a server finds when it starts is durable, also if the process before it was
// killed before its flush: raft counts it as stored.
func TestWhatAStartFindsIsDurable(t *testing.T) { eachStore(t, testWhatAStartFindsIsDurable) }

func testWhatAStartFindsIsDurable(t *testing.T, kind StoreKind) {
	p := newPowered(t, kind)
	open := func(mode string) (s holding) {
		t.Setenv(idleEnv, mode)
		cmd, lines := p.writer(t, os.Stderr)
		err := lines.Decode(&s)
		if err == nil && mode == "append" {
			err = lines.Decode(&s)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	open("open")
	p.Lie(1 << 30) // as if it was killed before each flush
	open("append")
	if p.Counters().LiedFsyncs == 0 {
		t.Fatal("every flush was honest")
	}
	p.Heal()
	before := open("open")
	if _, err := p.PowerLoss(1, false); err != nil {
		t.Fatal(err)
	}
	if after := open("open"); before.last() == 0 || after.last() != before.last() || after.Suspect != "" {
		t.Errorf("the log ended at %d, and ends at %d after a power loss, suspect %q", before.last(), after.last(), after.Suspect)
	}
}
