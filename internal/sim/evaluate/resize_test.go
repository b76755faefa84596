package evaluate

import (
	"testing"

	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// TestAResizeCostsTime: an action of 8 s with one core does not get on for 1 s after each resize,
// also if another one comes meanwhile, and holds its new cores from the beginning.
func TestAResizeCostsTime(t *testing.T) {
	const second = 1_000_000_000
	for _, c := range []struct {
		name       string
		at         []int64 // of resizes, in seconds
		to         []int64
		ends, busy int64
	}{
		{"none", nil, nil, 8, 8},
		{"one", []int64{4}, []int64{2}, 4 + 1 + 2, 4 + 3*2},
		{"there and back", []int64{2, 5}, []int64{2, 1}, 2 + 1 + 2 + 1 + 2, 2 + 3*2 + 3},
		{"two at once", []int64{4, 4}, []int64{4, 2}, 4 + 2 + 2, 4 + 4*2},
	} {
		w := &world{in: &Input{Latency: Latency{Resize: second}}}
		call := &call{Action: &workload.Action{Cost: []workload.Cost{{Resource: "cpu", Min: 1, Max: 4}}, Single: 8 * second}}
		ends := int64(0)
		r := &running{m: &machine{w: w}, c: call, units: sim.Width{Units: 1}, then: func(bool) { ends = w.loop.Now() }}
		r.compute()
		for i, at := range c.at {
			w.loop.After(at*second, func() { r.resize(sim.Width{Units: c.to[i]}) })
		}
		w.loop.Run(100 * second)
		if ends != c.ends*second || call.busy != c.busy*second || call.resizes != int64(len(c.at)) {
			t.Errorf("%s: it ends after %d ns, was busy for %d and resized %d times, want %d s and %d", c.name, ends, call.busy, call.resizes, c.ends, c.busy)
		}
	}
}

// TestResizesAreCharged: in a whole run, only policies that resize pay for it, and results say how
// often.
func TestResizesAreCharged(t *testing.T) {
	s := setup(t, "coding", append(rewardsOnly, "batch=6")...)
	free, fixed := run(t, s, "rota"), run(t, s, "fixed-2")
	s.Latency.Resize = 100_000_000
	charged, again := run(t, s, "rota"), run(t, s, "fixed-2")
	if charged.Resizes == 0 || charged.Resized == 0 || charged.Resized > charged.Actions || charged.ExecMean <= free.ExecMean {
		t.Errorf("%d of %d actions were resized, %d times, and took %v ms, without a cost %v ms",
			charged.Resized, charged.Actions, charged.Resizes, charged.ExecMean, free.ExecMean)
	}
	if again.Resizes != 0 || again.ACTMean != fixed.ACTMean {
		t.Errorf("what is not resized takes %v ms, without a cost %v ms", again.ACTMean, fixed.ACTMean)
	}
}
