package bench

import (
	"context"
	"fmt"
	"time"
)

// FailoverResult is how long kills of the leader stopped decisions.
type FailoverResult struct {
	Kills int     `json:"kills"`
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
	// AllMS are all of them in order.
	AllMS []float64 `json:"all_ms"`
}

// Failover kills the leader again and again. Each time the one before is back
// and in step before the next is killed.
func Failover(ctx context.Context, o ClusterOptions, kills int, each func(i int, took time.Duration)) (*FailoverResult, error) {
	h, err := startCluster(ctx, o, 1)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	var all []time.Duration
	r := &FailoverResult{Kills: kills}
	for i := range kills {
		f, err := h.cluster.KillLeader(ctx, h.api)
		if err != nil {
			return nil, err
		}
		each(i, f.Took)
		all = append(all, f.Took)
		r.AllMS = append(r.AllMS, ms(f.Took))
		if err := f.Killed.Start(); err != nil {
			return nil, err
		}
		if err := h.settle(ctx); err != nil {
			return nil, fmt.Errorf("after kill %d: %w", i+1, err)
		}
	}
	r.P50MS, r.P99MS, r.MaxMS = quantiles(all)
	return r, nil
}

// settle returns once all servers are up and hold the same state.
func (h *held) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := h.cluster.WaitReady(ctx); err != nil {
		return err
	}
	for {
		report, err := h.cluster.HashesEqual(ctx)
		if err == nil && report.Equal {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the servers did not come to the same state: %+v: %w", report, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
