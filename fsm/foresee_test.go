package fsm

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// TestWhatIsForeseenComesTrue: the same commands then leave the state that was foreseen, and
// every model on the GPUs is evicted, or it is said why it stays.
func TestWhatIsForeseenComesTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newServer(t, rapid.SampledFrom([]state.Level{state.LevelMin, sched.LevelResizing}).Draw(t, "level"), 4)
		s.next("register node=n2 numa=8 gpus=H100:2 gpumem=80")
		var running []string
		for range rapid.IntRange(1, 12).Draw(t, "entries") {
			if len(running) > 0 && rapid.Bool().Draw(t, "ends") {
				s.next(running[0])
				running = running[1:]
				continue
			}
			s.foretold(t, rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "gpus"), rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "model"),
				rapid.IntRange(0, 3).Draw(t, "setup"), rapid.SampledFrom([]int{0, 30, 80}).Draw(t, "memory"))
			s.actions++
			s.View(func(st *state.State) {
				if a := st.Action(state.ActionID(s.actions)); a.State == state.ActionRunning {
					running = append(running, fmt.Sprintf("report node=%s inc=%d action=%d", st.Node(a.Node).Name, a.Node, a.ID))
				}
			})
		}
	})
}

// foretold foresees a submission, and then makes it.
func (s *server) foretold(r *rapid.T, gpus int, model string, setUp, memory int) {
	line := fmt.Sprintf("submit cores=0 gpus=%d model=%s setup=%ds gpumem=%d", gpus, model, setUp, memory)
	before, untouched := s.Fork(), s.Fork().Hash()
	entry := &logv1.Entry{TimeNs: before.Meta().Now, Commands: parseCommand(s.t, line)}
	after, results, err := s.Foresee(before, entry.Commands...)
	if err != nil || results[0].Refusal != nil || before.Hash() != untouched {
		r.Fatalf("foreseen %v, %v; the state has the hash %x, had %x", results, err, before.Hash(), untouched)
	}
	given := s.given(before, after, state.ActionID(results[0].FirstId))
	spared, more := sched.ExplainSpared(before, after.Action(state.ActionID(results[0].FirstId)), given, 100)
	others := 0
	before.Residencies(func(n *state.Residency) bool {
		others += len(n.Models)
		return true
	})
	if given.Hit {
		others--
	}
	if more || len(spared)+len(given.Evicted) != others {
		r.Fatalf("%d others: %d are evicted and %d stay", others, len(given.Evicted), len(spared))
	}
	for _, m := range spared {
		if m.Reason == "" {
			r.Fatalf("%s stays on node %d, and it does not say why", m.Model.Model, m.Node)
		}
	}
	s.index++
	data, err := entry.MarshalVT()
	if err != nil {
		r.Fatal(err)
	}
	if _, err := s.ApplyData(s.index, 1, data); err != nil {
		r.Fatal(err)
	}
	if _, hash := s.Hash(); hash != after.Hash() {
		r.Fatalf("%s leaves the hash %x, foreseen was %x", line, hash, after.Hash())
	}
}

// given is what an action was given of GPUs.
func (s *server) given(before, after *state.State, id state.ActionID) (g sched.Given) {
	a := after.Action(id)
	t := after.Attempt(a.Node, id)
	if t == nil {
		return g
	}
	g.Node, g.Chunk = t.Node, t.Chunk
	for _, m := range before.ModelsOn(t.Node) {
		stays := m.Model == a.GPUs().Model && m.Chunk == t.Chunk
		g.Hit = g.Hit || stays
		for _, o := range after.ModelsOn(t.Node) {
			stays = stays || o.Same(&m)
		}
		if !stays {
			g.Evicted = append(g.Evicted, m)
		}
	}
	return g
}

// TestWhatIsForeseenLeavesNoEvents foresees from older copies while the machine goes on. What
// never happened is not among the machine's events, and a snapshot of it can be restored.
func TestWhatIsForeseenLeavesNoEvents(t *testing.T) {
	s := newServer(t, sched.LevelResizing, 4)
	submit := parseCommand(t, "submit cores=1")
	var foreseen sync.WaitGroup
	for range 1100 { // more than a chunk of the events
		before, again := s.Fork(), s.Fork()
		foreseen.Go(func() {
			if _, _, err := s.Foresee(before, submit...); err != nil {
				t.Error(err)
			}
		})
		s.next("open memory=1")
		if _, _, err := s.Foresee(again, submit...); err != nil {
			t.Error(err)
		}
	}
	foreseen.Wait()
	s.View(func(st *state.State) {
		var buf bytes.Buffer
		if err := st.Save(&buf); err != nil {
			t.Fatal(err)
		}
		if _, err := state.Restore(&buf); err != nil {
			t.Error(err)
		}
		for rev := st.FirstRevision(); ; rev++ {
			e, ok := st.Event(rev)
			if !ok {
				break
			}
			if e.Kind == state.EventAction {
				t.Fatalf("event %d is of action %d, and there are no actions", rev, e.Subject)
			}
		}
	})
}
