package evaluate

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestEstimatesOfWhatIsKnownAreExact: where each action takes as long as its client says, as
// many cores as all others and no time to decide, the state machine does what was estimated,
// to the nanosecond that is lost by rounding. The state machine is the oracle: it decides
// each start when it comes to that, and knows nothing of estimates.
func TestEstimatesOfWhatIsKnownAreExact(t *testing.T) {
	waited := 0
	rapid.Check(t, func(r *rapid.T) {
		num := func(name string, low, high int) string {
			return fmt.Sprintf("%s=%d", name, rapid.IntRange(low, high).Draw(r, name))
		}
		sets := []string{num("batch", 2, 24), num("nodes", 1, 2), "cores=" + rapid.SampledFrom([]string{"4", "6", "8", "12"}).Draw(r, "cores"), num("seed", 0, 1000), "known=profiles",
			"tasks.coding.rewards.pytest.duration={\"uniform\":[\"1s\",\"60s\"]}"}
		for _, set := range rewardsOnly {
			if strings.HasPrefix(set, "tasks.coding.") && !strings.Contains(set, "pytest.duration") {
				sets = append(sets, set)
			}
		}
		// They come at different times, so some have run for a while.
		sets = append(sets, "tasks.coding.start={\"uniform\":[\"0s\",\"90s\"]}")
		s := setup(t, "coding", sets...)
		s.Estimates = true
		result := must(Run(context.Background(), must(s.Input()), fmt.Sprintf("fixed-%d", rapid.IntRange(1, 4).Draw(r, "width"))))
		for _, f := range result.forecasts {
			if f.estimate.Unknown != "" || f.estimate.P90NS < f.estimate.P50NS || f.estimate.P90NS > f.estimate.P50NS*5/4 {
				r.Fatalf("%+v, and all is known", f)
			}
			if off := f.estimate.P50NS - max(0, f.waited); max(off, -off) > 200 {
				r.Fatalf("waited for %d ns, estimated %d", f.waited, f.estimate.P50NS)
			}
			if f.waited > 0 {
				waited++
			}
		}
	})
	if waited < 100 {
		t.Errorf("%d actions waited: too few to say anything", waited)
	}
}

// TestEstimatesCoverWhatIsLearned: with what classes learn, about half of those that wait do
// so for at most p50, and most for at most p90.
func TestEstimatesCoverWhatIsLearned(t *testing.T) {
	s := setup(t, "coding", "batch=64", "steps=1", "nodes=1", "cores=8", "known=classes")
	s.Estimates = true
	r := run(t, s, "fixed-4")
	e := r.Estimates
	if e.Actions != r.Actions || e.Waited < e.Actions/4 || e.Known < e.Waited*9/10 {
		t.Fatalf("%+v", e)
	}
	if e.WithinP50 < 250_000 || e.WithinP50 > 750_000 || e.WithinP90 < 700_000 {
		t.Errorf("%+v", e)
	}
	s.Estimates = false
	if run(t, s, "fixed-4").Estimates != nil {
		t.Error("estimates that nobody asked for")
	}
}

func TestForecastsOfNothing(t *testing.T) {
	for want, f := range map[string]forecasts{
		"<nil>": nil,
		"&{Actions:1 Waited:0 Known:0 WaitMean:0 Error:0 WithinP50:0 WithinP90:0}": {{asked: true}},
	} {
		if got := fmt.Sprintf("%+v", f.result()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
