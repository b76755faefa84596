package bench

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"

	"rota/cmd/internal/rotatest"
)

// Both policies of a round see the same requests, another round others. The first teacher is
// asked most.
func TestRequests(t *testing.T) {
	b := &teachers{o: EnginesOptions{Requests: 4000, Teachers: 9, GPUs: 4, Load: 0.25, Zipf: 1, Service: time.Second, Seed: 1}}
	list := b.requests(0)
	if !reflect.DeepEqual(list, b.requests(0)) || reflect.DeepEqual(list, b.requests(1)) {
		t.Error("rounds are drawn anew each time, or are all the same")
	}
	asked := make([]int, 9)
	for _, r := range list {
		asked[r.teacher]++
	}
	if share := float64(asked[0]) / 4000; share < 0.33 || share > 0.38 || asked[8] < 120 || asked[8] > 200 {
		t.Errorf("asked %v; Zipf gives the first 35 %% and the last 4 %%", asked)
	}
	if seconds := list[len(list)-1].after.Seconds(); seconds < 3720 || seconds > 4280 {
		t.Errorf("4000 requests in %.0f s; a quarter of four GPUs is one a second", seconds)
	}
}

// TestShares: nine teachers share four GPUs, and the least popular ones the one with three.
func TestShares(t *testing.T) {
	b := &teachers{o: EnginesOptions{Teachers: 9, GPUs: 4}}
	var got []int
	for i := range 9 {
		got = append(got, b.sharers(i))
	}
	if want := []int{2, 2, 2, 3, 2, 2, 2, 3, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("shared by %v, want %v", got, want)
	}
}

// Real engines on a real cluster and beside it: all requests are answered, and engines slept.
func TestEngines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	o := EnginesOptions{Cluster: ClusterOptions{Binary: rotatest.Binary(t), Dir: t.TempDir()},
		Rounds: 2, Requests: 6, Teachers: 3, GPUs: 2, Load: 0.5, Zipf: 1, Service: 20 * time.Millisecond, Start: 20 * time.Millisecond, Seed: 1}
	var turns []string
	r, err := Engines(ctx, o, func(_ int, policy string, meanMS float64) {
		turns = append(turns, policy)
		if meanMS < 20 {
			t.Errorf("%s: a mean of %f ms, and a request takes 20 ms", policy, meanMS)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"turns", "static", "static", "turns"}; !reflect.DeepEqual(turns, want) {
		t.Errorf("turns %q, want %q", turns, want)
	}
	if len(r.Policies) != 2 || r.Policies[0].Ratio.Median != 1 || r.Policies[1].Ratio.Min <= 0 || len(r.Policies[1].RoundsMS) != 2 {
		t.Errorf("%+v", r.Policies)
	}
	if p := r.Predicted; !p.Simulated || p.ServiceMS < 20 || math.Abs(p.SetUpMS-r.SetUpMS) > 0.01 || p.TurnsMS < 20 || p.StaticMS < 20 ||
		math.Abs(p.Ratio.Median*(1+p.Off)-r.Policies[1].Ratio.Median) > 1e-9 {
		t.Errorf("predicted %+v of %+v", p, r)
	}
	if r.Starts < 3 || r.Sleeps == 0 || r.Failures != 0 || r.SetUpMS <= 0 || !r.Simulated || r.Noise.Samples != 5 {
		t.Errorf("%+v", r)
	}
}
