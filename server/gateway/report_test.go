package gateway

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
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

// TestALostReportSaysAgainWhoGenerates, and which workers have failed, and counts nothing twice.
func TestALostReportSaysAgainWhoGenerates(t *testing.T) {
	lost := 0
	r := newReporter(func(context.Context, *rotav1.ReportGenerationsRequest) error {
		return fmt.Errorf("no answer: %w", client.ErrUnknownOutcome)
	}, &Config{ReportInterval: time.Hour, ReportTurns: 1 << 20, Logger: hclog.NewNullLogger()}, func() { lost++ })
	r.begins(7, "w")
	r.ends(7, "w", portion{tokens: 5, ended: true, generating: time.Second})
	r.failed("w", "it is down")
	if r.deliver(t.Context(), r.take(true)) || lost != 1 {
		t.Errorf("%d reports are lost", lost)
	}
	again := r.take(false)
	if len(again.GetGenerations()) != 1 || len(again.Workers) != 1 {
		t.Fatalf("said again: %v", again)
	}
	if g := again.Generations[0]; g.TrajectoryId != 7 || g.Worker != "w" || g.Generating || g.Turns+uint32(g.OutputTokens) > 0 || g.GenerateTime != nil {
		t.Errorf("said again: %v", g)
	}
}
