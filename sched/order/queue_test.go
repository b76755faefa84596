package order

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// list is a queue as plain as can be: the oracle.
type list []item

type item struct {
	queue state.Queue
	id    state.ActionID
}

func (l list) Queued(key state.Queue, from state.ActionID, fn func(state.ActionID) bool) {
	for _, c := range l {
		if c.queue == key && c.id >= from && !fn(c.id) {
			return
		}
	}
}

// TestOldest reads a queue in parts, which together are the queue.
func TestOldest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var l list
		var want []state.ActionID
		for id := range state.ActionID(rapid.IntRange(0, 40).Draw(r, "actions")) {
			pool := state.PoolID(rapid.IntRange(1, 3).Draw(r, "pool"))
			l = append(l, item{state.QueueOf(state.PoolQueue, pool), id + 1})
			if pool == 2 {
				want = append(want, id+1)
			}
		}
		n := rapid.IntRange(1, 10).Draw(r, "n")
		var got []state.ActionID
		for last := state.ActionID(0); ; last = got[len(got)-1] {
			part := Oldest(l, state.QueueOf(state.PoolQueue, 2), last, n)
			if len(part) > n {
				r.Fatalf("%d actions at once, want at most %d", len(part), n)
			}
			if got = append(got, part...); len(part) < n {
				break
			}
		}
		if !slices.Equal(got, want) {
			r.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestMayBypass(t *testing.T) {
	s := &state.Settings{BypassMax: 3, BypassNSMax: 100}
	for _, c := range []struct {
		name string
		a    state.Action
		now  int64
		want bool
	}{
		{"never bypassed", state.Action{}, 1000, true},
		{"twice, recently", state.Action{Bypassed: 2, BlockedAt: 950}, 1000, true},
		{"as often as allowed", state.Action{Bypassed: 3, BlockedAt: 950}, 1000, false},
		{"for as long as allowed", state.Action{Bypassed: 1, BlockedAt: 900}, 1000, false},
	} {
		if got := MayBypass(&c.a, c.now, s); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
