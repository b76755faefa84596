package sched

import (
	"fmt"
	"testing"

	"rota/fsm/state"
)

// lasting is an action that its client says takes so many seconds.
func lasting(cores uint32, seconds int64) state.Action {
	return state.Action{CoresMin: cores, CoresMax: cores, Needs: &state.Needs{Profile: &state.Profile{SingleNS: seconds * second, Serial: true, SerialPPM: 1_000_000}}}
}

// began starts an action on a node, some seconds ago.
func (w *world) began(node state.NodeID, a state.Action, ago int64) state.ActionID {
	id := w.queue(a)
	n := w.Node(node)
	w.start(Decision{Start: w.Action(id), Node: n, Cores: n.Free.First(int(a.CoresMin))})
	row, t := *w.Action(id), *w.Attempt(node, id)
	row.StartedAt, t.StartedAt = row.StartedAt-ago*second, t.StartedAt-ago*second
	w.PutAction(&row)
	w.PutAttempt(&t)
	return id
}

// estimate returns p50 and p90 in seconds, or the reason.
func (w *world) estimate(id state.ActionID) string {
	e := EstimateStarts(w.State, []*state.Action{w.Action(id)}, 0)[0]
	if e.Unknown != "" {
		return e.Unknown
	}
	return fmt.Sprintf("%.4g to %.4g", float64(e.P50NS)/second, float64(e.P90NS)/second)
}

// estimateCase is an action in a world of some nodes.
type estimateCase struct {
	nodes []int
	make  func(w *world) state.ActionID
	want  string
}

func (c estimateCase) check(t *testing.T) {
	w := newWorld(c.nodes...)
	if got := w.estimate(c.make(w)); got != c.want {
		t.Errorf("got %s, want %s", got, c.want)
	}
}

func TestEstimateStart(t *testing.T) {
	for name, c := range map[string]estimateCase{
		"free":    {[]int{4}, func(w *world) state.ActionID { return w.queue(lasting(1, 5)) }, "0 to 0"},
		"running": {[]int{4}, func(w *world) state.ActionID { return w.began(1, lasting(1, 5), 1) }, "0 to 0"},
		"behind one that runs": {[]int{4}, func(w *world) state.ActionID {
			w.began(1, lasting(4, 5), 2)
			return w.queue(lasting(1, 1))
		}, "3 to 3"},
		"behind one that is overdue": {[]int{4}, func(w *world) state.ActionID {
			w.began(1, lasting(4, 5), 7)
			return w.queue(lasting(1, 1))
		}, "2 to 2"},
		"behind one that waits": {[]int{2}, func(w *world) state.ActionID {
			w.began(1, lasting(2, 5), 2)
			w.queue(lasting(2, 10))
			return w.queue(lasting(1, 1))
		}, "13 to 16.25"},
		"past one that does not fit": {[]int{2}, func(w *world) state.ActionID {
			w.began(1, lasting(1, 5), 2)
			w.began(1, lasting(1, 9), 2)
			w.queue(lasting(2, 10))
			return w.queue(lasting(1, 1))
		}, "3 to 3.75"},
		"not past one whose patience ended": {[]int{2}, func(w *world) state.ActionID {
			w.began(1, lasting(1, 5), 2)
			w.began(1, lasting(1, 9), 2)
			head := lasting(2, 10)
			head.Bypassed, head.BlockedAt = 1, w.Meta().Now-w.Meta().Settings.BypassNSMax
			w.queue(head)
			return w.queue(lasting(1, 1))
		}, "17 to 21.25"},
		"on the first of two nodes": {[]int{2, 2}, func(w *world) state.ActionID {
			w.began(1, lasting(2, 8), 0)
			w.began(2, lasting(2, 6), 0)
			return w.queue(lasting(2, 1))
		}, "6 to 7.5"},
	} {
		t.Run(name, c.check)
	}
}

