package dispatch

import (
	"fmt"
	"math/rand/v2"
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
