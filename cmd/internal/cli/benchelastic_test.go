package cli

import (
	"strings"
	"testing"
	"time"

	"rota/cmd/internal/bench"
	"rota/cmd/internal/spin"
)

func TestWriteElastic(t *testing.T) {
	var out strings.Builder
	writeElastic(&out, &bench.ElasticResult{
		Cores: 2, Rounds: 3, Suites: 20, Load: 0.6, WorkMS: 600, GapMS: 500,
		Policies: []bench.ElasticPolicy{
			{PolicyTimes: bench.PolicyTimes{Policy: "resized", MeanMS: 800.4, P50MS: 700, P99MS: 2000, Ratio: bench.Spread{Median: 1, Min: 1, Max: 1}}, Resizes: 1.25, Switches: 90},
			{PolicyTimes: bench.PolicyTimes{Policy: "shares", MeanMS: 900, P50MS: 800, P99MS: 2500, Ratio: bench.Spread{Median: 1.125, Min: 0.9, Max: 1.5}}},
		},
		Noise:  spin.Noise{Samples: 13, MeanMS: 99, CV: 0.1, Slowest: 1.4},
		Resize: bench.ResizeCost{Resizes: 100, P50US: 310, P99US: 900, Switches: 2.5},
	})
	for _, want := range []string{
		"resized  800      700     2000    1.00   1.00 to 1.00  1.2      90",
		"shares   900      800     2500    1.12   0.90 to 1.50  -        -",
		"2 cores; rounds: 3, of 20 suites; 600 ms of work each on average, every 500 ms: load 0.60",
		"a coefficient of variation of 10 %",
		"a resize takes 310 µs (p99 900 µs) and adds 2.5 context switches (100 resizes)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestCheckElastic(t *testing.T) {
	good := bench.ElasticOptions{Rounds: 1, Suites: 1, Load: 0.5, Work: time.Second, Serial: 0.1}
	if err := checkElastic(&good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*bench.ElasticOptions){
		"rounds": func(o *bench.ElasticOptions) { o.Rounds = 0 },
		"suites": func(o *bench.ElasticOptions) { o.Suites = -1 },
		"load":   func(o *bench.ElasticOptions) { o.Load = 0 },
		"work":   func(o *bench.ElasticOptions) { o.Work = 0 },
		"serial": func(o *bench.ElasticOptions) { o.Serial = 1.1 },
	} {
		bad := good
		change(&bad)
		if err := checkElastic(&bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
