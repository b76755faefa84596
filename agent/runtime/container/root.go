package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

const (
	// rootLabel says which agent a root file system is of, that sandboxes may begin with.
	rootLabel = "rota/root"
	// keepLabel keeps containerd's garbage collector from it.
	keepLabel = "containerd.io/gc.root"
	// rootLayersMax bounds the layers of a root file system, those of its image among them. The kernel
	// mounts 500, if their names fit into a page of options: containerd gives each some 11 bytes.
	rootLayersMax = 256
)

// NewRoot names a root file system for Commit.
func (m *Manager) NewRoot(snapshot uint64) string {
	return fmt.Sprintf("rota-%s-root-%d-%d", m.owner, snapshot, time.Now().UnixNano())
}

// Commit makes the root file system of a trajectory's sandbox one of this name that other sandboxes may
// begin with, unless the trajectory has no sandbox yet. Nothing may run in the sandbox. It ends, and is
// started again with its files when it is opened next.
func (m *Manager) Commit(ctx context.Context, trajectory uint64, root string) (committed bool, err error) {
	e, err := m.lock(ctx, trajectory)
	if err != nil {
		return false, err
	}
	defer e.unlock()
	if e.open == nil {
		if e.open, err = m.opened(trajectory); err != nil {
			return false, err
		}
	}
	if e.open == nil {
		return false, nil
	}
	id := m.id(trajectory)
	if err := m.opts.Containerd.goOn(ctx, id, e.open.Parent); err != nil {
		return false, err
	}
	below, err := m.opts.Containerd.layersBelow(ctx, id)
	if err != nil {
		return false, err
	}
	if below >= m.layersMax {
		return false, fmt.Errorf("the root file system of the container has %d layers, and more cannot be mounted: each snapshot in a row adds one; copy the files into a new trajectory with its image", below)
	}
	if err := m.opts.Containerd.stop(ctx, id); err != nil {
		return false, err
	}
	// What goes on after a crash has to be known before there is nothing to go on with.
	next := *e.open
	next.Parent = root
	if err := save(filepath.Join(m.dir(trajectory), recordName), &next); err != nil {
		return false, err
	}
	e.open = &next
	if err := m.opts.Containerd.commit(ctx, id, root, m.owner); err != nil {
		return false, err
	}
	return true, m.opts.Containerd.goOn(ctx, id, root)
}

// RootBytes counts what a root file system takes on disk beyond the one that it is above.
func (m *Manager) RootBytes(ctx context.Context, root string) (uint64, error) {
	return m.opts.Containerd.usage(ctx, root)
}

// KeepRoots removes the root file systems that are not used. It asks which are after it has found what
// there is, so that none is missing that was committed meanwhile. What a sandbox is above goes with that,
// and so does what one is to be above that has no file system yet, as Commit was interrupted.
func (m *Manager) KeepRoots(ctx context.Context, used func() ([]string, error)) error {
	names, err := m.opts.Containerd.roots(ctx, m.owner)
	if len(names) == 0 {
		return err
	}
	needed, failed := used()
	parents, failedToo := m.parents()
	if failed = errors.Join(failed, failedToo); failed != nil {
		return errors.Join(err, failed)
	}
	for _, name := range names {
		if !slices.Contains(needed, name) && !parents[name] {
			err = errors.Join(err, m.opts.Containerd.letGo(ctx, name))
			m.opts.Collector.unused()
		}
	}
	return err
}

// parents are the root file systems that sandboxes are above, or are to be.
func (m *Manager) parents() (map[string]bool, error) {
	entries, err := os.ReadDir(m.opts.Dir)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, e := range entries {
		if id, err := strconv.ParseUint(e.Name(), 10, 64); err == nil {
			r, err := m.load(id)
			if err != nil {
				return nil, err // what it is above is not known, and must stay
			}
			if r != nil {
				out[r.Parent] = true
			}
		}
	}
	return out, nil
}

// commit makes the file system of a container, which does not run, one for others to begin with.
func (c *Containerd) commit(ctx context.Context, id, name, owner string) error {
	_, err := c.snapshots.Commit(in(ctx, Namespace), &snapshots.CommitSnapshotRequest{
		Snapshotter: c.snapshotter, Name: name, Key: id,
		Labels: map[string]string{rootLabel: owner, keepLabel: time.Now().UTC().Format(time.RFC3339)},
	})
	if err != nil {
		return fmt.Errorf("keep its root file system: %w", err)
	}
	return nil
}

// layersBelow counts the layers that the file system of a container is mounted above.
func (c *Containerd) layersBelow(ctx context.Context, id string) (int, error) {
	got, err := c.snapshots.Mounts(in(ctx, Namespace), &snapshots.MountsRequest{Snapshotter: c.snapshotter, Key: id})
	if err != nil {
		return 0, fmt.Errorf("count the layers of its root file system: %w", err)
	}
	for _, m := range got.GetMounts() {
		for _, option := range m.GetOptions() {
			if lower, ok := strings.CutPrefix(option, "lowerdir="); ok {
				return strings.Count(lower, ":") + 1, nil
			}
		}
	}
	return 0, nil // it is a copy
}

// goOn gives a container a file system above another, unless it has one.
func (c *Containerd) goOn(ctx context.Context, id, parent string) error {
	ctx = in(ctx, Namespace)
	_, err := c.snapshots.Stat(ctx, &snapshots.StatSnapshotRequest{Snapshotter: c.snapshotter, Key: id})
	if !isCode(err, codes.NotFound) || parent == "" {
		return err
	}
	_, err = c.snapshots.Prepare(ctx, &snapshots.PrepareSnapshotRequest{
		Snapshotter: c.snapshotter, Key: id, Parent: parent,
		Labels: map[string]string{keepLabel: time.Now().UTC().Format(time.RFC3339)}, // as the container is not among what the collector sees in it
	})
	if err != nil {
		return fmt.Errorf("make a file system above its root: %w", err)
	}
	return nil
}

// roots are the root file systems of an agent.
func (c *Containerd) roots(ctx context.Context, owner string) (names []string, err error) {
	list, err := c.snapshots.List(in(ctx, Namespace), &snapshots.ListSnapshotsRequest{
		Snapshotter: c.snapshotter, Filters: []string{fmt.Sprintf("labels.%q==%s", rootLabel, owner)},
	})
	if err != nil {
		return nil, fmt.Errorf("list root file systems: %w", err)
	}
	for {
		page, err := list.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return names, err
		}
		for _, info := range page.GetInfo() {
			names = append(names, info.GetName())
		}
	}
}

// usage is what the top layer of a file system takes on disk.
func (c *Containerd) usage(ctx context.Context, name string) (uint64, error) {
	got, err := c.snapshots.Usage(in(ctx, Namespace), &snapshots.UsageRequest{Snapshotter: c.snapshotter, Key: name})
	if err != nil {
		return 0, fmt.Errorf("count the bytes of a root file system: %w", err)
	}
	return uint64(max(0, got.GetSize())), nil
}

// letGo removes a root file system, or leaves it to the garbage collector if something is above it.
func (c *Containerd) letGo(ctx context.Context, name string) error {
	err := c.removeSnapshot(in(ctx, Namespace), name)
	if !isCode(err, codes.FailedPrecondition) {
		return err
	}
	_, err = c.snapshots.Update(in(ctx, Namespace), &snapshots.UpdateSnapshotRequest{
		Snapshotter: c.snapshotter, Info: &snapshots.Info{Name: name, Labels: map[string]string{keepLabel: ""}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels." + keepLabel}},
	})
	return exceptCode(err, codes.NotFound)
}