// Where an estimate is not known, it says why.
func TestEstimateUnknown(t *testing.T) {
	for name, c := range map[string]estimateCase{
		"unknown": {[]int{1}, func(w *world) state.ActionID {
			w.began(1, state.Action{CoresMin: 1, CoresMax: 1}, 3)
			return w.queue(lasting(1, 1))
		}, "it is not known how long the action takes that it waits for: give actions a class or a profile"},
		"one that is unknown does not matter": {[]int{2}, func(w *world) state.ActionID {
			w.began(1, state.Action{CoresMin: 1, CoresMax: 1}, 3)
			w.began(1, lasting(1, 5), 3)
			return w.queue(lasting(1, 1))
		}, "2 to 2.5"},
		"one of two unknown": {[]int{2}, func(w *world) state.ActionID {
			w.began(1, state.Action{CoresMin: 1, CoresMax: 1}, 3)
			w.began(1, lasting(1, 5), 3)
			return w.queue(lasting(2, 1))
		}, "it is not known how long 1 of 2 actions take that run or wait before it: give actions a class or a profile"},
		"a halted pool": {[]int{1}, func(w *world) state.ActionID {
			p := *w.Pool(1)
			p.Halted = "a panic"
			w.PutPool(&p)
			return w.queue(lasting(1, 1))
		}, `pool "default" is halted until an operator resumes it`},
		"no node": {nil, func(w *world) state.ActionID { return w.queue(lasting(1, 1)) }, `pool "default" has no node that is up and not draining`},
		"aside": {[]int{1}, func(w *world) state.ActionID {
			a := lasting(2, 1)
			a.Aside = true
			return w.queue(a)
		}, "nothing that is there could ever serve it"},
		"a trajectory without a node": {[]int{1}, func(w *world) state.ActionID {
			w.PutTrajectory(&state.Trajectory{ID: 1, Namespace: 1, Pool: 1, State: state.TrajectoryPending, Live: 1})
			a := lasting(1, 1)
			a.Trajectory = 1
			return w.queue(a)
		}, "its trajectory 1 waits for a node, which it gets when others are closed"},
		"memory of trajectories": {[]int{2}, func(w *world) state.ActionID {
			n := *w.Node(1)
			n.FreeMemory = 5
			w.PutNode(&n)
			w.began(1, lasting(1, 5), 3)
			a := lasting(1, 1)
			a.Memory = 6
			return w.queue(a)
		}, "nothing that runs gives back enough for it when it ends"},
	} {
		t.Run(name, c.check)
	}
}

// Cores that can be taken from what runs are free, and what runs has its fewest as long as
// others wait.
func TestEstimateOnANodeThatResizes(t *testing.T) {
	w := newWorld(4)
	elastic := state.Action{CoresMin: 2, CoresMax: 4, Needs: &state.Needs{Profile: &state.Profile{SingleNS: 8 * second, Serial: true}}}
	id := w.queue(elastic)
	n := *w.Node(1)
	w.start(Decision{Start: w.Action(id), Node: &n, Cores: n.Free})
	t1 := *w.Attempt(1, id)
	t1.Least = 2
	w.PutAttempt(&t1)
	n = *w.Node(1)
	n.Resizes, n.Spare = true, 2
	w.PutNode(&n)
	if got := w.estimate(w.queue(lasting(2, 5))); got != "0 to 0" {
		t.Errorf("two of four cores can be taken: %s", got)
	}
	// The other takes these for 5 s; with 2 cores, the first takes 4 s from now on.
	if got := w.estimate(w.queue(lasting(1, 5))); got != "4 to 5" {
		t.Errorf("the first has its fewest: %s", got)
	}
}

