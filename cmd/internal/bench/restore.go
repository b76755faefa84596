package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// RestoreResult is what a backup of a long queue costs, by the commands that an operator
// gives.
type RestoreResult struct {
	Actions int    `json:"actions"`
	Bytes   uint64 `json:"backup_bytes"`
	// SaveSeconds and RestoreSeconds are those of the commands, from start to end.
	SaveSeconds    float64 `json:"save_seconds"`
	RestoreSeconds float64 `json:"restore_seconds"`
	// AllSeconds is from the start of the restore until all servers have applied it.
	AllSeconds float64 `json:"all_servers_seconds"`
}

// Restore fills the queue of a cluster, backs it up, and restores the backup into another
// cluster of three servers.
func Restore(ctx context.Context, o QueueOptions, each func(queued int)) (*RestoreResult, error) {
	dir, err := os.MkdirTemp(o.Cluster.Dir, "rota-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "backup")
	r := &RestoreResult{Actions: o.Actions}
	if err := r.save(ctx, o, file, each); err != nil {
		return nil, err
	}
	h, err := startCluster(ctx, o.Cluster, 0)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	began := time.Now()
	if err := h.command(ctx, "operator", "snapshot", "restore", file); err != nil {
		return nil, err
	}
	r.RestoreSeconds = time.Since(began).Seconds()
	report, err := h.cluster.HashesEqual(ctx)
	if err != nil || !report.Equal {
		return nil, fmt.Errorf("the servers differ after the restore: %+v: %w", report, err)
	}
	r.AllSeconds = time.Since(began).Seconds()
	status, err := h.api.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	if status.QueuedActions < uint64(o.Actions) {
		return nil, fmt.Errorf("%d actions are queued after the restore of %d", status.QueuedActions, o.Actions)
	}
	return r, nil
}

// save fills a cluster and backs it up.
func (r *RestoreResult) save(ctx context.Context, o QueueOptions, file string, each func(int)) error {
	h, err := startHeld(ctx, o.Cluster)
	if err != nil {
		return err
	}
	defer h.stop()
	if err := h.fill(ctx, o, each); err != nil {
		return err
	}
	began := time.Now()
	if err := h.command(ctx, "operator", "snapshot", "save", file); err != nil {
		return err
	}
	r.SaveSeconds = time.Since(began).Seconds()
	info, err := os.Stat(file)
	if err == nil {
		r.Bytes = uint64(info.Size())
	}
	return err
}

// command runs rota against the cluster.
func (h *held) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, h.cluster.Servers[0].Binary, append([]string{"--addr", h.leader}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("rota %v: %w: %s", args, err, out)
	}
	return nil
}
