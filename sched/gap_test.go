package sched

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// shared is a world with one group, whose only member is a node with 8 GPUs, and jobs whose
// reservations do not overlap.
func shared(r *rapid.T) (w *world, period int64) {
	n := func(label string, least, most int) int64 { return int64(rapid.IntRange(least, most).Draw(r, label)) }
	w = newWorld(4)
	m := *w.Meta()
	m.LastGroup, m.LastJob = 1, 10
	w.SetMeta(m)
	w.PutGPUClass(&state.GPUClass{ID: 1, Name: "H100"})
	node := *w.Node(1)
	node.GPUs = state.GPUs{Class: 1, Count: 8, Memory: 80, Free: state.AllGPUs(8)}
	w.PutNode(&node)
	period = n("period", 10, 40)
	g := &state.NodeGroup{ID: 1, Name: "g", Nodes: 1}
	g.Members.List = []state.Member{{Node: "n1"}}
	at := Slot(w.State, m.Now) - n("before", 0, int(2*period))
	for id, left := state.JobID(1), period; id <= 3; id++ {
		gap, length := n("gap", 1, 6), n("length", 1, 6)
		if left -= gap + length; left < 0 || rapid.Bool().Draw(r, "last") {
			break
		}
		at += gap
		cycle := state.Cycle{Period: period, Segments: []state.Segment{{Length: length, Nodes: 1}}}
		w.PutJob(&state.Job{ID: id, Namespace: 1, Name: fmt.Sprint(id), State: state.JobRunning, Nodes: 1, Cycle: cycle, Group: 1})
		w.PutReservation(&state.Reservation{Job: id, Group: 1, Cycle: cycle, Anchor: at, Began: at})
		g.Period = period
		at += length
	}
	w.PutNodeGroup(g)
	return w, period
}

// TestGapEndsWhereTheNextReservationBegins: compared with a search slot by slot.
func TestGapEndsWhereTheNextReservationBegins(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w, period := shared(r)
		reserved := func(slot int64) (is bool) {
			w.Reservations(func(x *state.Reservation) bool {
				since := slot - x.Anchor
				is = is || since >= 0 && since%period < x.Cycle.Segments[0].Length
				return true
			})
			return is
		}
		now := Slot(w.State, w.Meta().Now)
		want, next := int64(math.MaxInt64), int64(0)
		for slot := now + 1; slot < now+4*period; slot++ {
			if reserved(slot) && !reserved(slot-1) {
				want, next = slot*second, slot*second
				break
			}
		}
		if reserved(now) {
			want = 0
		}
		if d := NextTurn(w.State, w.NodeGroup(1)); d.GapUntil != want || want != 0 && d.NextAt != next {
			r.Fatalf("the gap ends at %d and the next reservation is at %d, must be %d and %d, now is slot %d", d.GapUntil, d.NextAt, want, next, now)
		}
	})
}

// TestAwakeLeavesNoGap: a deployment that was not put to sleep has the memory of the GPUs.
func TestAwakeLeavesNoGap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w, _ := shared(r)
		g := *w.NodeGroup(1)
		g.Awake = 1
		w.PutNodeGroup(&g)
		if d := NextTurn(w.State, &g); d.GapUntil != 0 {
			r.Fatalf("the gap is open until %d", d.GapUntil)
		}
	})
}

// TestActionsInGapsEndInTime: an action starts on a member exactly if it would end in time, by
// what its client says and by what 95 of 100 of its class took, sorted and counted.
func TestActionsInGapsEndInTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w, _ := shared(r)
		g := *w.NodeGroup(1)
		left := int64(rapid.IntRange(1, 60).Draw(r, "left")) * second
		g.Members.GapUntil = w.Meta().Now + left
		w.PutNodeGroup(&g)
		a := state.Action{Needs: &state.Needs{GPUs: &state.GPUDemand{Class: 1, Degrees: []uint32{1}, Model: "m", SetUpNS: int64(rapid.IntRange(0, 5).Draw(r, "setup")) * second}}}
		if single := rapid.IntRange(0, 60).Draw(r, "single"); single > 0 {
			a.Needs.Profile = &state.Profile{SingleNS: int64(single) * second}
		}
		c := &state.Class{ID: 1, Namespace: 1, Name: "c"}
		took := rapid.SliceOfN(rapid.Int64Range(second, 60*second), 20*rapid.IntRange(0, 2).Draw(r, "least"), 60).Draw(r, "took")
		for _, ns := range took {
			c = c.Lived(ns, true)
		}
		w.PutClass(c)
		if len(took) > 0 {
			a.Class = 1
		}
		id := w.queue(a)
		sure, possible := oracle(&a, took, left)
		d, ok := newGPUPass(w.State, state.QueueOfGPUs(1, 1)).Next()
		if starts := ok && d.Start != nil && d.Start.ID == id; starts && !possible || !starts && sure {
			r.Fatalf("it starts: %v, with %d ns left; surely: %v, possibly: %v", starts, left, sure, possible)
		}
	})
}

// oracle says whether an action surely, or possibly, ends in time. A class knows durations to
// a quarter only.
func oracle(a *state.Action, took []int64, left int64) (sure, possible bool) {
	longest, least, known := int64(0), int64(0), false
	if a.Needs.Profile != nil {
		longest, least, known = a.Needs.Profile.SingleNS, a.Needs.Profile.SingleNS, true
	}
	if len(took) >= 20 {
		slices.Sort(took)
		last := (95*len(took)+99)/100 - 1 // so many have ended by then, or one more if parts are rounded
		at, next := took[last], took[min(last+1, len(took)-1)]
		longest, least, known = max(longest, next+next/4+1), max(least, at-at/4), true
	}
	setUp := a.Needs.GPUs.SetUpNS
	return known && longest+setUp <= left, known && least+setUp <= left
}