// A class whose attempts took 1 to 100 seconds of one core: the middle of those behind one
// attempt that has just begun is that of the class.
func TestEstimateByClass(t *testing.T) {
	w := newWorld(1)
	c := &state.Class{ID: 1, Namespace: 1, Name: "suite"}
	for i := range int64(100) {
		c = c.Lived((i+1)*second, true)
	}
	w.PutClass(c)
	learned := state.Action{CoresMin: 1, CoresMax: 1, Class: 1}
	w.began(1, learned, 0)
	want := c.Lifetimes.Quantiles(500_000, 900_000)
	e := EstimateStarts(w.State, []*state.Action{w.Action(w.queue(learned))}, 0)[0]
	for i, got := range []int64{e.P50NS, e.P90NS} {
		if d := float64(got) / float64(want[i]); d < 0.98 || d > 1.02 {
			t.Errorf("%+v, want %v", e, want)
		}
	}
	// Behind one that has run for 50 s the rest is spread over the 50 s that may be left.
	w = newWorld(1)
	w.PutClass(c)
	w.began(1, learned, 50)
	e = EstimateStarts(w.State, []*state.Action{w.Action(w.queue(learned))}, 0)[0]
	if e.P50NS < 22*second || e.P50NS > 28*second || e.P90NS < 42*second || e.P90NS > 48*second {
		t.Errorf("after 50 of 1 to 100 s: %+v", e)
	}
	// One that has run for longer than any goes on for as long again, perhaps.
	w = newWorld(1)
	w.PutClass(c)
	w.began(1, learned, 200)
	e = EstimateStarts(w.State, []*state.Action{w.Action(w.queue(learned))}, 0)[0]
	if e.P50NS != 200*second || e.P90NS != 1800*second {
		t.Errorf("after 200 of 1 to 100 s: %+v", e)
	}
}

// Where more wait than are looked at, those between count as those before them.
func TestEstimateBeyondWhatIsLookedAt(t *testing.T) {
	w := newWorld(2)
	w.began(1, lasting(2, 1), 0)
	var last state.ActionID
	for range 10_000 {
		last = w.queue(lasting(1, 3))
	}
	if got, want := w.estimate(last), fmt.Sprintf("%.4g to %.4g", 1+4999*3., (1+4999*3.)*1.25); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s := NewStarts(w.State, 0)
	s.Of(w.Action(last))
	if s.Examined() > estimateHoldersMax+estimateWaitersMax {
		t.Errorf("looked at %d", s.Examined())
	}
}

func TestEstimateRoom(t *testing.T) {
	w := newWorld(2)
	if _, known := EstimateRoom(w.State, 0); known {
		t.Error("nothing waits, and something is to leave its queue")
	}
	w.began(1, lasting(2, 9), 2)
	w.queue(lasting(1, 3))
	w.queue(lasting(1, 3))
	if ns, known := EstimateRoom(w.State, w.Meta().Now+second); !known || ns != 6*second {
		t.Errorf("room in %d ns, %v", ns, known)
	}
}

// A quota of one unit at a time in a window: the fsm's own arithmetic says when it returns.
func TestEstimateQuota(t *testing.T) {
	w := newWorld(4)
	q := &state.Quota{ID: 1, Name: "search", Kind: state.QuotaFixedWindow, Limit: 2, WindowNS: 60 * second, Keys: 1, Uses: []state.KeyUse{{Windowed: 2}}}
	w.PutQuota(q)
	now := w.Meta().Now
	w.PutReturn(&state.QuotaReturn{ID: 1<<32 | 1, Due: now + 7*second, Units: []uint64{1}})
	w.PutReturn(&state.QuotaReturn{ID: 1<<32 | 2, Due: now + 9*second, Units: []uint64{1}})
	call := func() state.ActionID {
		a := lasting(1, 5)
		a.Needs.Quotas = []state.QuotaUse{{Quota: 1, Units: 1}}
		return w.queue(a)
	}
	third := q.ReturnsAt(now+12*second) - now
	for i, want := range []string{"7 to 7.438", "9 to 9.562", fmt.Sprintf("%.4g to %.4g", float64(third)/second, float64(third)/second*1.0625)} {
		if got := w.estimate(call()); got != want {
			t.Errorf("call %d: %s, want %s", i+1, got, want)
		}
	}
	// With a unit of the quota, it would wait for its core.
	for range 4 {
		w.began(1, lasting(1, 100), 0)
	}
	if got := w.estimate(call()); got != "100 to 125" {
		t.Errorf("a call that waits for a core too: %s", got)
	}
	halted := *w.Quota(1)
	halted.Halted = "a panic"
	w.PutQuota(&halted)
	if got := w.estimate(call()); got != "quota search is halted until an operator resumes it" {
		t.Error(got)
	}
}
