package dst

import (
	"testing"
	"time"
)

func TestSeeds(t *testing.T) {
	for seed := uint64(1); seed <= 12; seed++ {
		o := Run(seed, Options{Length: 60 * time.Minute})
		t.Logf("seed %d: %v simulated, %d actions, %d executions, %d entries, %d faults, %d expiries, %d elections", seed, o.Simulated, o.Actions, o.Executions, o.Entries, o.Faults, o.Expiries, o.Elections)
		if o.Violation != nil {
			t.Errorf("seed %d: %v", seed, o.Violation)
		}
	}
}
