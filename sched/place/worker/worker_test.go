package worker

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

const ms = 1_000_000

// TestTokenNS: between points a line, before the first that one, beyond the last the last line
// goes on, but never down.
func TestTokenNS(t *testing.T) {
	rising := []state.WorkerPoint{{Batch: 2, TokenNS: 10 * ms}, {Batch: 4, TokenNS: 20 * ms}, {Batch: 12, TokenNS: 100 * ms}}
	falling := []state.WorkerPoint{{Batch: 1, TokenNS: 20 * ms}, {Batch: 3, TokenNS: 10 * ms}}
	for _, test := range []struct {
		profile []state.WorkerPoint
		batch   uint32
		want    int64
	}{
		{rising, 1, 10 * ms}, {rising, 2, 10 * ms}, {rising, 3, 15 * ms}, {rising, 4, 20 * ms}, {rising, 5, 30 * ms}, {rising, 12, 100 * ms}, {rising, 14, 120 * ms},
		{falling, 2, 15 * ms}, {falling, 9, 10 * ms}, {rising[:1], 100, 10 * ms},
		{[]state.WorkerPoint{{Batch: 1, TokenNS: 1}, {Batch: 2, TokenNS: math.MaxInt64}}, math.MaxUint32, math.MaxInt64},
	} {
		if got := TokenNS(&state.Worker{Profile: test.profile}, test.batch); got != test.want {
			t.Errorf("%v at %d: %d, want %d", test.profile, test.batch, got, test.want)
		}
	}
}

// TestPriority grows with what is predicted, from 0 to the highest.
func TestPriority(t *testing.T) {
	for _, test := range []struct {
		predicted uint64
		want      uint32
	}{{0, 0}, {16384, 500_000}, {2048, 110_000}, {math.MaxUint64, 995_000}} {
		if got := Priority(test.predicted); got != test.want {
			t.Errorf("of %d tokens: %d, want %d", test.predicted, got, test.want)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		a, b := rapid.Uint64().Draw(r, "a"), rapid.Uint64().Draw(r, "b")
		if a <= b && Priority(a) > Priority(b) || Priority(a) > state.GenerationPriorityMax {
			t.Errorf("of %d tokens: %d; of %d: %d", a, Priority(a), b, Priority(b))
		}
	})
}

// of is a worker with slots for 2, whose tokens take so many milliseconds, with tokens predicted
// for as many trajectories.
func of(name, hardware string, takes int64, predicted ...uint64) Candidate {
	c := Candidate{State: state.WorkerUp, Row: &state.Worker{Name: name, Hardware: hardware, Slots: 2, Profile: []state.WorkerPoint{{Batch: 1, TokenNS: takes * ms}}}}
	for _, p := range predicted {
		c.Load.Trajectories++
		c.Load.Predicted += p
	}
	return c
}

func in(s state.WorkerState, c Candidate) Candidate {
	c.State = s
	return c
}

