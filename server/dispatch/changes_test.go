package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

func (c *cluster) stop(id state.ActionID) {
	c.change(func(st *state.State) {
		a := *st.Attempt(1, id)
		a.Stop = true
		st.PutAttempt(&a)
	})
}

func (c *cluster) end(id state.ActionID) {
	c.change(func(st *state.State) {
		st.DeleteAttempt(id)
		st.DeleteAction(id)
	})
}

// changing returns a stream of an agent that takes changes.
func (c *cluster) changing() *stream {
	return &stream{machine: c, req: &rotav1.WatchNodeRequest{Name: nodeName, Incarnation: 5, Changes: true}, dirty: make(chan struct{}, 1)}
}

func mustNext(t testing.TB, s *stream) *rotav1.WatchNodeResponse {
	t.Helper()
	m, err := s.next()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOnlyChangesAreSentAfterTheFirstMessage(t *testing.T) {
	c := newCluster(t)
	c.start(1, 1)
	c.start(2, 1)
	s := c.changing()
	first := mustNext(t, s)
	if first.Since != 0 || len(first.Assignments) != 2 {
		t.Fatalf("first: %v", first)
	}
	if m := mustNext(t, s); m.Since != first.Index || len(m.Assignments)+len(m.Gone) != 0 {
		t.Errorf("nothing has changed: %v", m)
	}
	c.start(3, 1)
	if m := mustNext(t, s); m.Since != first.Index || len(m.Assignments) != 1 || m.Assignments[0].ActionId != 3 || m.Assignments[0].Command == nil {
		t.Errorf("3 was started: %v", m)
	}
	c.stop(1)
	c.end(2)
	m := mustNext(t, s)
	if len(m.Assignments) != 1 || m.Assignments[0].ActionId != 1 || !m.Assignments[0].Stop || m.Assignments[0].Command != nil || m.Assignments[0].RunTimeout.AsDuration() != time.Minute {
		t.Errorf("1 is to stop: %v", m)
	}
	if len(m.Gone) != 1 || m.Gone[0].ActionId != 2 || m.Gone[0].Attempt != 1 {
		t.Errorf("2 has ended: %v", m)
	}
	c.start(1, 2) // the same action again
	m = mustNext(t, s)
	if len(m.Assignments) != 1 || m.Assignments[0].Attempt != 2 || m.Assignments[0].Command == nil || len(m.Gone) != 1 || m.Gone[0].Attempt != 1 {
		t.Errorf("1 runs again: %v", m)
	}
	s.whole = true
	if m := mustNext(t, s); m.Since != 0 || len(m.Assignments) != 2 || m.Assignments[0].Command != nil {
		t.Errorf("the whole state: %v", m)
	}
	if m := mustNext(t, s); m.Since == 0 || len(m.Assignments) != 0 {
		t.Errorf("after the whole state: %v", m)
	}
}

// TestChangesAddUp: an agent that follows changes knows at each message what one that
// is told everything knows.
func TestChangesAddUp(t *testing.T) {
	c := newCluster(t)
	s := c.changing()
	draw := rand.New(rand.NewPCG(1, 2))
	known := map[string]bool{}
	attempts := map[state.ActionID]uint32{}
	for range 2000 {
		for range draw.IntN(3) {
			id := state.ActionID(1 + draw.IntN(8))
			live := false
			c.View(func(st *state.State) { live = st.Attempt(1, id) != nil })
			switch {
			case !live:
				attempts[id]++
				c.start(id, attempts[id])
			case draw.IntN(2) == 0:
				c.stop(id)
			default:
				c.end(id)
			}
		}
		s.whole = draw.IntN(50) == 0
		m := mustNext(t, s)
		if m.Since == 0 {
			clear(known)
		}
		for _, g := range m.Gone {
			delete(known, fmt.Sprint(g.ActionId, g.Attempt, false))
			delete(known, fmt.Sprint(g.ActionId, g.Attempt, true))
		}
		for _, as := range m.Assignments {
			delete(known, fmt.Sprint(as.ActionId, as.Attempt, false))
			known[fmt.Sprint(as.ActionId, as.Attempt, as.Stop)] = true
		}
		n := 0
		c.View(func(st *state.State) {
			st.Attempts(1, func(a *state.Attempt) bool {
				if n++; !known[fmt.Sprint(uint64(a.Action), a.Number, a.Stop)] {
					t.Fatalf("attempt %d of action %d, stop %v, is not known", a.Number, a.Action, a.Stop)
				}
				return true
			})
		})
		if n != len(known) {
			t.Fatalf("%d attempts are known, there are %d", len(known), n)
		}
	}
}

// TestTheWholeStateComesNowAndThen also if nothing changes.
func TestTheWholeStateComesNowAndThen(t *testing.T) {
	c := newCluster(t)
	c.start(1, 1)
	c.hub.keepAlive = time.Millisecond
	a := c.watch(t, &rotav1.WatchNodeRequest{Name: nodeName, Incarnation: 5, Changes: true})
	whole := 0
	for range 3*wholeEvery + 1 {
		if m := a.next(); m.Since == 0 {
			whole++
			if len(m.Assignments) != 1 {
				t.Fatalf("a message without the assignment kills it: %v", m)
			}
		}
	}
	if whole < 3 || whole > 5 {
		t.Errorf("%d of %d messages were whole", whole, 3*wholeEvery+1)
	}
}

// BenchmarkNext is one change on a node with 1,000 attempts.
func BenchmarkNext(b *testing.B) {
	for _, changes := range []bool{false, true} {
		b.Run(fmt.Sprintf("changes=%v", changes), func(b *testing.B) {
			c := newCluster(b)
			for id := range state.ActionID(1000) {
				c.start(id+1, 1)
			}
			s := c.changing()
			s.req.Changes = changes
			mustNext(b, s)
			bytes := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				c.stop(state.ActionID(1 + i%1000))
				b.StartTimer()
				buf, err := mustNext(b, s).MarshalVT()
				if err != nil {
					b.Fatal(err)
				}
				bytes = len(buf)
			}
			b.ReportMetric(float64(bytes), "bytes/message")
		})
	}
}

