package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// QueueOptions say how long a queue to hold.
type QueueOptions struct {
	Cluster ClusterOptions
	Actions int
	Size    int // bytes of an encoded action
	Batch   int
}

// QueueResult is what a long queue costs.
type QueueResult struct {
	Actions int     `json:"actions"`
	Seconds float64 `json:"submit_seconds"`
	// RSSBytes and RSSPeakBytes are of each server.
	RSSBytes     []uint64 `json:"rss_bytes"`
	RSSPeakBytes []uint64 `json:"rss_peak_bytes"`
	// SnapshotMS is how long the leader took to write a snapshot.
	SnapshotMS    float64 `json:"snapshot_ms"`
	SnapshotBytes uint64  `json:"snapshot_bytes"`
	// Commit times of single submissions, made all the time, without a snapshot
	// and during it.
	CommitP50MS         float64 `json:"commit_p50_ms"`
	CommitMaxMS         float64 `json:"commit_max_ms"`
	SnapshotCommitP50MS float64 `json:"snapshot_commit_p50_ms"`
	SnapshotCommitMaxMS float64 `json:"snapshot_commit_max_ms"`
}

// Queue fills the queue of a cluster whose cores are all held, then looks at its
// servers and at what a snapshot of the leader does to commits.
func Queue(ctx context.Context, o QueueOptions, each func(queued int)) (*QueueResult, error) {
	h, err := startHeld(ctx, o.Cluster)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	r := &QueueResult{Actions: o.Actions}
	began := time.Now()
	if err := h.fill(ctx, o, each); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(began).Seconds()
	for _, p := range h.cluster.Servers {
		rss, peak, err := residentBytes(p.Pid())
		if err != nil {
			return nil, err
		}
		r.RSSBytes, r.RSSPeakBytes = append(r.RSSBytes, rss), append(r.RSSPeakBytes, peak)
	}
	return r, h.snapshotStall(ctx, o, r)
}

func (h *held) fill(ctx context.Context, o QueueOptions, each func(int)) error {
	spec := paddedSpec(o.Size)
	for n := 0; n < o.Actions; {
		batch := make([]*rotav1.ActionSpec, min(o.Batch, o.Actions-n))
		for i := range batch {
			batch[i] = spec
		}
		if _, err := h.api.Submit(ctx, batch...); err != nil {
			return fmt.Errorf("with %d actions queued: %w", n, err)
		}
		n += len(batch)
		each(n)
	}
	return nil
}

// snapshotStall commits single submissions all the time: a while without a
// snapshot, then during one.
func (h *held) snapshotStall(ctx context.Context, o QueueOptions, r *QueueResult) error {
	leader, err := client.New(client.Config{Addrs: []string{h.leader}})
	if err != nil {
		return err
	}
	defer leader.Close()
	const quiet = 2 * time.Second
	waited := make(chan error, 1)
	go func() { time.Sleep(quiet); waited <- nil }()
	before, err := h.commitUntil(ctx, o.Size, waited)
	if err != nil {
		return err
	}
	taken := make(chan error, 1)
	began := time.Now()
	go func() {
		resp, err := leader.Operator.TakeSnapshot(ctx, &rotav1.TakeSnapshotRequest{})
		r.SnapshotMS, r.SnapshotBytes = ms(time.Since(began)), resp.GetSizeBytes()
		taken <- err
	}()
	during, err := h.commitUntil(ctx, o.Size, taken)
	r.CommitP50MS, _, r.CommitMaxMS = quantiles(before)
	r.SnapshotCommitP50MS, _, r.SnapshotCommitMaxMS = quantiles(during)
	return err
}

// commitUntil commits one submission after the other until the end of something
// else, and returns how long each took.
func (h *held) commitUntil(ctx context.Context, size int, end <-chan error) ([]time.Duration, error) {
	spec := paddedSpec(size)
	var took []time.Duration
	for {
		select {
		case err := <-end:
			return took, err
		default:
		}
		began := time.Now()
		if _, err := h.api.Submit(ctx, spec); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
}

// residentBytes reads the resident memory of a process, now and at its peak.
func residentBytes(pid int) (now, peak uint64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseUint(f[1], 10, 64) // other lines are no numbers
		switch f[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return now, peak, nil
}
