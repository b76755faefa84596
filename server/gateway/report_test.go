package gateway

import (
	"fmt"
	"testing"
	"time"
)

// TestReportsAreNoLargerThanServersTake: what many trajectories generated, and many workers that
// failed, travel in several reports, and all of it arrives.
func TestReportsAreNoLargerThanServersTake(t *testing.T) {
	const generations, failures = 2500, 150
	r := newReporter(nil, &Config{ReportInterval: time.Hour, ReportTurns: 1 << 20}, nil)
	for i := range uint64(generations) {
		r.begins(i+1, "w")
		r.ends(i+1, "w", portion{tokens: 1, ended: true})
	}
	for i := range failures {
		r.failed(fmt.Sprint("w", i), "it is down")
	}
	trajectories, workers := map[uint64]bool{}, map[string]bool{}
	for req := r.take(true); req != nil; req = r.take(true) {
		if len(req.Generations) > 1024 || len(req.Workers) > 64 {
			t.Errorf("a report of %d trajectories and %d workers", len(req.Generations), len(req.Workers))
		}
		for _, g := range req.Generations {
			trajectories[g.TrajectoryId] = true
		}
		for _, w := range req.Workers {
			workers[w.Worker] = true
		}
	}
	if len(trajectories) != generations || len(workers) != failures {
		t.Errorf("%d trajectories and %d workers were reported", len(trajectories), len(workers))
	}
}