func TestChoose(t *testing.T) {
	prefilling := of("p", "", 10)
	prefilling.Row.Prefill1kNS = 1000 * ms
	for what, test := range map[string]struct {
		view   View
		likes  string
		prompt uint64
		want   int
		choice state.PlacementChoice
	}{
		"none":                            {view: nil, want: -1},
		"the least work":                  {view: View{of("a", "", 10, 300), of("b", "", 20, 50), of("c", "", 31)}, want: 1, choice: state.PlacementChoice{Candidates: 3, WorkNS: 3000 * ms, NextNS: 3100 * ms}},
		"the fewer trajectories of equal": {view: View{of("a", "", 10, 0), of("b", "", 10)}, want: 1, choice: state.PlacementChoice{Candidates: 2, WorkNS: 1000 * ms, NextNS: 1000 * ms}},
		"not one that is full":            {view: View{of("a", "", 1, 0, 0), of("b", "", 9)}, want: 1, choice: state.PlacementChoice{Candidates: 1, WorkNS: 900 * ms}},
		"only one that is up": {view: View{in(state.WorkerDown, of("a", "", 1)), in(state.WorkerStale, of("b", "", 1)), in(state.WorkerDraining, of("c", "", 1)), of("d", "", 9)},
			want: 3, choice: state.PlacementChoice{Candidates: 1, WorkNS: 900 * ms}},
		"hardware first":                {view: View{of("a", "x", 1), of("b", "y", 9), of("c", "z", 1)}, likes: "y,z", want: 1, choice: state.PlacementChoice{Candidates: 1, WorkNS: 900 * ms, Preferred: 1, By: state.HardwareAsked}},
		"the second choice when full":   {view: View{of("a", "x", 1), of("b", "y", 9, 0, 0), of("c", "z", 2)}, likes: "y,z", want: 2, choice: state.PlacementChoice{Candidates: 1, WorkNS: 200 * ms, Preferred: 2, By: state.HardwareAsked}},
		"any other if none is there":    {view: View{of("a", "x", 1), of("b", "x", 2)}, likes: "y", want: 0, choice: state.PlacementChoice{Candidates: 2, WorkNS: 100 * ms, NextNS: 200 * ms}},
		"the prefix has to be computed": {view: View{prefilling, of("q", "", 30)}, prompt: 3000, want: 1, choice: state.PlacementChoice{Candidates: 2, WorkNS: 3000 * ms, NextNS: 4000 * ms}},
	} {
		g := &state.Generation{Predicted: 100, Prefill: test.prompt, Trace: state.LengthTrace{PromptTokens: test.prompt}}
		if test.likes != "" {
			g.Hardware = strings.Split(test.likes, ",")
		}
		if at, choice := test.view.Choose(g, nil); at != test.want || choice != test.choice {
			t.Errorf("%s: %d, %+v, want %d, %+v", what, at, choice, test.want, test.choice)
		}
	}
}

// TestEveryFreeSlotIsUsed: whatever the workers are, trajectories are placed until all slots are
// taken, and never beyond.
func TestEveryFreeSlotIsUsed(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := func(label string, most int) int { return rapid.IntRange(0, most).Draw(r, label) }
		var v View
		free := 0
		for range n("workers", 5) {
			c := of("w", []string{"x", "y", ""}[n("hardware", 2)], int64(1+n("takes", 40)))
			c.State, c.Row.Slots = state.WorkerState(1+n("state", 3)), uint32(1+n("slots", 3))
			if c.State == state.WorkerUp {
				free += int(c.Row.Slots)
			}
			v = append(v, c)
		}
		for placed := 0; ; placed++ {
			g := &state.Generation{Predicted: rapid.Uint64().Draw(r, "predicted"), Hardware: []string{"x"}}
			at, choice := v.Choose(g, nil)
			if at < 0 {
				if placed != free {
					t.Fatalf("%d were placed in %d slots", placed, free)
				}
				return
			}
			if v.Add(at, g); v[at].State != state.WorkerUp || v[at].Load.Trajectories > v[at].Row.Slots || choice.WorkNS < 0 {
				t.Fatalf("worker %+v in state %d has %+v, %+v", *v[at].Row, v[at].State, v[at].Load, choice)
			}
		}
	})
}

// TestChosenSaysWhatDecided: a price may decide against less work, and an affinity may spill from
// workers with free slots.
func TestChosenSaysWhatDecided(t *testing.T) {
	s := state.New()
	g := &state.Generation{Policy: "p", TaskClass: "c", Choice: state.PlacementChoice{Candidates: 2, WorkNS: 20_400 * ms, NextNS: 12_200 * ms}}
	if got, want := chosen(s, g), "of 2 workers with free slots, its predicted work took least for its price: 20.4 s (next: 12.2 s)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	g.Choice.NextNS, g.Hardware = 30_000*ms, []string{"h800"}
	if got, want := chosen(s, g), "of 2 workers with free slots, none of hardware h800, its predicted work took least 20.4 s (next: 30.0 s)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.PutAffinity(&state.Affinity{Policy: "p", TaskClass: "c", SpillPercent: 50})
	if got, want := chosen(s, g), "of 2 workers with free slots, none of hardware h800 with little enough work, its predicted work took least 20.4 s (next: 30.0 s)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
