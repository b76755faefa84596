package layers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// settleDelay is how long the files of snapshots stay in memory: those of one that is removed sooner need
// not be written.
const settleDelay = 5 * time.Second

// settleLater has the files of a snapshot written to disk behind the caller's back, as that may take
// long. Until then its record names this boot.
func (s *Store) settleLater(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled = append(s.unsettled, id)
	if !s.settling {
		s.settling = true
		go s.settle()
	}
}

// settle goes on until every snapshot that was taken is on disk.
func (s *Store) settle() {
	for {
		time.Sleep(s.settleDelay)
		ids := s.nextUnsettled()
		if len(ids) == 0 {
			return
		}
		if err := s.sync(); err != nil {
			s.log.Warn("the files of snapshots were not written to disk: a loss of power would lose these", "snapshots", ids, "error", err)
			continue
		}
		for _, id := range ids {
			if err := s.settled(id); err != nil {
				s.log.Warn("that the files of a snapshot are on disk was not written down: a loss of power would lose it", "snapshot", id, "error", err)
			}
		}
	}
}

// nextUnsettled takes those snapshots that are to be written to disk, and not removed yet; none: whoever
// takes the next one starts settle again.
func (s *Store) nextUnsettled() (ids []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids = slices.DeleteFunc(s.unsettled, func(id uint64) bool {
		_, err := os.Lstat(s.record(snapshotsName, id))
		return errors.Is(err, fs.ErrNotExist)
	})
	s.unsettled = nil
	s.settling = len(ids) > 0
	return ids
}

// settled notes that the files of a snapshot outlive a loss of power, unless it was forgotten.
func (s *Store) settled(id uint64) error {
	s.records.Lock()
	defer s.records.Unlock()
	if s.closed {
		return nil // the next store goes on
	}
	path := s.record(snapshotsName, id)
	snap, err := read[snapshot](path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	snap.Boot = ""
	return s.write(path, snap)
}

// loseUnsettled forgets the snapshots whose files were not all on disk when the machine stopped, and goes
// on with those of this boot.
func (s *Store) loseUnsettled() error {
	taken, err := s.ids(snapshotsName)
	if err != nil {
		return fmt.Errorf("find records of snapshots: %w", err)
	}
	for _, id := range taken {
		snap, err := read[snapshot](s.record(snapshotsName, id))
		switch {
		case err != nil || snap.Boot == "": // Has says what is wrong with it
		case snap.Boot == s.boot:
			s.settleLater(id)
		default:
			s.log.Error("a snapshot is lost: the machine stopped before its files were on disk", "snapshot", id)
			if err := s.Forget(id); err != nil {
				return fmt.Errorf("forget snapshot %d: %w", id, err)
			}
		}
	}
	return nil
}

// syncFileSystem writes to disk what is on the file system of a folder.
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// Close keeps the store from writing when nobody calls it.
func (s *Store) Close() {
	s.records.Lock()
	defer s.records.Unlock()
	s.closed = true
}
