package fsm

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

func entryLog(t rapid.TB, index uint64, ns int64, c ...*logv1.Command) *raft.Log {
	t.Helper()
	data, err := (&logv1.Entry{TimeNs: ns, Commands: c}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	return &raft.Log{Index: index, Data: data}
}

func bootstrapped(t *testing.T, o Options) *Machine {
	t.Helper()
	m := New(o)
	m.Apply(entryLog(t, 1, 100, &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c"}}}))
	return m
}

// memorySink is a snapshot sink in memory.
type memorySink struct{ bytes.Buffer }

func (*memorySink) ID() string    { return "test" }
func (*memorySink) Cancel() error { return nil }
func (*memorySink) Close() error  { return nil }

// Servers that are asked one after the other while the log moves on can answer
// for the same entry.
func TestHashOfAnEntryThatIsNotTheNewest(t *testing.T) {
	const entries = hashesKept + 50
	m := bootstrapped(t, Options{})
	want := map[uint64]uint64{}
	for i := uint64(2); i < 2*entries; i += 2 { // Raft's own entries lie between
		m.Apply(entryLog(t, i, int64(i)*1e3))
		_, want[i] = m.Hash()
	}
	newest, _ := m.Hash()
	for _, from := range []uint64{newest, newest - 1, newest - 2, newest - 2*hashesKept + 2} {
		index, hash, err := m.HashSince(t.Context(), from)
		if err != nil || index != from+from%2 || hash != want[index] {
			t.Errorf("from %d: entry %d has hash %x (%v), want %x", from, index, hash, err, want[from+from%2])
		}
	}
	if index, _, err := m.HashSince(t.Context(), newest-2*hashesKept); err != nil || index != newest {
		t.Errorf("the hash of a forgotten entry is one of entry %d (%v), want the newest %d", index, err, newest)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if index, _, err := m.HashSince(ctx, newest+1); err == nil {
		t.Errorf("the hash of an entry to come is one of entry %d", index)
	}
}

func TestSnapshotAndReplayGiveTheSameHash(t *testing.T) {
	var entries []*raft.Log
	a := bootstrapped(t, Options{})
	for i := uint64(2); i < 40; i++ {
		l := entryLog(t, i, int64(i)*1e9, submission(3), parseCommand(t, "register node=n1 numa=2 inc=1")[0])
		entries = append(entries, l)
		a.Apply(l)
	}
	snap, err := a.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var sink memorySink
	if err := snap.Persist(&sink); err != nil {
		t.Fatal(err)
	}
	restored := New(Options{})
	if err := restored.Restore(io.NopCloser(&sink.Buffer)); err != nil {
		t.Fatal(err)
	}
	replayed := bootstrapped(t, Options{})
	for _, l := range entries {
		replayed.Apply(l)
	}
	index, want := a.Hash()
	for name, m := range map[string]*Machine{"restored": restored, "replayed": replayed} {
		if i, h := m.Hash(); i != index || h != want {
			t.Errorf("%s: hash %016x at %d, want %016x at %d", name, h, i, want, index)
		}
	}
}

func TestUndecodableEntryStopsTheReplica(t *testing.T) {
	var fatal error
	m := bootstrapped(t, Options{OnFatal: func(err error) { fatal = err }})
	_, before := m.Hash()
	if _, ok := m.Apply(&raft.Log{Index: 2, Data: []byte{0xff}}).(error); !ok || fatal == nil {
		t.Fatalf("fatal is %v", fatal)
	}
	if _, ok := m.Apply(entryLog(t, 3, 0, submission(1))).(error); !ok {
		t.Fatal("a stopped replica applied an entry")
	}
	if _, after := m.Hash(); after != before {
		t.Fatal("a stopped replica changed")
	}
}

func TestWaitApplied(t *testing.T) {
	m := bootstrapped(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.WaitApplied(ctx, 5) }()
	for i := uint64(2); i <= 5; i++ {
		m.Apply(entryLog(t, i, 0))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := m.WaitApplied(gone, 6); err == nil {
		t.Fatal("waited for an entry that never came, and succeeded")
	}
}

// TestMinorityStops: of three servers, the one whose state differs stops, even if
// it is the one that quotes first, as a leader does; the others go on.
func TestMinorityStops(t *testing.T) {
	fatal := map[string]error{}
	machines := map[string]*Machine{}
	names := []string{"s1", "s2", "s3"}
	for _, name := range names {
		machines[name] = bootstrapped(t, Options{
			Voters: func() int { return 3 }, OnFatal: func(err error) { fatal[name] = err },
		})
	}
	// s1 has a bit that nobody else has.
	machines["s1"].state.PutPool(&state.Pool{ID: 9, Name: "flipped"})
	hashes := map[string]uint64{}
	for _, name := range names {
		m := machines[name]
		m.opts.OnEffects = func(effects []Effect) {
			for _, e := range effects {
				if e.Kind == EffectCheckpoint {
					hashes[name] = e.Hash
				}
			}
		}
		for i := uint64(2); i <= checkpointEvery; i++ {
			m.Apply(entryLog(t, i, 0))
		}
	}
	for n, from := range names {
		for _, to := range names {
			machines[to].Apply(entryLog(t, checkpointEvery+uint64(n)+1, 0, &logv1.Command{Verb: &logv1.Command_QuoteHash{
				QuoteHash: &logv1.QuoteHash{ServerId: from, Index: checkpointEvery, Hash: hashes[from]},
			}}))
		}
	}
	if fatal["s1"] == nil || !strings.Contains(fatal["s1"].Error(), "diverged") {
		t.Errorf("s1: %v", fatal["s1"])
	}
	if fatal["s2"] != nil || fatal["s3"] != nil {
		t.Errorf("the majority stopped: %v, %v", fatal["s2"], fatal["s3"])
	}
}

func TestUnknownLevelStopsTheReplica(t *testing.T) {
	var fatal error
	m := bootstrapped(t, Options{OnFatal: func(err error) { fatal = err }})
	m.Apply(entryLog(t, 2, 0, &logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: 99, Release: "9.9"}}}))
	if fatal == nil || !strings.Contains(fatal.Error(), "upgrade this server to 9.9") {
		t.Fatalf("got %v", fatal)
	}
}

// A machine that applies in place comes to the same state, and a decision that panics stops it.
func TestApplyingInPlaceIsTheSame(t *testing.T) {
	copies, inPlace := New(Options{}), New(Options{InPlace: true})
	entries := [][]*logv1.Command{
		{{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c", Level: uint32(copies.LevelMax())}}}},
		{{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Name: "n", JournalId: "j", NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0, 1}}}}}}},
		{{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{Actions: []*logv1.Action{{CoresMin: 1, CoresMax: 2, AttemptsMax: 1}}}}}},
	}
	for i, commands := range entries {
		data, err := (&logv1.Entry{TimeNs: int64(i+1) * 1_000_000_000, Commands: commands}).MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*Machine{copies, inPlace} {
			results, err := m.ApplyData(uint64(i+1), 1, data)
			if err != nil || results[0].Refusal != nil {
				t.Fatalf("entry %d: %v, %v", i+1, results, err)
			}
		}
	}
	var a, b uint64
	copies.View(func(s *state.State) { a = s.Hash() })
	inPlace.View(func(s *state.State) { b = s.Hash() })
	if a != b {
		t.Errorf("the states have the hashes %x and %x", a, b)
	}
	inPlace.PlantPanics(func(Decision) { panic("planted") })
	data, err := (&logv1.Entry{TimeNs: 9_000_000_000, Commands: entries[2]}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inPlace.ApplyData(4, 1, data); err == nil {
		t.Error("it goes on after a panic, with a state that was changed in part")
	}
}
