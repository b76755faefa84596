package agent

import (
	"context"
	"errors"
	"time"

	"rota/agent/layers"
	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

const (
	// snapshotMessageMax is how many bytes of its message a report has.
	snapshotMessageMax = 512
	// snapshotAgain is after what time a snapshot is tried again that waits for an action.
	snapshotAgain = 100 * time.Millisecond
)

// review does what there is to do, and returns what the cluster does not know. What may take long is a
// job, whose end has everything reviewed again. So is it soon if something waits.
func (f *forks) review(ctx context.Context, isOpen func(uint64) bool) (reports []*rotav1.SnapshotReport, again bool) {
	f.mu.Lock()
	desired := f.desired
	f.mu.Unlock()
	if desired == nil || ctx.Err() != nil {
		return nil, false
	}
	f.forget(desired)
	began, keep := map[uint64]uint64{}, map[uint64]bool{}
	for _, k := range desired.GetForks() {
		began[k.GetTrajectoryId()] = k.GetSnapshotId()
		if f.store == nil || !isOpen(k.GetTrajectoryId()) {
			continue
		}
		needs, waits := f.reviewFork(ctx, k)
		if needs {
			keep[k.GetSnapshotId()] = true // a deleted one stays until what began with it has it
		}
		again = again || waits
	}
	for _, d := range desired.GetSnapshots() {
		id := d.GetSnapshotId()
		switch d.GetState() {
		case rotav1.SnapshotState_SNAPSHOT_STATE_CREATING, rotav1.SnapshotState_SNAPSHOT_STATE_READY:
			keep[id] = true
		case rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING:
			if keep[id] {
				continue
			}
		}
		report, waits := f.reviewOne(ctx, d, began[d.GetTrajectoryId()], d.GetTrajectoryOpen() && isOpen(d.GetTrajectoryId()))
		again = again || waits
		if report != nil {
			report.SnapshotId = id
			reports = append(reports, report)
		}
	}
	f.removeOthers(keep)
	f.sweep(ctx)
	return reports, again
}

// forget ends what concerns neither a trajectory nor a snapshot that the cluster wants.
func (f *forks) forget(desired *rotav1.NodeSnapshots) {
	wanted := map[forkJob]bool{{kind: sweepJob}: true, {kind: removeJob}: true}
	for _, k := range desired.GetForks() {
		wanted[forkJob{beginJob, k.GetTrajectoryId()}] = true
	}
	for _, d := range desired.GetSnapshots() {
		wanted[forkJob{takeJob, d.GetSnapshotId()}] = true
		wanted[forkJob{countJob, d.GetSnapshotId()}] = true
	}
	f.jobs.keep(wanted)
	f.said.keep(wanted)
	f.committed.keep(wanted)
}

// reviewFork has a trajectory begin with its snapshot. It needs that until it has begun.
func (f *forks) reviewFork(ctx context.Context, k *rotav1.Fork) (needs, waits bool) {
	job := forkJob{beginJob, k.GetTrajectoryId()}
	began, err := f.store.Began(k.GetTrajectoryId())
	if err == nil && !began {
		var over bool
		over, _, err = f.jobs.do(ctx, job, func(ctx context.Context) (uint64, error) {
			return 0, f.begin(ctx, k.GetTrajectoryId(), k.GetSnapshotId())
		})
		if !over {
			return true, false
		}
	}
	if ctx.Err() != nil {
		return true, false
	}
	f.warn(job, err, "a trajectory cannot begin with its snapshot", "trajectory", k.GetTrajectoryId(), "snapshot", k.GetSnapshotId())
	// What fails otherwise is tried again with the next action or the next list of what is open.
	return err != nil && !errors.Is(err, layers.ErrNoSnapshot), errors.Is(err, errNoSupervisor)
}

// reviewOne returns what is to be said of a snapshot; nil: nothing.
func (f *forks) reviewOne(ctx context.Context, d *rotav1.DesiredSnapshot, began uint64, open bool) (report *rotav1.SnapshotReport, waits bool) {
	id := d.GetSnapshotId()
	job := forkJob{takeJob, id}
	switch d.GetState() {
	case rotav1.SnapshotState_SNAPSHOT_STATE_CREATING:
		over, _, err := f.jobs.do(ctx, job, func(ctx context.Context) (uint64, error) { return 0, f.take(ctx, d, began, open) })
		switch {
		case !over || ctx.Err() != nil:
			return nil, false
		case err == nil:
			f.said.news(job, nil)
			return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_READY}, false
		case errors.Is(err, layers.ErrInUse):
			f.warn(job, err, "a snapshot waits until something else on the machine leaves the directory of the trajectory; fuser -vm shows what uses it",
				"snapshot", id, "trajectory", d.GetTrajectoryId())
			return nil, true
		case errors.Is(err, errRuns), errors.Is(err, errNoSupervisor), errors.Is(err, runtime.ErrLost):
			return nil, true
		}
		f.warn(job, err, "a snapshot failed", "snapshot", id, "trajectory", d.GetTrajectoryId())
		return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_FAILED, Message: short(err.Error(), snapshotMessageMax)}, false
	case rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING:
		return f.reviewRemoved(id), false
	case rotav1.SnapshotState_SNAPSHOT_STATE_READY:
		return f.reviewReady(ctx, forkJob{countJob, id}, d.GetCounted()), false
	}
	return nil, false
}

