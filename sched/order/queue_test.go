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
	instance  state.Instance
	namespace state.NamespaceID
	id        state.ActionID
}

func (l list) NextQueued(i state.Instance, ns state.NamespaceID, id state.ActionID) (state.NamespaceID, state.ActionID, bool) {
	var best *item
	for k := range l {
		c := &l[k]
		after := c.namespace > ns || c.namespace == ns && c.id >= id
		if c.instance != i || !after {
			continue
		}
		if best == nil || c.namespace < best.namespace || c.namespace == best.namespace && c.id < best.id {
			best = c
		}
	}
	if best == nil {
		return 0, 0, false
	}
	return best.namespace, best.id, true
}

// TestOldest compares the merge of many queues with sorting.
func TestOldest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var l list
		for id := range rapid.IntRange(0, 40).Draw(r, "actions") {
			l = append(l, item{
				instance:  state.PoolInstance(state.PoolID(rapid.IntRange(1, 3).Draw(r, "instance"))),
				namespace: state.NamespaceID(rapid.IntRange(1, 3).Draw(r, "namespace")),
				id:        state.ActionID(id + 1),
			})
		}
		instances := []state.Instance{state.PoolInstance(1), state.PoolInstance(3)}
		after := state.ActionID(rapid.IntRange(0, 41).Draw(r, "after"))
		n := rapid.IntRange(1, 10).Draw(r, "n")
		var want []state.ActionID
		for _, i := range l {
			if slices.Contains(instances, i.instance) && i.id > after && len(want) < n {
				want = append(want, i.id)
			}
		}
		if got := Oldest(l, instances, after, n); !slices.Equal(got, want) {
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
