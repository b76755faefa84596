package replica

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// walReader reads a log of raft-wal that no server has open. It changes nothing.
type walReader struct{ segments []readSegment }

type readSegment struct {
	types.SegmentReader
	first, last uint64 // last is below first if it is empty
}

// readOnlyFiles are files that cannot be written to.
type readOnlyFiles struct{ *walfs.FS }

// OpenWriter implements types.VFS, for the recovery of the newest segment.
func (readOnlyFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	return os.Open(filepath.Join(dir, name))
}

func openWALReader(dir string) (*walReader, error) {
	state, err := readSegmentList(dir)
	if err != nil {
		return nil, err
	}
	r := &walReader{}
	filer := segment.NewFiler(dir, readOnlyFiles{walfs.New()})
	for _, info := range state.Segments {
		if err := r.add(filer, info); err != nil {
			return nil, errors.Join(damagedWAL(dir, err), r.Close())
		}
	}
	return r, nil
}

func (r *walReader) add(filer *segment.Filer, info types.SegmentInfo) error {
	if !info.SealTime.IsZero() {
		s, err := filer.Open(info)
		if err == nil {
			r.segments = append(r.segments, readSegment{s, info.MinIndex, info.MaxIndex})
		}
		return err
	}
	s, err := filer.RecoverTail(info)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not created yet
	}
	if err == nil {
		r.segments = append(r.segments, readSegment{s, info.MinIndex, s.LastIndex()})
	}
	return err
}

// FirstIndex returns the first index, 0 of an empty log.
func (r *walReader) FirstIndex() (uint64, error) {
	for _, s := range r.segments {
		if s.first <= s.last {
			return s.first, nil
		}
	}
	return 0, nil
}

// LastIndex returns the last index, 0 of an empty log.
func (r *walReader) LastIndex() (last uint64, err error) {
	for _, s := range r.segments {
		if s.first <= s.last {
			last = s.last
		}
	}
	return last, nil
}

// GetLog reads an entry.
func (r *walReader) GetLog(index uint64, l *raft.Log) error {
	for _, s := range r.segments {
		if index < s.first || index > s.last {
			continue
		}
		raw, err := s.SegmentReader.GetLog(index)
		if err != nil {
			return err
		}
		return errors.Join(new(wal.BinaryCodec).Decode(raw.Bs, l), raw.Close())
	}
	return raft.ErrLogNotFound
}

// Close closes the files.
func (r *walReader) Close() error {
	var errs []error
	for _, s := range r.segments {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
