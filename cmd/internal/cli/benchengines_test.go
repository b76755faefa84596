package cli

import (
	"strings"
	"testing"
	"time"

	"rota/cmd/internal/bench"
	"rota/cmd/internal/spin"
)

func TestWriteEngines(t *testing.T) {
	var out strings.Builder
	writeEngines(&out, &bench.EnginesResult{
		Rounds: 3, Requests: 200, Teachers: 9, GPUs: 4, Load: 0.25, ServiceMS: 100, Starts: 9, Wakes: 70, Sleeps: 75, SetUpMS: 81,
		Policies: []bench.PolicyTimes{
			{Policy: "turns", MeanMS: 160.4, P50MS: 130, P99MS: 400, Ratio: bench.Spread{Median: 1, Min: 1, Max: 1}},
			{Policy: "static", MeanMS: 320, P50MS: 250, P99MS: 900, Ratio: bench.Spread{Median: 2.1, Min: 1.8, Max: 2.5}},
		},
		Predicted: &bench.Prediction{ServiceMS: 101, SetUpMS: 81, TurnsMS: 150, StaticMS: 330, Ratio: bench.Spread{Median: 2.2, Min: 2, Max: 2.4}, Off: -0.045},
		Noise:     spin.Noise{Samples: 7, MeanMS: 99, CV: 0.1, Slowest: 1.4},
	})
	for _, want := range []string{
		"static  320      250     900     2.10   1.80 to 2.50",
		"9 simulated teachers on 4 simulated GPUs; rounds: 3, of 200 requests of 100 ms: load 0.25",
		"engines were started 9, woken 70 and put to sleep 75 times, and failed 0 times; a set-up took 81 ms",
		"requests of 101.0 ms and set-ups of 81.0 ms as measured: turns 150 ms, static 330 ms, ratio 2.20 (2.00 to 2.40); the measured ratio is 4 % below",
		"a coefficient of variation of 10 %",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestCheckEngines(t *testing.T) {
	good := bench.EnginesOptions{Rounds: 1, Requests: 1, Teachers: 2, GPUs: 1, Load: 0.5, Service: time.Second}
	if err := checkEngines(&good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*bench.EnginesOptions){
		"rounds":   func(o *bench.EnginesOptions) { o.Rounds = 0 },
		"gpus":     func(o *bench.EnginesOptions) { o.GPUs = 3 },
		"teachers": func(o *bench.EnginesOptions) { o.Teachers = 0 },
		"load":     func(o *bench.EnginesOptions) { o.Load = 0 },
		"wake":     func(o *bench.EnginesOptions) { o.Wake = -1 },
	} {
		bad := good
		change(&bad)
		if err := checkEngines(&bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
