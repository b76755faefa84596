package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/layers"
	"rota/agent/runtime"
	"rota/agent/runtime/container"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

const (
	// layersName is the folder of snapshots in that of the supervisor.
	layersName = "layers"
	// snapshotMessageMax is how many bytes of its message a report has.
	snapshotMessageMax = 512
	// snapshotAgain is after what time a snapshot is tried again that waits for an action.
	snapshotAgain = 100 * time.Millisecond
)

// errRuns says that an action of the trajectory runs.
var errRuns = errors.New("an action of the trajectory runs")

// forks takes snapshots of the files of trajectories, and lets trajectories begin with them.
type forks struct {
	log   hclog.Logger
	dir   string        // the supervisor's
	store *layers.Store // nil: the node runs no commands
	// sandboxes are those of the node; nil: it has none.
	sandboxes *container.Manager
	conn      func() runtime.Runtime

	mu      sync.Mutex
	desired *rotav1.NodeSnapshots // nil: no server has said anything
	changed chan struct{}         // holds one mark
	// users are the locks of trajectories: what uses the files of one holds it for reading, and what
	// replaces them for writing.
	users map[uint64]*trajectoryLock
}

type trajectoryLock struct {
	sync.RWMutex
	holders int
}

// openForks mounts what an earlier agent had mounted, before anything uses it.
func (a *agent) openForks() error {
	a.forks = &forks{
		log: a.log.Named("snapshots"), dir: a.cfg.Process.Dir, sandboxes: a.sandboxes, conn: a.driver.connection,
		changed: make(chan struct{}, 1), users: map[uint64]*trajectoryLock{},
	}
	if !a.cfg.Process.Enabled || a.cfg.dial != nil {
		return nil
	}
	dir := a.cfg.Process.Dir
	// Attempts with namespaces of their own get ones that were made ahead.
	seen := a.cfg.Process.Namespaces == "" || layers.Shared(dir)
	store, err := layers.Open(filepath.Join(dir, layersName), a.forks.log, seen, func() (uint64, error) { return a.disk.above(dir) })
	if err != nil {
		return err
	}
	a.forks.store = store
	if !store.Overlays() {
		a.forks.log.Info("snapshots are copies of files here: layers need root, Linux 5.19, and a file system whose mounts are shared (mount --make-shared)")
	}
	return nil
}

// lock returns the lock of a trajectory, and what to call when it is not needed any more.
func (f *forks) lock(trajectory uint64) (l *trajectoryLock, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l = f.users[trajectory]; l == nil {
		l = &trajectoryLock{}
		f.users[trajectory] = l
	}
	l.holders++
	return l, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if l.holders--; l.holders == 0 {
			delete(f.users, trajectory)
		}
	}
}

// use keeps the files of a trajectory from being replaced until done. They begin with the snapshot,
// if there is one.
func (f *forks) use(ctx context.Context, trajectory, snapshot uint64) (done func(), err error) {
	if trajectory == 0 || f.store == nil {
		return func() {}, nil
	}
	if snapshot != 0 {
		if err := f.begin(ctx, trajectory, snapshot); err != nil {
			return nil, fmt.Errorf("%w: the files of trajectory %d cannot begin with snapshot %d: %w", runtime.ErrInvalidSpec, trajectory, snapshot, err)
		}
	}
	l, drop := f.lock(trajectory)
	l.RLock()
	done = func() { l.RUnlock(); drop() }
	if err := f.store.Whole(trajectory); err != nil {
		done()
		return nil, fmt.Errorf("%w: the files of trajectory %d: %w", runtime.ErrInvalidSpec, trajectory, err)
	}
	return done, nil
}

