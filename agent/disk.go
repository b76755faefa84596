package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/plan"
	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

const (
	diskEvery = 500 * time.Millisecond
	// diskFloorMax is the floor of a large disk, unless another is given.
	diskFloorMax = 1 << 30
	// diskFloorPart of a smaller disk is its floor.
	diskFloorPart = 20
	// inodesPart of its inodes have to be free as well.
	inodesPart = 100
)

// room is what a file system has left for users who are not root.
type room struct{ bytes, bytesAll, inodes, inodesAll uint64 }

func readRoom(dir string) (room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return room{}, fmt.Errorf("free space of %s: %w", dir, err)
	}
	size := uint64(st.Bsize)
	return room{st.Bavail * size, st.Blocks * size, st.Ffree, st.Files}, nil
}

// disk watches the file system that attempts write to. Below the floor the node takes
// no new work: one that fills the disk makes others fail, and each of them looks as if
// it had failed by itself.
type disk struct {
	node, dir string
	floor     *uint64 // nil: by the size of the disk
	log       hclog.Logger
	read      func(dir string) (room, error)

	mu      sync.Mutex
	changed chan struct{}
	low     bool
	free    uint64    // bytes, when it was last read
	least   room      // while it was low
	lowAt   time.Time // when it was last seen low; zero: never
	failed  bool      // it could not be read, which was said
}

func newDisk(cfg *Config) *disk {
	d := &disk{node: cfg.Name, dir: cfg.Dir, floor: cfg.DiskFloor, log: cfg.Logger, read: readRoom, changed: make(chan struct{})}
	if cfg.readRoom != nil {
		d.read = cfg.readRoom
	}
	return d
}

// watch looks until the context ends.
func (d *disk) watch(ctx context.Context) error {
	for {
		d.look()
		if backoff.Sleep(ctx, diskEvery) != nil {
			return ctx.Err()
		}
	}
}

// space returns the free space when it was last read, and whether the disk is low.
func (d *disk) space() (free uint64, low bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free, d.low
}

// look reads once. A disk that is low has to get a tenth more than the floor to be
// another, so that it does not change with each file.
func (d *disk) look() {
	now, err := d.read(d.dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if !d.failed {
			d.log.Error("cannot tell how full the disk is", "error", err)
		}
		d.failed = true
		return
	}
	d.failed, d.free = false, now.bytes
	floor := d.floorOf(now)
	low := belowFloor(now, floor)
	if d.low {
		low = belowFloor(now, floor+floor/10)
	}
	if low && (!d.low || now.bytes < d.least.bytes) {
		d.least = now
	}
	if low {
		d.lowAt = time.Now()
	}
	if low == d.low {
		return
	}
	d.low = low
	close(d.changed)
	d.changed = make(chan struct{})
	say := d.log.Info
	what := "the disk has room again: this node takes new work"
	if low {
		say, what = d.log.Warn, "the disk is low: this node takes no new work"
	}
	say(what, "dir", d.dir, "free_bytes", now.bytes, "floor_bytes", floor, "free_inodes", now.inodes, "inodes", now.inodesAll)
}

// above returns how many bytes are free above the floor in the file system of a directory.
func (d *disk) above(dir string) (bytes uint64, err error) {
	now, err := d.read(dir)
	floor := d.floorOf(now)
	if err != nil || belowFloor(now, floor) {
		return 0, err
	}
	return now.bytes - floor, nil
}

func (d *disk) floorOf(r room) uint64 {
	if d.floor != nil {
		return *d.floor
	}
	return min(diskFloorMax, r.bytesAll/diskFloorPart)
}

// belowFloor: with a floor of 0, there is none for inodes either.
func belowFloor(r room, floor uint64) bool {
	return r.bytes < floor || floor > 0 && r.inodes < r.inodesAll/inodesPart
}

// state returns whether the disk is low, and a channel that is closed when that changes.
func (d *disk) state() (low bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.low, d.changed
}

// explain adds to the end of an attempt that the disk was low while it ran, if it failed:
// its own error may say so, or nothing at all.
func (d *disk) explain(e plan.Exit) plan.Exit {
	failed := e.ExitCode != 0 || e.Signal != 0 || e.Reason == plan.ReasonStartFailed
	if !failed || e.Reason != plan.ReasonExited && e.Reason != plan.ReasonSignaled && e.Reason != plan.ReasonStartFailed {
		return e
	}
	d.look()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lowAt.IsZero() || time.Since(d.lowAt) > e.Exec+2*diskEvery {
		return e
	}
	if e.Message != "" {
		e.Message += "; "
	}
	e.Message += fmt.Sprintf("the disk of node %s was low meanwhile, with as little as %d of %d MiB and %d of %d inodes free",
		d.node, d.least.bytes>>20, d.least.bytesAll>>20, d.least.inodes, d.least.inodesAll)
	return e
}

// reportDisk tells the cluster whether the disk is low: as an incarnation begins, since
// what the cluster knows may be old, and when it changes.
func (a *agent) reportDisk(ctx context.Context, incarnation uint64) {
	pause := newRounds(50*time.Millisecond, 2*time.Second)
	for {
		var low bool
		var changed <-chan struct{}
		heard := a.untilHeard(ctx, pause, func() error {
			low, changed = a.disk.state()
			req := &rotav1.ReportDiskRequest{Name: a.cfg.Name, Incarnation: incarnation, Low: low}
			_, err := call(ctx, a.servers, reportTimeout,
				func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.ReportDiskResponse, error) {
					return c.ReportDisk(ctx, req)
				})
			return err
		}, func(err error) {
			a.log.Warn("the cluster does not know yet whether the disk is low; trying on", "low", low, "error", err)
		})
		if !heard {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
