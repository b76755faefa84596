package worker

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// mixed are workers of two kinds: one computes prompts fast, one has a lower price.
func mixed() View {
	kind := func(name, hardware string, tokenMS, prefillMS int64, cost uint64) Candidate {
		c := of(name, hardware, tokenMS)
		c.Row.Slots, c.Row.Prefill1kNS, c.Row.Cost = 100, prefillMS*ms, cost
		return c
	}
	return View{kind("a", "compute", 10, 40, 3), kind("b", "bandwidth", 9, 240, 1)}
}

func TestChooseHardware(t *testing.T) {
	bandwidthFirst := []string{"bandwidth", "compute"}
	for what, test := range map[string]struct {
		affinity *state.Affinity
		prompts  uint64
		busy     [2]uint64 // predicted tokens of a trajectory that is there already
		others   bool      // there is one of a third kind, which is slow
		want     int
		by       state.HardwareChoice
	}{
		"decode-heavy":                          {want: 1, by: state.HardwareMeasured},
		"prefill-heavy":                         {prompts: 50_000, want: 0, by: state.HardwareMeasured},
		"decode-heavy where less is to do":      {busy: [2]uint64{0, 900}, want: 0, by: state.HardwareMeasured},
		"an affinity":                           {affinity: &state.Affinity{Hardware: bandwidthFirst}, prompts: 50_000, want: 1, by: state.HardwareRuled},
		"until the work is much longer":         {affinity: &state.Affinity{Hardware: bandwidthFirst, SpillPercent: 50}, prompts: 50_000, want: 0, by: state.HardwareRuled},
		"not a little longer":                   {affinity: &state.Affinity{Hardware: bandwidthFirst, SpillPercent: 50}, busy: [2]uint64{0, 100}, want: 1, by: state.HardwareRuled},
		"price counts":                          {affinity: &state.Affinity{CostPercent: 100}, prompts: 9000, want: 1, by: state.HardwareMeasured},
		"price counts less":                     {affinity: &state.Affinity{CostPercent: 1}, prompts: 9000, want: 0, by: state.HardwareMeasured},
		"kinds that are not there":              {affinity: &state.Affinity{Hardware: []string{"x"}}, want: 1},
		"nor the first kind that is not wanted": {affinity: &state.Affinity{Hardware: []string{"slow"}, SpillPercent: 50}, others: true, busy: [2]uint64{300, 0}, want: 1},
	} {
		v := mixed()
		if test.others {
			v = append(v, of("c", "slow", 40))
		}
		for i, n := range test.busy {
			if n > 0 {
				v.Add(i, &state.Generation{Predicted: n})
			}
		}
		at, choice := v.Choose(&state.Generation{Predicted: 1000, Prefill: test.prompts}, test.affinity)
		if at != test.want || choice.By != test.by {
			t.Errorf("%s: worker %d, %+v, want %d by %d", what, at, choice, test.want, test.by)
		}
	}
}

// TestSuitedIsTheGreedyRule: the worker that is chosen adds least to the sum of the cubes of the
// loads, to the first order, as exact numbers say, up to the rounding of work.
func TestSuitedIsTheGreedyRule(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := func(label string, least, most int) int { return rapid.IntRange(least, most).Draw(r, label) }
		var v View
		for i, kind := range []string{"x", "y", "z"}[:n("kinds", 2, 3)] {
			c := of(string(rune('a'+i)), kind, int64(n("takes", 1, 40)), uint64(n("there", 0, 5000)))
			c.Row.Prefill1kNS, c.Row.Slots = int64(n("prefill", 0, 300))*ms, 100
			v = append(v, c)
		}
		g := &state.Generation{Predicted: uint64(n("tokens", 1, 5000)), Prefill: uint64(n("prompts", 0, 50_000))}
		at, _ := v.Choose(g, nil)
		added := func(i int) *big.Float {
			time, _ := own(v[i].Row, g, v.fleet().batch)
			work := new(big.Float).SetInt64(v[i].with(g))
			return work.Mul(work, work).Mul(work, new(big.Float).SetInt64(time))
		}
		for i := range v {
			if more := new(big.Float).Mul(added(i), big.NewFloat(1.01)); more.Cmp(added(at)) < 0 {
				t.Fatalf("worker %d was chosen, and %d adds less: %v and %v", at, i, added(at), added(i))
			}
		}
	})
}

// TestChooseTakesAnyNumbers: whatever workers are said to cost and trajectories to need, one that takes
// it is chosen, and its numbers can be.
func TestChooseTakesAnyNumbers(t *testing.T) {
	high := []uint64{0, 1, 2, math.MaxUint64 / 2, math.MaxUint64 - 1, math.MaxUint64}
	rapid.Check(t, func(r *rapid.T) {
		var v View
		for i := range rapid.IntRange(1, 6).Draw(r, "workers") {
			c := of(string(rune('a'+i)), rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(r, "kind"), rapid.SampledFrom([]int64{1, 60_000}).Draw(r, "token"))
			c.Row.Cost, c.Row.Degree = rapid.SampledFrom(high).Draw(r, "cost"), math.MaxUint32
			c.Row.Prefill1kNS, c.Row.Slots = rapid.SampledFrom([]int64{0, 3600_000 * ms}).Draw(r, "prefill"), 2
			c.Load = state.WorkerLoad{Trajectories: uint32(rapid.IntRange(0, 2).Draw(r, "there")), Predicted: state.LengthTokensMax, Prefill: state.LengthTokensMax}
			v = append(v, c)
		}
		tokens := rapid.SampledFrom([]uint64{0, 1, state.LengthTokensMax})
		g := &state.Generation{Predicted: tokens.Draw(r, "predicted"), Prefill: tokens.Draw(r, "prompts"), Trace: state.LengthTrace{Turns: uint32(rapid.IntRange(0, 1).Draw(r, "turns")), ContextTokens: state.LengthTokensMax}}
		a := &state.Affinity{CostPercent: rapid.SampledFrom([]uint32{0, 1, state.AffinityCostMax}).Draw(r, "weight"), SpillPercent: rapid.SampledFrom([]uint32{0, state.AffinitySpillMax}).Draw(r, "spill")}
		a.Hardware = rapid.SampledFrom([][]string{nil, {"x"}, {"z", "x"}}).Draw(r, "wanted")
		at, choice := v.Choose(g, a)
		takes := slices.ContainsFunc(v, func(c Candidate) bool { return c.Takes() })
		if takes != (at >= 0) || at >= 0 && (!v[at].Takes() || choice.Candidates == 0 || choice.WorkNS <= 0 || choice.NextNS < 0 || choice.PrefillPercent > 100) {
			t.Fatalf("worker %d, %+v of %+v", at, choice, v)
		}
	})
}
