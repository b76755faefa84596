package runtime_test

import (
	"testing"
	"time"

	"rota/agent/plan"
)

// TestMeasure: what runs of a trajectory is measured, nothing else, and what is frozen as well.
func TestMeasure(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		c, count := counted(t, mode)
		if uses, err := c.Measure(t.Context(), 5); err != nil || len(uses) != 0 {
			t.Fatalf("without an action: %v, %v", uses, err)
		}
		other, _ := counting(t, key(2))
		mine, counts := counting(t, key(3))
		other.Trajectory, mine.Trajectory = 6, 5
		start(t, c, other)
		start(t, c, mine)
		waitFor(t, "it to use time and memory", func() bool {
			uses, err := c.Measure(t.Context(), 5)
			return err == nil && len(uses) == 1 && uses[0].Key == key(3) && uses[0].CPU >= 50*time.Millisecond && uses[0].Memory > 10_000
		})
		if counts() == 0 || count() == 0 {
			t.Error("what is measured does not run")
		}
		if c.Describe().Resizes {
			freeze(t, c, key(3), true)
			frozen, err := c.Measure(t.Context(), 5)
			if err != nil || len(frozen) != 1 || frozen[0].Memory == 0 {
				t.Errorf("frozen: %+v, %v", frozen, err)
			}
		}
		if err := c.Kill(t.Context(), key(3), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		nextExit(t, c)
		if uses, err := c.Measure(t.Context(), 5); err != nil || len(uses) != 0 {
			t.Errorf("after its end: %v, %v", uses, err)
		}
	})
}
