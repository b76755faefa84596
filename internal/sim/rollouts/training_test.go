package rollouts

import (
	"context"
	"errors"
	"testing"
)

// TestTrainingOverlaps: a synchronous step takes its rollout, training and update; with a bound,
// steps are shorter, though fewer GPUs generate.
func TestTrainingOverlaps(t *testing.T) {
	s := small()
	s.Workers, s.Batch, s.Steps = 4, 12, 4
	for _, name := range []string{"least-load", "autellix"} {
		r, err := Train(context.Background(), s, policy(t, name), Loop{1, 1})
		if err != nil {
			t.Fatal(err)
		}
		p, err := profileOf(s.Model, 1)
		if err != nil {
			t.Fatal(err)
		}
		if want := r.RolloutNS + r.TrainNS + p.UpdateNS; r.SyncNS < want*6/10 || r.SyncNS > want*14/10 {
			t.Errorf("%s: a synchronous step takes %d ns, want about %d", name, r.SyncNS, want)
		}
		if r.AsyncNS >= r.SyncNS || r.AsyncNS < 4*r.TrainNS || r.Begun == 0 || r.Aborted > r.Begun {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, c := range []struct {
		policy string
		loop   Loop
	}{{"rota", Loop{1, 1}}, {"least-load", Loop{1, 4}}, {"least-load", Loop{1, 0}}, {"least-load", Loop{0, 1}}} {
		if _, err := Train(context.Background(), s, policy(t, c.policy), c.loop); !errors.Is(err, ErrSetup) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestTrainingOfASweep(t *testing.T) {
	s := small()
	s.Workers, s.Batch = 4, 4
	all, err := CompareTraining(context.Background(), s, Loop{1, 2}, Options{Policies: []string{"least-load"}, Seeds: 2, Axes: []Axis{{"skew", []string{"0", "50"}}}})
	if err != nil || len(all) != 2 || all[1].At[0] != "50" || len(all[0].Seeds) != 2 || all[0].Ratio.Least > all[0].Ratio.Median {
		t.Fatalf("%+v, %v", all, err)
	}
	again, err := CompareTraining(context.Background(), s, Loop{1, 2}, Options{Policies: []string{"least-load"}, Seeds: 2})
	if err != nil || len(again) != 1 {
		t.Fatal(again, err)
	}
	for _, o := range []Options{{Policies: []string{"least-load", "autellix"}, Seeds: 1}, {Policies: []string{"least-load"}}, {Policies: []string{"x"}, Seeds: 1}} {
		if _, err := CompareTraining(context.Background(), s, Loop{1, 2}, o); !errors.Is(err, ErrSetup) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
