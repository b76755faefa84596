package layers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// settleDelay is how long the files of snapshots stay in memory: those of one that is removed sooner need
// not be written.
const settleDelay = 5 * time.Second

// suspectName is the file that says in which boot a sync has failed.
const suspectName = "suspect"

// suspicion is what is in that file.
type suspicion struct{ Boot string }

// errNotTried says that there was no sync, so that nothing is known of what is on disk.
var errNotTried = errors.New("the folder cannot be opened to sync it")

// settleLater has the files of snapshots written to disk behind the caller's back, as that may take
// long. Until then their records name this boot.
func (s *Store) settleLater(ids ...uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspect {
		return
	}
	s.unsettled = append(s.unsettled, ids...)
	if !s.settling {
		s.settling = true
		go s.settle()
	}
}

// settle goes on until every snapshot that was taken is on disk, or is known not to be, and that is
// written down.
func (s *Store) settle() {
	var toNote []uint64 // those on disk whose records do not say so
	distrusted := false // a sync has failed, and that is not written down
	failed := false     // at the last round
	for !s.isClosed() { // the next store goes on
		time.Sleep(s.settleDelay)
		toSync, goOn := s.nextUnsettled(distrusted || len(toNote) > 0)
		if !goOn {
			return
		}
		var err error
		if len(toSync) > 0 {
			err = s.sync()
		}
		switch {
		case err == nil:
			toNote = append(toNote, toSync...)
		case errors.Is(err, errNotTried):
			s.settleLater(toSync...)
		default:
			s.distrust(err)
			distrusted, err = true, nil
		}
		if distrusted {
			err = s.noteSuspect()
			distrusted = err != nil
		}
		toNote, err = s.noteSettled(toNote, err)
		if err != nil && !failed {
			s.log.Warn("what is known of snapshots on disk cannot be written down yet; trying again", "error", err)
		}
		failed = err != nil
	}
}

// distrust makes the store suspect until the machine starts again: no further snapshot of this boot counts
// as being on disk. The kernel tells of a write that failed once, and may have dropped the data, of which
// snapshots that are taken later may have layers. So a sync that succeeds later says nothing.
func (s *Store) distrust(err error) {
	s.mu.Lock()
	s.suspect, s.unsettled = true, nil
	s.mu.Unlock()
	s.log.Error("the files of snapshots were not written to disk: those taken last, and all that are taken before the machine starts again, are lost when it stops", "error", err)
}

func (s *Store) noteSuspect() error {
	s.records.Lock()
	defer s.records.Unlock()
	if s.closed {
		return nil
	}
	if err := s.write(filepath.Join(s.dir, suspectName), suspicion{s.boot}); err != nil {
		return fmt.Errorf("the next agent would not know that a sync has failed: %w", err)
	}
	return nil
}

// readSuspect finds out whether a sync has failed in this boot.
func (s *Store) readSuspect() error {
	path := filepath.Join(s.dir, suspectName)
	failed, err := read[suspicion](path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, ErrDamaged): // it may be of this boot
		err = s.noteSuspect()
	case err == nil && failed.Boot != s.boot:
		return removeFile(path)
	}
	if err != nil {
		return fmt.Errorf("find out whether a sync has failed: %w", err)
	}
	s.suspect = true
	s.log.Error("a sync of the files of snapshots has failed before: what is taken before the machine starts again is lost when it stops")
	return nil
}

// nextUnsettled takes those snapshots that are to be written to disk, and not removed yet. If there are
// none, and no more is to be done, settle ends: whoever takes the next one starts it again.
func (s *Store) nextUnsettled(more bool) (ids []uint64, goOn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids = slices.DeleteFunc(s.unsettled, func(id uint64) bool {
		_, err := os.Lstat(s.record(snapshotsName, id))
		return errors.Is(err, fs.ErrNotExist)
	})
	s.unsettled = nil
	s.settling = more || len(ids) > 0
	return ids, s.settling
}

// noteSettled notes that the files of snapshots are on disk. It returns those of which that is to be
// tried again, and adds why to an error.
func (s *Store) noteSettled(ids []uint64, err error) ([]uint64, error) {
	var again []uint64
	for _, id := range ids {
		e := s.note(id)
		if errors.Is(e, ErrDamaged) {
			s.log.Error("a snapshot cannot be used", "snapshot", id, "error", e)
			continue
		}
		if e != nil {
			again = append(again, id)
			err = errors.Join(err, fmt.Errorf("its files are on disk, but the record of snapshot %d does not say so: %w", id, e))
		}
	}
	return again, err
}

// note notes that the files of a snapshot are on disk, unless it was forgotten.
func (s *Store) note(id uint64) error {
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
		return fmt.Errorf("%w: %w", errNotTried, err)
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

func (s *Store) isClosed() bool {
	s.records.Lock()
	defer s.records.Unlock()
	return s.closed
}
