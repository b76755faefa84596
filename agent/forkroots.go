package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	rotav1 "rota/api/gen/rota/v1"
)

// committedRoots are the root file systems that were committed for snapshots that are not taken yet, by
// trajectory. Each commit adds a layer to the container, so a snapshot that is tried again uses the
// root of its first try, unless the container was opened since.
type committedRoots struct {
	mu sync.Mutex
	by map[uint64]committedRoot
}

type committedRoot struct {
	snapshots []uint64 // which it is for: until it changes, it is that of all that are taken
	name      string
}

// of returns the root that was committed and that a snapshot can have; empty: there is none that still
// counts.
func (c *committedRoots) of(trajectory, snapshot uint64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.by[trajectory]
	if ok && !slices.Contains(r.snapshots, snapshot) {
		r.snapshots = append(r.snapshots, snapshot)
		c.by[trajectory] = r
	}
	return r.name
}

func (c *committedRoots) set(trajectory, snapshot uint64, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[uint64]committedRoot{}
	}
	c.by[trajectory] = committedRoot{[]uint64{snapshot}, name}
}

// changes says that the root file system of a trajectory may change from now on.
func (c *committedRoots) changes(trajectory uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, trajectory)
}

// keep forgets the roots of snapshots that are not wanted any more.
func (c *committedRoots) keep(wanted map[forkJob]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.by, func(_ uint64, r committedRoot) bool {
		return !slices.ContainsFunc(r.snapshots, func(id uint64) bool { return wanted[forkJob{takeJob, id}] })
	})
}

// rootOf is the root file system of a snapshot that is being taken, and stays until keep is called; empty:
// it has none of its own.
func (f *forks) rootOf(ctx context.Context, d *rotav1.DesiredSnapshot) (root string, keep func(), err error) {
	trajectory, snapshot := d.GetTrajectoryId(), d.GetSnapshotId()
	root, err = f.store.Root(trajectory)
	if err != nil || !d.GetContainer() {
		return root, func() {}, err
	}
	if f.sandboxes == nil {
		return "", nil, errors.New("the node runs no containers any more")
	}
	if name := f.committed.of(trajectory, snapshot); name != "" {
		return name, f.store.PinRoots(name), nil
	}
	next := f.sandboxes.NewRoot(snapshot)
	keep = f.store.PinRoots(root, next)
	committed, err := f.sandboxes.Commit(ctx, trajectory, next)
	if err != nil {
		keep()
		return "", nil, err
	}
	if committed {
		root = next
		f.committed.set(trajectory, snapshot, next)
	}
	return root, keep, nil
}
