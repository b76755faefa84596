package replica

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// segmentList keeps what raft-wal knows of its files: which there are, and where each
// begins and ends. raft-wal's own place for it is a bbolt database, which carries no
// checksum over its content and opens on an older state if its newest meta page is
// damaged. This is one small file under a checksum, replaced as a whole:
//
//	magic 8 | crc 4 | JSON
type segmentList struct {
	dir    string
	guard  *guard
	logger hclog.Logger
}

const (
	segmentListName  = "segments"
	segmentListMagic = "rotaseg1"
	segmentListHead  = len(segmentListMagic) + 4
)

// Load implements types.MetaStore. It makes the newest file one that raft-wal recovers
// from.
func (l *segmentList) Load(string) (types.PersistentState, error) {
	state, err := readSegmentList(l.dir)
	n := len(state.Segments)
	if err != nil || n == 0 || !state.Segments[n-1].SealTime.IsZero() {
		return state, err
	}
	tail, err := l.repairTail(state.Segments[n-1])
	if err != nil || tail.indexStart == 0 {
		return state, err
	}
	// The file was finished, and the crash came before the next one was begun.
	// raft-wal alone would refuse every further append.
	finish(&state, tail)
	return state, l.CommitState(state)
}

// finish notes that the newest segment is full and begins the next one.
func finish(state *types.PersistentState, tail segmentTail) {
	full := &state.Segments[len(state.Segments)-1]
	full.SealTime, full.IndexStart = time.Now(), uint64(tail.indexStart)
	full.MaxIndex = full.BaseIndex + uint64(tail.entries) - 1
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: full.MaxIndex + 1, MinIndex: full.MaxIndex + 1,
		SizeLimit: full.SizeLimit, Codec: wal.CodecBinaryV1, CreateTime: full.SealTime,
	})
	state.NextSegmentID++
}

// repairTail clears what a crash has left behind the newest complete append. raft-wal
// alone takes it for entries once a later append has the right length.
func (l *segmentList) repairTail(info types.SegmentInfo) (segmentTail, error) {
	path := filepath.Join(l.dir, segment.FileName(info))
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return segmentTail{}, nil // not created yet, or the mark knows better
	}
	if err != nil {
		return segmentTail{}, err
	}
	tail := readTail(data)
	used := usedBytes(data)
	if used > tail.end {
		l.logger.Warn("the log ends in an append that is not complete: clearing it", "file", path,
			"entries", tail.entries, "bytes", used-tail.end)
	}
	// A process that was killed before its flush leaves an append that is complete and
	// not durable. From here on it counts.
	return tail, l.guard.write("sync the end of the log", func() error { return zero(path, tail.end, used) })
}

// zero overwrites a part of a file, if it is not empty, and makes the file durable.
func zero(path string, from, to int) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if to > from {
		_, err = f.WriteAt(make([]byte, to-from), int64(from))
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// CommitState implements types.MetaStore.
func (l *segmentList) CommitState(state types.PersistentState) error {
	return l.guard.write("list of log segments", func() error {
		body, err := json.Marshal(state)
		if err != nil {
			return err
		}
		text := append([]byte(segmentListMagic), 0, 0, 0, 0)
		binary.LittleEndian.PutUint32(text[len(segmentListMagic):], crc32.Checksum(body, castagnoli))
		return replaceFile(filepath.Join(l.dir, segmentListName), append(text, body...))
	})
}

// replaceFile makes a file durable under another name before it takes its place.
func replaceFile(path string, content []byte) error {
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// readSegmentList reads the list in a folder; an empty one if there is nothing yet.
func readSegmentList(dir string) (state types.PersistentState, err error) {
	path := filepath.Join(dir, segmentListName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return state, noSegments(dir)
	}
	if err != nil {
		return state, err
	}
	if len(text) < segmentListHead || string(text[:len(segmentListMagic)]) != segmentListMagic ||
		crc32.Checksum(text[segmentListHead:], castagnoli) != binary.LittleEndian.Uint32(text[len(segmentListMagic):]) {
		return state, fmt.Errorf("%w: checksum of %s", ErrCorrupt, path)
	}
	if err := json.Unmarshal(text[segmentListHead:], &state); err != nil {
		return state, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	return state, nil
}

// noSegments is an error if there are segments: without their list raft-wal would take
// them for rubbish and remove them.
func noSegments(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("%w: %s has segments of the log but not their list", ErrCorrupt, dir)
	}
	return err
}

// errNoStable: term and vote are not kept here.
var errNoStable = errors.New("the list of log segments is no stable store")

// GetStable implements types.MetaStore.
func (l *segmentList) GetStable([]byte) ([]byte, error) { return nil, errNoStable }

// SetStable implements types.MetaStore.
func (l *segmentList) SetStable([]byte, []byte) error { return errNoStable }

// Close implements types.MetaStore.
func (l *segmentList) Close() error { return nil }
