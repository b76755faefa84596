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

// settle goes on until every snapshot that was taken is on disk, or is known not to be.
func (s *Store) settle() {
	failed := false // at the last record of a snapshot that is on disk
	for {
		time.Sleep(s.settleDelay)
		ids := s.nextUnsettled()
		if len(ids) == 0 {
			return
		}
		if err := s.sync(); err != nil {
			s.unsynced(ids, err)
			continue
		}
		var err error
		for _, id := range ids {
			if e := s.note(id, "", false); e != nil {
				err = errors.Join(err, fmt.Errorf("snapshot %d: %w", id, e))
				s.settleLater(id)
			}
		}
		if err != nil && !failed {
			s.log.Warn("the files of snapshots are on disk, but their records do not say so yet; trying again", "error", err)
		}
		failed = err != nil
	}
}

// unsynced notes that files were not written to disk. That is not tried again: the kernel tells of a write
// that failed once, and may have dropped the data, so another sync may succeed without them. The
// snapshots are there until the machine stops.
func (s *Store) unsynced(ids []uint64, err error) {
	for _, id := range ids {
		err = errors.Join(err, s.note(id, s.boot, true))
	}
	s.log.Error("the files of snapshots were not written to disk: they are lost when the machine stops; take new ones", "snapshots", ids, "error", err)
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

// note notes what has become of the files of a snapshot, as its record says it, unless it was forgotten.
func (s *Store) note(id uint64, boot string, unsynced bool) error {
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
	snap.Boot, snap.Unsynced = boot, unsynced
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
		case snap.Boot == s.boot && snap.Unsynced: // see unsynced
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
