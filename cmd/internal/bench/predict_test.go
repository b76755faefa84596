package bench

import (
	"math"
	"testing"
	"time"
)

// TestPredict: one GPU and two teachers that are asked so rarely that no request waits. A request
// takes its service and, where the other teacher was asked before, a set-up; in the static
// assignment it takes twice its service.
func TestPredict(t *testing.T) {
	b := &teachers{o: EnginesOptions{Rounds: 2, Requests: 50, Teachers: 2, GPUs: 1, Load: 0.002, Service: 100 * time.Millisecond, Seed: 1}}
	p, err := b.predict(t.Context(), 100*time.Millisecond, 40*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	switches, last := 0, -1
	for round := range 2 {
		for _, r := range b.requests(round) {
			if r.teacher != last && last >= 0 {
				switches++
			}
			last = r.teacher
		}
	}
	overhead := 2*1.3 + 2.7 // two commits and a dispatch of evaluate.DefaultLatency
	if want := 100 + overhead + 40*float64(switches)/100; math.Abs(p.TurnsMS-want) > 0.5 {
		t.Errorf("turns take %.2f ms, want %.2f", p.TurnsMS, want)
	}
	if math.Abs(p.StaticMS-200) > 0.5 || math.Abs(p.Ratio.Median-p.StaticMS/p.TurnsMS) > 0.1 {
		t.Errorf("%+v, want 200 ms in the static assignment", p)
	}
	again, err := b.predict(t.Context(), 100*time.Millisecond, 40*time.Millisecond)
	if err != nil || *again != *p {
		t.Errorf("predicted %+v and then %+v, %v", p, again, err)
	}
}