// TestEnginesAreAlwaysWhole: each message has every engine that should be ready on the node, also
// one that says only what changed, and an attempt keeps the engine that it was told first.
func TestEnginesAreAlwaysWhole(t *testing.T) {
	c := newCluster(t)
	engine := func(generation uint64, dir string) {
		spec, _ := (&rotav1.EngineSpec{Model: "judge", Command: &rotav1.Command{Dir: dir}}).MarshalVT()
		c.change(func(st *state.State) { st.PutEngine(&state.Engine{Model: "judge", Generation: generation, Spec: spec}) })
	}
	resident := func(models ...state.Resident) {
		c.change(func(st *state.State) { st.PutResidency(&state.Residency{Node: 1, Models: models}) })
	}
	onGPU := func(id state.ActionID) {
		c.start(id, 1)
		c.change(func(st *state.State) {
			a := *st.Action(id)
			a.Needs = &state.Needs{GPUs: &state.GPUDemand{Model: "judge"}}
			st.PutAction(&a)
		})
	}
	one := state.Resident{Model: "judge", Chunk: state.Chunk{First: 1, Units: 1}, Bytes: 40, UsedAt: 1}
	pair := state.Resident{Model: "judge", Chunk: state.Chunk{First: 2, Units: 2}, Bytes: 20}
	other := state.Resident{Model: "other", Chunk: state.Chunk{First: 0, Units: 1}, Bytes: 20, UsedAt: 2}
	s := c.changing()
	if m := mustNext(t, s); len(m.Engines) != 0 {
		t.Errorf("nothing is resident: %v", m.Engines)
	}
	resident(pair, one, other)
	onGPU(1)
	if m := mustNext(t, s); len(m.Engines) != 0 || m.Assignments[0].Engine != "" {
		t.Errorf("no model has an engine: %v", m)
	}
	engine(4, "/a")
	onGPU(2)
	for range 2 { // nothing has changed the second time
		m := mustNext(t, s)
		if len(m.Engines) != 2 || m.Engines[0].Chunk.First != 1 || m.Engines[0].MemoryBytes != 40 || m.Engines[1].Chunk.Gpus != 2 ||
			m.Engines[0].Generation != 4 || m.Engines[1].Spec.Command.Dir != "/a" {
			t.Fatalf("told of the engines %v", m.Engines)
		}
		if len(m.Assignments) > 0 && m.Assignments[0].Engine != "judge" {
			t.Errorf("the attempt needs the engine %q", m.Assignments[0].Engine)
		}
	}
	engine(5, "/b")
	s.whole = true
	m := mustNext(t, s)
	if len(m.Engines) != 2 || m.Engines[0].Generation != 5 || m.Engines[0].Spec.Command.Dir != "/b" {
		t.Errorf("declared anew: %v", m.Engines)
	}
	if len(m.Assignments) != 2 || m.Assignments[0].Engine != "" || m.Assignments[1].Engine != "judge" {
		t.Errorf("the attempts need other engines than before: %v", m.Assignments)
	}
	c.change(func(st *state.State) { st.DeleteEngine("judge") })
	if m := mustNext(t, s); len(m.Engines) != 0 || !slices.Equal(m.RemovedModels, []string{"judge"}) {
		t.Errorf("the engine was removed, and an attempt needs it: %v", m)
	}
}

func TestSharedCPUsAreToldAgainWhenTheyChange(t *testing.T) {
	c := newCluster(t)
	c.start(1, 1)
	c.start(2, 1)
	shared := func(cpus state.CoreSet) {
		c.change(func(st *state.State) {
			n := *st.Node(1)
			n.SetShared(cpus, 1)
			st.PutNode(&n)
		})
	}
	c.change(func(st *state.State) {
		a := *st.Attempt(1, 1)
		a.Shares, a.Cores = true, state.CoreSet{}
		st.PutAttempt(&a)
	})
	shared(state.CoreRange(3, 2))
	s := c.changing()
	first := mustNext(t, s)
	if a := first.Assignments; len(a) != 2 || !a[0].SharesCpus || !slices.Equal(a[0].Cpus, []uint32{3, 4}) || a[1].SharesCpus {
		t.Fatalf("first: %v", first)
	}
	if m := mustNext(t, s); len(m.Assignments) != 0 {
		t.Errorf("nothing has changed: %v", m)
	}
	shared(state.CoreRange(3, 1))
	if m := mustNext(t, s); len(m.Assignments) != 1 || m.Assignments[0].ActionId != 1 || !slices.Equal(m.Assignments[0].Cpus, []uint32{3}) {
		t.Errorf("only CPU 3 is shared: %v", m)
	}
	if m := mustNext(t, s); len(m.Assignments) != 0 {
		t.Errorf("nothing has changed again: %v", m)
	}
}
