package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// walName is the folder of the entries. While it exists the log is in it, and any
// entries in the database are left over from a conversion.
const walName = "wal"

// segmentBytes is how long a file of the log gets. It is allocated as a whole.
const segmentBytes = 16 << 20

// walEntries are the entries in files of their own.
type walEntries struct{ *wal.WAL }

// walOptions say how to open a log of raft-wal.
type walOptions struct {
	guard        *guard
	logger       hclog.Logger
	segmentBytes int
}

// openWAL opens or creates the log in a folder that exists.
func openWAL(dir string, o walOptions) (walEntries, error) {
	list := &segmentList{dir: dir, guard: o.guard, logger: o.logger}
	w, err := wal.Open(dir,
		wal.WithMetaStore(list),
		wal.WithSegmentFiler(segmentFiler{segment.NewFiler(dir, walfs.New()), o.guard}),
		wal.WithSegmentSize(o.segmentBytes),
		wal.WithLogger(o.logger.Named("wal")))
	if err != nil {
		return walEntries{}, damagedWAL(dir, err)
	}
	// raft-wal syncs the name of a file with its first append, but only in the process
	// that has created it.
	if err := syncDir(dir); err != nil {
		return walEntries{}, errors.Join(fmt.Errorf("sync %s: %w", dir, err), w.Close())
	}
	return walEntries{w}, nil
}

// damagedWAL says of an error whether the files are the reason.
func damagedWAL(dir string, err error) error {
	if errors.Is(err, types.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: open log store %s: %w", ErrCorrupt, dir, err)
	}
	return fmt.Errorf("open log store %s: %w", dir, err)
}

// GetLog implements raft.LogStore. raft-wal goes on serving what was compacted away,
// as long as it lies in the newest file.
func (w walEntries) GetLog(index uint64, l *raft.Log) error {
	first, err := w.FirstIndex()
	if err != nil {
		return err
	}
	if index < first {
		return raft.ErrLogNotFound
	}
	return w.WAL.GetLog(index, l)
}

// StoreLog implements raft.LogStore.
func (w walEntries) StoreLog(l *raft.Log) error { return w.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. Behind a snapshot of the leader raft leaves a gap,
// which raft-wal cannot store: the entries before it go, as the snapshot holds them.
//
// Raft would remove them itself if it knew of this (raft.MonotonicLogStore). But then
// it also removes entries that lie behind the snapshot, and this server may have
// acknowledged them: an InstallSnapshot that comes late would lose them.
func (w walEntries) StoreLogs(logs []*raft.Log) error {
	first, err1 := w.FirstIndex()
	last, err2 := w.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if last > 0 && logs[0].Index > last+1 {
		if err := w.DeleteRange(first, last); err != nil {
			return err
		}
	}
	return w.WAL.StoreLogs(logs)
}

// DeleteMax implements LogStore: raft-wal notes a new end and removes whole files.
func (walEntries) DeleteMax() uint64 { return math.MaxUint64 }

// segmentFiler ends the process if a file cannot be created. raft-wal does that in the
// background and only logs an error, such as of a full disk.
type segmentFiler struct {
	types.SegmentFiler
	guard *guard
}

// Create implements types.SegmentFiler.
func (f segmentFiler) Create(info types.SegmentInfo) (w types.SegmentWriter, err error) {
	err = f.guard.write("create log segment", func() (err error) {
		w, err = f.SegmentFiler.Create(info)
		return err
	})
	return w, err
}
