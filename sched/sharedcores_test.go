package sched

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// share does what the state machine does with attempts that are to share cores.
func (w *world) share(r *rapid.T, attempts []*state.Attempt) {
	for _, old := range attempts {
		t, n := *old, *w.Node(1)
		if t.Least != 1 || t.Shares {
			r.Fatalf("action %d may not share cores: %+v", t.Action, t)
		}
		n.Free = n.Free.Union(t.Cores)
		n.Spare -= t.Spare()
		n.SetShared(n.Shared, n.Sharing+1)
		t.Cores, t.Shares, t.Anchor = state.CoreSet{}, true, 0
		w.PutNode(&n)
		w.PutAttempt(&t)
	}
}

// resizeShared does what the state machine does, and says what is wrong with it.
func (w *world) resizeShared(cores state.CoreSet) error {
	n := *w.Node(1)
	switch {
	case cores.Minus(n.Free.Union(n.Shared)) != state.CoreSet{}:
		return fmt.Errorf("cores %v are to be shared, of which only %v are free", cores.Slice(), n.Free.Union(n.Shared).Slice())
	case n.Shared != state.CoreSet{} && !cores.Has(int(n.SharedAnchor)):
		return fmt.Errorf("cores %v are to be shared without %d", cores.Slice(), n.SharedAnchor)
	}
	n.SetShared(cores, n.Sharing)
	w.PutNode(&n)
	return nil
}

// TestWhoShares: all that have run for long share cores, if one waits only for cores, and if that frees some.
func TestWhoShares(t *testing.T) {
	one := state.Action{CoresMin: 1, CoresMax: 1}
	wide := state.Action{CoresMin: 1, CoresMax: 2}
	fixed, two := one, state.Action{CoresMin: 2, CoresMax: 2}
	fixed.Fixed = true
	waits, large := &state.Action{CoresMin: 1, CoresMax: 1}, &state.Action{CoresMin: 1, CoresMax: 1, Memory: 1 << 60}
	type running struct {
		action state.Action
		age    int64 // s
	}
	for _, c := range []struct {
		name   string
		runs   []running // on four cores
		waits  *state.Action
		shares int // how many
		shared int // cores
	}{
		{"two of four", []running{{one, 10}, {one, 10}, {one, 9}, {one, 0}}, waits, 2, 2},
		{"all of them", []running{{one, 10}, {one, 20}, {one, 30}, {one, 40}}, waits, 4, 4},
		{"nobody waits", []running{{one, 10}, {one, 10}, {one, 10}, {one, 10}}, nil, 0, 0},
		{"it waits for memory, too", []running{{one, 10}, {one, 10}, {one, 10}, {one, 10}}, large, 0, 0},
		{"others can give up some", []running{{wide, 10}, {wide, 10}}, waits, 0, 0},
		{"one alone frees nothing", []running{{one, 10}, {one, 9}, {one, 9}, {one, 9}}, waits, 0, 0},
		{"not those that are to keep theirs", []running{{fixed, 10}, {fixed, 10}, {one, 10}, {one, 9}}, waits, 0, 0},
		{"nor those that need two", []running{{two, 10}, {two, 10}}, waits, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := resizing(4)
			n := *w.Node(1)
			n.ShareAfterNS = 10 * second
			w.PutNode(&n)
			for _, x := range c.runs {
				w.run(x.action, int(x.action.CoresMax), w.Meta().Now-x.age*second)
			}
			if c.waits != nil {
				w.queue(*c.waits)
			}
			d := Divide(w.State, w.Node(1))
			cores := 0
			for _, r := range d.Resizes {
				if r.Attempt == nil {
					cores = r.Cores.Len()
				}
			}
			if len(d.Share) != c.shares || cores != c.shared {
				t.Errorf("%d share %d cores, want %d and %d", len(d.Share), cores, c.shares, c.shared)
			}
		})
	}
}

// TestSharesOfSharers: those that share cores have an eighth of the weight of the others, a core for eight of
// them at least, and what the others leave.
func TestSharesOfSharers(t *testing.T) {
	for _, c := range []struct{ sharing, others, most, want int }{
		{8, 1, 64, 32},
		{8, 7, 64, 8},
		{1, 7, 64, 1},
		{17, 61, 64, 3},
		{8, 1, 10, 54},
		{8, 0, 0, 64},
	} {
		w := resizing(64)
		n := *w.Node(1)
		n.ShareAfterNS = 10 * second
		w.PutNode(&n)
		n.SetShared(state.CoreRange(0, state.SharedLeast(uint32(c.sharing))), uint32(c.sharing))
		w.PutNode(&n)
		for range c.others {
			w.run(state.Action{CoresMin: 1, CoresMax: uint32(c.most)}, 1, w.Meta().Now)
		}
		for _, r := range Divide(w.State, w.Node(1)).Resizes {
			if err := w.resize(r); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.Node(1).Shared.Len(); got != c.want {
			t.Errorf("%d share %d cores beside %d others that can use %d, want %d", c.sharing, got, c.others, c.most, c.want)
		}
	}
}
