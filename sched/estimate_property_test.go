package sched

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// randomEstimateWorld has nodes with attempts, classes that have seen some, and actions that
// wait: for cores, memory, a quota and GPUs.
func randomEstimateWorld(r *rapid.T) *world {
	nodes := rapid.SliceOfN(rapid.IntRange(1, 8), 1, 20).Draw(r, "nodes")
	w := newWorld(nodes...)
	for id := range state.ClassID(3) {
		c := &state.Class{ID: id + 1, Namespace: 1, Name: string(rune('a' + id))}
		for range rapid.IntRange(0, 20).Draw(r, "seen") {
			ns := rapid.Int64Range(1, 1<<50).Draw(r, "ns")
			c = c.Lived(ns, rapid.Bool().Draw(r, "ended")).Learn(1, ns).Sized(uint64(id), ns)
		}
		w.PutClass(c)
	}
	keys := rapid.IntRange(1, 3).Draw(r, "keys")
	q := &state.Quota{ID: 1, Name: "q", Kind: state.QuotaKind(rapid.IntRange(1, 3).Draw(r, "kind")), Limit: 4, Keys: uint32(keys), WindowNS: rapid.Int64Range(0, 1<<40).Draw(r, "window")}
	for range keys {
		q.Uses = append(q.Uses, state.KeyUse{Held: uint32(rapid.IntRange(0, 4).Draw(r, "held"))})
	}
	w.PutQuota(q)
	for i, cores := range nodes {
		for left := cores; left > 0 && rapid.IntRange(0, 9).Draw(r, "full") > 0; {
			a := randomWaiter(r, left, false)
			w.began(state.NodeID(i+1), a, rapid.Int64Range(0, 1000).Draw(r, "ago"))
			left -= int(a.CoresMin)
		}
	}
	for range rapid.IntRange(1, 60).Draw(r, "waiting") {
		w.queue(randomWaiter(r, 8, true))
	}
	return w
}

func randomWaiter(r *rapid.T, cores int, quota bool) state.Action {
	a := lasting(uint32(rapid.IntRange(1, cores).Draw(r, "cores")), rapid.Int64Range(1, 1000).Draw(r, "seconds"))
	if rapid.Bool().Draw(r, "learned") {
		a.Needs, a.Class, a.SizeHint = nil, state.ClassID(rapid.IntRange(0, 3).Draw(r, "class")), rapid.Uint64Range(0, 9).Draw(r, "size")
	}
	if quota && rapid.IntRange(0, 3).Draw(r, "quota") == 0 {
		needs := state.Needs{}
		if a.Needs != nil {
			needs = *a.Needs
		}
		needs.Quotas = []state.QuotaUse{{Quota: 1, Units: uint32(rapid.IntRange(1, 4).Draw(r, "units"))}}
		a.Needs = &needs
	}
	if quota && rapid.IntRange(0, 3).Draw(r, "memory") == 0 {
		a.Memory = rapid.Uint64Range(1, 1<<41).Draw(r, "bytes")
	}
	return a
}

// TestEstimatesAreSound: p50 is at most p90, neither is negative, the same question has the
// same answer, alone or among others, and the work is bounded.
func TestEstimatesAreSound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := randomEstimateWorld(r)
		var all []*state.Action
		w.Actions(0, func(a *state.Action) bool { all = append(all, a); return true })
		now := w.Meta().Now + rapid.Int64Range(-5, 1<<40).Draw(r, "later")
		together := EstimateStarts(w.State, all, now)
		if !slices.Equal(together, EstimateStarts(w.State, all, now)) {
			r.Fatal("two answers")
		}
		for i, a := range all {
			if a.State == state.ActionQueued && i%8 > 0 {
				continue // asked together only
			}
			s := NewStarts(w.State, now)
			e := s.Of(a)
			if e.P50NS < 0 || e.P50NS > e.P90NS || e.P90NS >= never || e.Unknown != "" && e.P90NS != 0 {
				r.Fatalf("action %d: %+v", a.ID, e)
			}
			if a.State != state.ActionQueued && e != (StartEstimate{}) {
				r.Fatalf("action %d runs and is to start: %+v", a.ID, e)
			}
			if s.Examined() > 3*(estimateHoldersMax+estimateWaitersMax) {
				r.Fatalf("action %d: looked at %d", a.ID, s.Examined())
			}
			if together[i] != e && together[i].Unknown == "" && e.Unknown == "" {
				r.Fatalf("action %d: %+v alone and %+v among others", a.ID, e, together[i])
			}
		}
	})
}

// TestEstimatesAscend: of actions that ask for the same, a younger one does not start first.
func TestEstimatesAscend(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(rapid.SliceOfN(rapid.IntRange(1, 8), 1, 4).Draw(r, "nodes")...)
		c := &state.Class{ID: 1, Namespace: 1, Name: "suite"}
		for range rapid.IntRange(1, 30).Draw(r, "seen") {
			c = c.Lived(rapid.Int64Range(1, 1<<45).Draw(r, "ns"), true)
		}
		w.PutClass(c)
		a := state.Action{CoresMin: 1, CoresMax: 1, Class: 1}
		w.Nodes(0, func(n *state.Node) bool {
			for range n.CoreCount() {
				w.began(n.ID, a, rapid.Int64Range(0, 100).Draw(r, "ago"))
			}
			return true
		})
		var all []*state.Action
		for range rapid.IntRange(1, 300).Draw(r, "waiting") {
			all = append(all, w.Action(w.queue(a)))
		}
		last := StartEstimate{}
		for _, e := range EstimateStarts(w.State, all, 0) {
			if e.Unknown != "" || e.P50NS < last.P50NS || e.P90NS < last.P90NS {
				r.Fatalf("%+v after %+v", e, last)
			}
			last = e
		}
	})
}
