package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"

	"rota/agent/layers"
	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
)

// layersName is the folder of snapshots in that of the supervisor.
const layersName = "layers"

// errRuns says that an action of the trajectory runs.
var errRuns = errors.New("an action of the trajectory runs")

var (
	errNoSupervisor = errors.New("the supervisor of the node is being started")
	// errNotYet says that a start is to be tried again in a moment.
	errNotYet = errors.New("nothing can be started yet")
	// errAbandoned says that a start is not wanted any more.
	errAbandoned = errors.New("it is not wanted any more")
)

// rootSystems are the root file systems of sandboxes, of which snapshots have some.
type rootSystems interface {
	Reserve(trajectory uint64) error
	NewRoot(snapshot uint64) string
	Commit(ctx context.Context, trajectory uint64, root string) (committed bool, err error)
	KeepRoots(ctx context.Context, used func() ([]string, error)) error
	RootBytes(ctx context.Context, root string) (uint64, error)
}

// forks takes snapshots of the files of trajectories, and lets trajectories begin with them.
type forks struct {
	log   hclog.Logger
	dir   string        // the supervisor's
	store *layers.Store // nil: the node runs no commands
	// sandboxes are those of the node; nil: it has none.
	sandboxes rootSystems
	conn      func() runtime.Runtime
	jobs      *forkJobs
	said      saidOnce
	committed committedRoots

	mu       sync.Mutex
	desired  *rotav1.NodeSnapshots // nil: no server has said anything
	sweepDue bool
	changed  chan struct{} // holds one mark
	// held are the trajectories whose files are in use.
	held map[uint64]*heldFiles
}

// heldFiles are files in use, by several who need them as they are, or by one who replaces them.
type heldFiles struct {
	users int
	alone bool
	free  chan struct{} // closed when nothing uses them
}

// openForks mounts what an earlier agent had mounted, before anything uses it.
func (a *agent) openForks() error {
	a.forks = &forks{
		log: a.log.Named("snapshots"), dir: a.cfg.Process.Dir, conn: a.driver.connection,
		changed: make(chan struct{}, 1), held: map[uint64]*heldFiles{},
	}
	a.forks.jobs = newForkJobs(a.forks.poke)
	if a.sandboxes != nil {
		a.forks.sandboxes = a.sandboxes
	}
	if !a.cfg.Process.Enabled || a.cfg.dial != nil {
		return nil
	}
	dir := a.cfg.Process.Dir
	homeOf := func(trajectory uint64) string { return runtime.TrajectoryDir(dir, trajectory) }
	// Attempts with namespaces of their own get ones that were made ahead.
	seen := a.cfg.Process.Namespaces == "" || layers.Shared(dir)
	store, err := layers.Open(filepath.Join(dir, layersName), homeOf, a.forks.log, seen, func() (uint64, error) { return a.disk.above(dir) })
	if err != nil {
		return err
	}
	a.forks.store = store
	if !store.Overlays() {
		a.forks.log.Info("snapshots are copies of files here: layers need root, Linux 5.19, and a file system whose mounts are shared (mount --make-shared)")
	}
	return nil
}

// tryHold takes the files of a trajectory into use, alone or with others; nil: they are in use, until
// free is closed.
func (f *forks) tryHold(trajectory uint64, alone bool) (release func(), free <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.held[trajectory]
	if h == nil {
		h = &heldFiles{free: make(chan struct{})}
		f.held[trajectory] = h
	} else if alone || h.alone {
		return nil, h.free
	}
	h.users++
	h.alone = alone
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(f.held, trajectory)
			close(h.free)
		}
	}, nil
}

// hold is tryHold that waits.
func (f *forks) hold(ctx context.Context, trajectory uint64, alone bool) (release func(), err error) {
	for {
		release, free := f.tryHold(trajectory, alone)
		if release != nil {
			return release, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, ctx.Err()
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
			return nil, notReady(ctx, fmt.Errorf("the files of trajectory %d cannot begin with snapshot %d: %w", trajectory, snapshot, err))
		}
	}
	done, err = f.hold(ctx, trajectory, false)
	if err != nil {
		return nil, notReady(ctx, fmt.Errorf("wait until a snapshot of trajectory %d is taken: %w", trajectory, err))
	}
	if err := f.store.Whole(trajectory); err != nil {
		done()
		return nil, notReady(ctx, fmt.Errorf("the files of trajectory %d: %w", trajectory, err))
	}
	return done, nil
}

// notReady is the error of a start whose directory or sandbox could not be had, so that nothing was
// started. If that is because the supervisor went away or the agent ends, it is no fault of the action.
// An abandoned action ends for the reason for which it was abandoned.
func notReady(ctx context.Context, err error) error {
	why := runtime.ErrInvalidSpec
	switch {
	case errors.Is(err, errNoSupervisor), errors.Is(err, runtime.ErrLost):
		why = errNotYet
	case errors.Is(context.Cause(ctx), errAbandoned):
	case errors.Is(ctx.Err(), context.Canceled):
		why = runtime.ErrStopping
	}
	return fmt.Errorf("%w: %w", why, err)
}

// begin gives a trajectory the files of a snapshot, unless it has them.
func (f *forks) begin(ctx context.Context, trajectory, snapshot uint64) error {
	if began, err := f.store.Began(trajectory); began || err != nil {
		return err
	}
	conn := f.conn()
	if conn == nil {
		return errNoSupervisor
	}
	done, err := f.hold(ctx, trajectory, true)
	if err != nil {
		return err
	}
	defer done()
	if began, err := f.store.Began(trajectory); began || err != nil {
		return err
	}
	if _, err := conn.MakeTrajectory(ctx, trajectory); err != nil {
		return err
	}
	if f.sandboxes != nil { // the directory gets the owner that it has in the container
		root, err := f.store.RootOf(snapshot)
		if err == nil && root != "" {
			err = f.sandboxes.Reserve(trajectory)
		}
		if err != nil {
			return err
		}
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
	if m.GetSnapshots() == nil && m.GetOpenTrajectories() == nil {
		return
	}
	f.mu.Lock()
	if m.GetSnapshots() != nil {
		f.desired = m.GetSnapshots()
	}
	f.sweepDue = true
	f.mu.Unlock()
	f.poke()
}

// poke has everything reviewed.
func (f *forks) poke() {
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
		return errNoSupervisor
	}
	if snapshotOf != 0 {
		if err := f.begin(ctx, trajectory, snapshotOf); err != nil {
			return err
		}
	}
	done, _ := f.tryHold(trajectory, true)
	if done == nil {
		return errRuns
	}
	defer done()
	running, err := conn.MakeTrajectory(ctx, trajectory)
	if err != nil {
		return err
	}
	if running > 0 {
		return errRuns
	}
	root, keep, err := f.rootOf(ctx, d)
	if err != nil {
		return err
	}
	defer keep()
	return f.store.Take(ctx, id, root, trajectory, runtime.TrajectoryDir(f.dir, trajectory))
}
