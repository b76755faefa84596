package state

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRanks looks for ranks in any order, which is to say what counting one by one does.
func TestRanks(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, q := New(), QueueOf(PoolQueue, PoolID(2))
		var all []ActionID
		for id := range ActionID(rapid.IntRange(0, 300).Draw(r, "actions")) {
			a := &Action{ID: 2*id + 1, Namespace: 1, State: ActionQueued, CoresMin: 1, CoresMax: 1, Pool: PoolID(rapid.IntRange(1, 3).Draw(r, "pool"))}
			s.PutAction(a)
			if a.Queue() == q {
				all = append(all, a.ID)
			}
		}
		ranks := s.Ranks(q)
		for _, id := range rapid.SliceOf(rapid.Uint64Range(0, 620)).Draw(r, "ids") {
			older, _ := slices.BinarySearch(all, ActionID(id))
			if got := ranks.Of(ActionID(id)); got != older {
				r.Fatalf("%d of %d actions are older than %d, want %d", got, len(all), id, older)
			}
		}
	})
}

// TestRank compares with counting one by one.
func TestRank(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, all := New(), make(map[Queue][]ActionID)
		for id := range ActionID(rapid.IntRange(0, 200).Draw(r, "actions")) {
			a := &Action{ID: id + 1, Namespace: 1, State: ActionQueued, CoresMin: 1, CoresMax: 1, Pool: PoolID(rapid.IntRange(1, 3).Draw(r, "pool"))}
			s.PutAction(a)
			all[a.Queue()] = append(all[a.Queue()], a.ID)
		}
		id, step := ActionID(rapid.IntRange(0, 202).Draw(r, "id")), rapid.IntRange(1, 9).Draw(r, "step")
		for pool := range PoolID(5) {
			q, older, some := QueueOf(PoolQueue, pool), 0, []ActionID(nil)
			for i, other := range all[q] {
				if other < id {
					older++
				}
				if i%step == 0 {
					some = append(some, other)
				}
			}
			if got := s.Rank(q, id); got != older {
				r.Fatalf("%d actions of %v are older than %d, counted %d", got, q, id, older)
			}
			var got []ActionID
			s.QueuedEvery(q, step, func(id ActionID) bool { got = append(got, id); return true })
			if !slices.Equal(got, some) {
				r.Fatalf("every %dth is %v, want %v", step, got, some)
			}
		}
		waiting := 0
		s.Queues(func(q Queue, n int) bool {
			if len(all[q]) != n {
				r.Fatalf("%d actions wait in %v, want %d", n, q, len(all[q]))
			}
			waiting++
			return true
		})
		if waiting != len(all) {
			r.Fatalf("%d queues, want %d", waiting, len(all))
		}
	})
}
