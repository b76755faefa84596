package rollouts

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

func TestTheSameSeedGivesTheSameReport(t *testing.T) {
	var texts []string
	for _, parallel := range []int{1, 4} {
		var over atomic.Int64
		r, err := Compare(context.Background(), small(), Options{
			Policies: []string{"rota", "least-load"}, Axes: []Axis{{"skew", []string{"0", "100"}}, {"batch", []string{"4", "8"}}}, Seeds: 2, Parallel: parallel,
			Progress: func(done, all int64) {
				over.Add(1)
				if done > all || all != 16 {
					t.Errorf("%d of %d simulations", done, all)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
		if len(r.Points) != 4 || r.Points[1].At[1] != "8" || over.Load() != 16 || r.Points[3].Policies["rota"].Ratio.Median != 1 {
			t.Errorf("%s", text)
		}
	}
	if texts[0] != texts[1] {
		t.Error("more at the same time give another report")
	}
	other := small()
	other.Seed = 9
	if run1(t, other, "rota")[0].MakespanNS == run1(t, small(), "rota")[0].MakespanNS {
		t.Error("another seed gives the same step")
	}
}

func TestRanges(t *testing.T) {
	if r := rangeOf([]float64{3, 1, 2}); r != (Range{2, 1, 3}) {
		t.Error(r)
	}
	if r := rangeOf([]float64{4, 1, 3, 2}); r != (Range{2.5, 1, 4}) {
		t.Error(r)
	}
}

func TestWrongSetupsAreRefused(t *testing.T) {
	for what, c := range map[string]struct {
		change func(s *Setup)
		o      Options
	}{
		"no policy \"x\"":              {o: Options{Policies: []string{"x"}, Seeds: 1}},
		"is named twice":               {o: Options{Policies: []string{"rota", "rota"}, Seeds: 1}},
		"no policy is named":           {o: Options{Seeds: 1}},
		"seeds must be from":           {o: Options{Policies: []string{"rota"}}},
		"skew is swept twice":          {o: Options{Policies: []string{"rota"}, Seeds: 1, Axes: []Axis{{"skew", []string{"1"}}, {"skew", []string{"2"}}}}},
		"no setting \"x\"":             {o: Options{Policies: []string{"rota"}, Seeds: 1, Axes: []Axis{{"x", []string{"1"}}}}},
		"skew must be a whole number":  {o: Options{Policies: []string{"rota"}, Seeds: 1, Axes: []Axis{{"skew", []string{"301"}}}}},
		"less than a group":            {change: func(s *Setup) { s.Batch, s.Workers = 1, 1 }},
		"above 65536 trajectories":     {change: func(s *Setup) { s.Batch, s.Workers = 4096, 256 }},
		"not a power of two":           {change: func(s *Setup) { s.Degree = 3 }},
		"model \"70b\" is not one":     {change: func(s *Setup) { s.Model = "70b" }},
		"task \"chess\" is not one of": {change: func(s *Setup) { s.Task = "chess" }},
		"slots must be from 1":         {change: func(s *Setup) { s.Slots = 0 }},
	} {
		s := small()
		if c.change != nil {
			c.change(&s)
			c.o = Options{Policies: []string{"rota"}, Seeds: 1}
		}
		if _, err := Compare(context.Background(), s, c.o); !errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want one with %q", err, what)
		}
	}
	if _, err := ParseAxis("skew"); !errors.Is(err, ErrSetup) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Compare(ctx, small(), Options{Policies: []string{"rota"}, Seeds: 1}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
