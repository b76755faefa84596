package sched

import (
	"slices"
	"testing"

	"rota/fsm/state"
)

// explored returns how many GPUs the actions that start now get, oldest first.
func explored(s *state.State, q state.Queue, level state.Level) (units []int) {
	p := Deciders()[level-state.LevelMin](s, q)
	for {
		d, ok := p.Next()
		if !ok {
			return units
		}
		if d.Start == nil {
			continue
		}
		units = append(units, int(d.GPUs.Chunk.Units))
		a, n := *d.Start, *d.Node
		a.State = state.ActionRunning
		n.GPUs.Free &^= d.GPUs.Chunk.GPUs()
		s.PutAction(&a)
		s.PutNode(&n)
	}
}

// exploreWorld is idle nodes, and actions of one class that can use 1, 2, 4 or 8 GPUs and
// say nothing of how long they take.
func exploreWorld(nodes int, ids []state.ActionID, seen ...state.WidthSeen) (*state.State, state.Queue) {
	s, q := gpuWorld(nodes, 0, false)
	s.PutClass(&state.Class{ID: 1, Namespace: 1, Name: "judge", Seen: seen})
	for _, id := range ids {
		n := &state.Needs{GPUs: &state.GPUDemand{Class: 1, Degrees: []uint32{1, 2, 4, 8}}}
		s.PutAction(&state.Action{ID: id, Namespace: 1, Pool: 1, Class: 1, State: state.ActionQueued, CoresMin: 1, CoresMax: 1, Needs: n})
	}
	return s, q
}

// ids returns the first so many actions that explore, or do not, even if GPUs are short.
func ids(n int, explore bool) (out []state.ActionID) {
	for id := state.ActionID(1); len(out) < n; id++ {
		if explorer(&state.Action{ID: id}) == explore {
			out = append(out, id)
		}
	}
	return out
}

func TestGPUDegreesAreExplored(t *testing.T) {
	enough := func(units uint32) state.WidthSeen {
		return state.WidthSeen{Units: units, MeanNS: 8e9, Attempts: exploreEnough}
	}
	for name, tc := range map[string]struct {
		level state.Level
		nodes int
		ids   []state.ActionID
		seen  []state.WidthSeen
		want  []int
	}{
		"not before the level":            {state.LevelMin, 4, ids(1, false), nil, []int{1}},
		"the largest first":               {levelExploring, 5, ids(1, false), nil, []int{8}},
		"a quarter of what is left":       {levelExploring, 2, ids(1, false), nil, []int{2}},
		"less with each that starts":      {levelExploring, 4, ids(4, false), nil, []int{4, 4, 4, 4}},
		"a chosen one takes all":          {levelExploring, 1, ids(1, true), nil, []int{4}},
		"nobody waits for it":             {levelExploring, 1, ids(8, false), nil, []int{1, 1, 1, 1, 1, 1, 1, 1}},
		"not what is known":               {levelExploring, 5, ids(1, false), []state.WidthSeen{enough(8)}, []int{4}},
		"all is known, and nothing helps": {levelExploring, 4, ids(1, false), []state.WidthSeen{enough(1), enough(2), enough(4), enough(8)}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			s, q := exploreWorld(tc.nodes, tc.ids, tc.seen...)
			if got := explored(s, q, tc.level); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestExplorationIsOneInEight: of the IDs of actions that come in any fixed order.
func TestExplorationIsOneInEight(t *testing.T) {
	for _, stride := range []int{1, 2, 3, 4, 5, 7, 8, 16, 64, 100} {
		n := 0
		for i := range 8000 {
			if explorer(&state.Action{ID: state.ActionID(1 + i*stride)}) {
				n++
			}
		}
		if n < 700 || n > 1300 {
			t.Errorf("of 8,000 actions, one in %d of all, %d explore", stride, n)
		}
	}
}
