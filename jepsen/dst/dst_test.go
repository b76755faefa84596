package dst

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestSeeds(t *testing.T) {
	n, _ := strconv.ParseUint(os.Getenv("N"), 10, 64)
	from, _ := strconv.ParseUint(os.Getenv("FROM"), 10, 64)
	start := time.Now()
	var sim time.Duration
	actions, faults := 0, 0
	hap := map[Kind]int{}
	for seed := from; seed < from+n; seed++ {
		o := Run(seed, Options{Length: 60 * time.Minute})
		sim += o.Simulated
		actions += o.Actions
		faults += o.Faults
		for k, v := range o.Happened {
			hap[k] += v
		}
		if o.Violation != nil {
			t.Errorf("seed %d: %v", seed, o.Violation)
		}
		if o.Void() != "" {
			t.Logf("seed %d: %s", seed, o.Void())
		}
	}
	t.Logf("%v simulated, speed %.0f, %.0f actions/h, %.0f faults/h %v", sim, sim.Seconds()/time.Since(start).Seconds(), float64(actions)/sim.Hours(), float64(faults)/sim.Hours(), hap)
}