// reviewRemoved forgets a snapshot. Its files go later.
func (f *forks) reviewRemoved(id uint64) *rotav1.SnapshotReport {
	taken, counted := f.jobs.stop(forkJob{takeJob, id}), f.jobs.stop(forkJob{countJob, id})
	if !taken || !counted {
		return nil // it would come back
	}
	if f.store != nil {
		if err := f.store.Forget(id); err != nil {
			f.warn(forkJob{takeJob, id}, err, "a snapshot cannot be removed yet", "snapshot", id)
			return nil
		}
		f.dueSweep()
	}
	return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_LOST}
}

// reviewReady finds out whether a snapshot is still there, and counts its bytes.
func (f *forks) reviewReady(ctx context.Context, job forkJob, counted bool) *rotav1.SnapshotReport {
	has, err := f.has(job.id)
	switch {
	case errors.Is(err, layers.ErrDamaged):
		return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_LOST, Message: short(err.Error(), snapshotMessageMax)}
	case err != nil:
		f.warn(job, err, "whether there is a snapshot cannot be told; trying on", "snapshot", job.id)
		return nil
	case !has:
		return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_LOST, Message: "the node does not have it any more"}
	case counted:
		f.said.news(job, nil)
		return nil
	}
	over, bytes, err := f.jobs.do(ctx, job, func(ctx context.Context) (uint64, error) { return f.bytes(ctx, job.id) })
	if !over || ctx.Err() != nil {
		return nil
	}
	f.warn(job, err, "the bytes of a snapshot cannot be counted; trying on", "snapshot", job.id)
	if err != nil {
		return nil
	}
	return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_READY, Bytes: max(1, bytes)}
}

// bytes counts what a snapshot takes on disk, with the root file system of its container.
func (f *forks) bytes(ctx context.Context, id uint64) (uint64, error) {
	bytes, root, err := f.store.Bytes(ctx, id)
	if err != nil || root == "" || f.sandboxes == nil {
		return bytes, err
	}
	ofRoot, err := f.sandboxes.RootBytes(ctx, root)
	return bytes + ofRoot, err
}

// removeOthers forgets snapshots that the cluster does not know, or does not want.
func (f *forks) removeOthers(keep map[uint64]bool) {
	if f.store == nil {
		return
	}
	taken, err := f.store.Snapshots()
	for _, id := range taken {
		if !keep[id] {
			err = errors.Join(err, f.store.Forget(id))
			f.dueSweep()
		}
	}
	f.warn(forkJob{kind: removeJob}, err, "snapshots that the cluster does not know are not removed; trying on")
}

func (f *forks) dueSweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweepDue = true
}

// sweep removes what nothing has any more, if there may be something.
func (f *forks) sweep(ctx context.Context) {
	job := forkJob{kind: sweepJob}
	if f.store == nil {
		return
	}
	runs := f.jobs.has(job)
	f.mu.Lock()
	due := f.sweepDue
	f.sweepDue = due && runs // otherwise it begins now
	f.mu.Unlock()
	if !due && !runs {
		return
	}
	over, _, err := f.jobs.do(ctx, job, func(ctx context.Context) (uint64, error) { return 0, f.sweepNow(ctx) })
	if !over || ctx.Err() != nil {
		return
	}
	f.warn(job, err, "what no snapshot and no trajectory has is not removed; trying on")
	if due {
		f.poke()
	}
}

func (f *forks) sweepNow(ctx context.Context) error {
	err := f.store.Sweep()
	if f.sandboxes != nil {
		err = errors.Join(err, f.sandboxes.KeepRoots(ctx, f.store.Roots))
	}
	return err
}

// warn says what troubles something, once. Without an error it does not any more.
func (f *forks) warn(job forkJob, err error, what string, args ...any) {
	if f.said.news(job, err) {
		f.log.Warn(what, append(args, "error", err)...)
	}
}

// keepForks does what the cluster wants of snapshots, and tells it, for as long as a session.
func (a *agent) keepForks(ctx context.Context, incarnation uint64) {
	defer a.forks.jobs.wait()
	pause := newRounds(50*time.Millisecond, 2*time.Second)
	var soon <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.forks.changed:
		case <-soon:
		}
		reports, again := a.forks.review(ctx, a.homes.isOpen)
		if soon = nil; again {
			soon = time.After(snapshotAgain)
		}
		for len(reports) > 0 {
			n := min(len(reports), 256)
			req := &rotav1.ReportSnapshotsRequest{Name: a.cfg.Name, Incarnation: incarnation, Reports: reports[:n]}
			if !a.untilHeard(ctx, pause, func() error {
				_, err := call(ctx, a.servers, reportTimeout,
					func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.ReportSnapshotsResponse, error) {
						return c.ReportSnapshots(ctx, req)
					})
				return err
			}, func(err error) {
				a.log.Warn("the cluster does not know yet how snapshots are; trying on", "error", err)
			}) {
				return
			}
			reports = reports[n:]
		}
	}
}