// begin gives a trajectory the files of a snapshot, unless it has them.
func (f *forks) begin(ctx context.Context, trajectory, snapshot uint64) error {
	if began, err := f.store.Began(trajectory); began || err != nil {
		return err
	}
	conn := f.conn()
	if conn == nil {
		return errors.New("the supervisor of the node is being started")
	}
	l, drop := f.lock(trajectory)
	defer drop()
	l.Lock()
	defer l.Unlock()
	if began, err := f.store.Began(trajectory); began || err != nil {
		return err
	}
	if _, err := conn.MakeTrajectory(ctx, trajectory); err != nil {
		return err
	}
	return f.store.Begin(ctx, snapshot, trajectory, runtime.TrajectoryDir(f.dir, trajectory))
}

// has reports whether the node has a snapshot.
func (f *forks) has(snapshot uint64) (bool, error) {
	if f.store == nil {
		return false, nil
	}
	return f.store.Has(snapshot)
}

// root is the root file system that the sandbox of a trajectory begins with; empty: that of its image.
func (f *forks) root(trajectory uint64) (string, error) {
	if f.store == nil {
		return "", nil
	}
	return f.store.Root(trajectory)
}

// told takes in a message of the newest incarnation. Trajectories that are open according to it may
// not be among those that the agent knows to be open yet.
func (f *forks) told(m *rotav1.WatchNodeResponse, uses func(trajectory, index uint64)) {
	for _, k := range m.GetSnapshots().GetForks() {
		uses(k.GetTrajectoryId(), m.GetIndex())
	}
	for _, d := range m.GetSnapshots().GetSnapshots() {
		if d.GetTrajectoryOpen() {
			uses(d.GetTrajectoryId(), m.GetIndex())
		}
	}
	f.mu.Lock()
	if m.GetSnapshots() != nil {
		f.desired = m.GetSnapshots()
	}
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// take takes a snapshot of a trajectory in which nothing runs; else its error is errRuns.
func (f *forks) take(ctx context.Context, d *rotav1.DesiredSnapshot, snapshotOf uint64, open bool) error {
	id, trajectory := d.GetSnapshotId(), d.GetTrajectoryId()
	conn := f.conn()
	if f.store == nil {
		return errors.New("the node runs no commands, and has no files of trajectories")
	}
	has, err := f.store.Has(id)
	switch {
	case has || err != nil:
		return err
	case !open:
		return errors.New("the trajectory ended before")
	case conn == nil:
		return errRuns // nobody knows
	}
	if snapshotOf != 0 {
		if err := f.begin(ctx, trajectory, snapshotOf); err != nil {
			return err
		}
	}
	l, drop := f.lock(trajectory)
	defer drop()
	if !l.TryLock() {
		return errRuns
	}
	defer l.Unlock()
	running, err := conn.MakeTrajectory(ctx, trajectory)
	if err != nil {
		return err
	}
	if running > 0 {
		return errRuns
	}
	root, err := f.store.Root(trajectory)
	if err != nil {
		return err
	}
	if d.GetContainer() {
		if f.sandboxes == nil {
			return errors.New("the node runs no containers any more")
		}
		committed, err := f.sandboxes.Commit(ctx, trajectory, id)
		if err != nil {
			return err
		}
		if committed != "" {
			root = committed
		}
	}
	if err := f.store.Take(ctx, id, root, trajectory, runtime.TrajectoryDir(f.dir, trajectory)); errors.Is(err, layers.ErrInUse) {
		return errRuns
	} else if err != nil {
		return err
	}
	return nil
}

// review does what there is to do, and returns what the cluster does not know. It is done again soon
// if something waits.
func (f *forks) review(ctx context.Context, isOpen func(uint64) bool) (reports []*rotav1.SnapshotReport, again bool) {
	f.mu.Lock()
	desired := f.desired
	f.mu.Unlock()
	if desired == nil {
		return nil, false
	}
	began, keep := map[uint64]uint64{}, map[uint64]bool{}
	for _, k := range desired.GetForks() {
		began[k.GetTrajectoryId()] = k.GetSnapshotId()
		if f.store == nil || !isOpen(k.GetTrajectoryId()) {
			continue
		}
		if err := f.begin(ctx, k.GetTrajectoryId(), k.GetSnapshotId()); err != nil {
			if !errors.Is(err, layers.ErrNoSnapshot) {
				keep[k.GetSnapshotId()] = true // a deleted one stays until who began with it has it
				// What has no room is tried again with the next action, and not ten times a second.
				again = again || !errors.Is(err, layers.ErrNoRoom)
			}
			f.log.Warn("a trajectory cannot begin with its snapshot", "trajectory", k.GetTrajectoryId(), "snapshot", k.GetSnapshotId(), "error", err)
		}
	}
	for _, d := range desired.GetSnapshots() {
		id := d.GetSnapshotId()
		if ctx.Err() != nil {
			return reports, again // what could not begin for that must find its snapshot
		}
		if d.GetState() == rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING && keep[id] {
			continue
		}
		keep[id] = d.GetState() != rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING
		report, waits := f.reviewOne(ctx, d, began[d.GetTrajectoryId()], d.GetTrajectoryOpen() && isOpen(d.GetTrajectoryId()))
		again = again || waits
		if report != nil {
			report.SnapshotId = id
			reports = append(reports, report)
		}
	}
	if f.store == nil {
		return reports, again
	}
	taken, err := f.store.Snapshots()
	if err != nil {
		f.log.Warn("snapshots that the cluster does not know cannot be found", "error", err)
	}
	for _, id := range taken {
		if !keep[id] {
			if err := f.store.Remove(id); err != nil {
				f.log.Warn("a snapshot cannot be removed", "snapshot", id, "error", err)
			}
		}
	}
	f.sweep(ctx)
	return reports, again
}

// reviewOne returns what is to be said of a snapshot; nil: nothing.
func (f *forks) reviewOne(ctx context.Context, d *rotav1.DesiredSnapshot, began uint64, open bool) (report *rotav1.SnapshotReport, waits bool) {
	switch d.GetState() {
	case rotav1.SnapshotState_SNAPSHOT_STATE_CREATING:
		err := f.take(ctx, d, began, open)
		switch {
		case err == nil:
			return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_READY}, false
		case errors.Is(err, errRuns) || ctx.Err() != nil:
			return nil, true
		}
		f.log.Warn("a snapshot failed", "snapshot", d.GetSnapshotId(), "trajectory", d.GetTrajectoryId(), "error", err)
		return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_FAILED, Message: short(err.Error(), snapshotMessageMax)}, false
	case rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING:
		if f.store != nil {
			if err := f.store.Remove(d.GetSnapshotId()); err != nil {
				f.log.Warn("a snapshot cannot be removed yet", "snapshot", d.GetSnapshotId(), "error", err)
				return nil, true
			}
		}
		return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_LOST}, false
	case rotav1.SnapshotState_SNAPSHOT_STATE_READY:
		has, err := f.has(d.GetSnapshotId())
		if err != nil {
			f.log.Warn("whether there is a snapshot cannot be told", "snapshot", d.GetSnapshotId(), "error", err)
			return nil, true
		}
		if !has {
			return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_LOST, Message: "the node does not have it any more"}, false
		}
		if d.GetCounted() {
			return nil, false
		}
		if bytes, err := f.store.Bytes(ctx, d.GetSnapshotId()); err == nil {
			return &rotav1.SnapshotReport{State: rotav1.SnapshotState_SNAPSHOT_STATE_READY, Bytes: max(1, bytes)}, false
		}
	}
	return nil, false
}

// sweep removes what nothing has any more.
func (f *forks) sweep(ctx context.Context) {
	if f.store == nil {
		return
	}
	err := f.store.Sweep()
	if err == nil && f.sandboxes != nil {
		var roots []string
		if roots, err = f.store.Roots(); err == nil {
			err = f.sandboxes.KeepRoots(ctx, roots)
		}
	}
	if err != nil && ctx.Err() == nil {
		f.log.Warn("what no snapshot and no trajectory has is not removed; trying on", "error", err)
	}
}

// keepForks does what the cluster wants of snapshots, and tells it, for as long as a session.
func (a *agent) keepForks(ctx context.Context, incarnation uint64) {
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
