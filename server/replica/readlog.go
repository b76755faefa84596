package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// StoredEntry is an entry of a log as it lies on disk. Whether it was committed
// is not written there.
type StoredEntry struct {
	Index, Term uint64
	// Command is what the state machine applies; nil for Raft's own entries.
	Command []byte
	// Voters are set for a change of the members: the IDs of those with a vote.
	Voters []string
}

// ReadLog returns the log in the data directory of a server that does not run,
// in order and each entry checked. It changes nothing. The log may begin late,
// behind a snapshot, and lacks what a snapshot of the leader replaced.
func ReadLog(dir string) (entries []StoredEntry, err error) {
	err = eachEntry(dir, 0, func(l *raft.Log) error {
		entries = append(entries, stored(l))
		return nil
	})
	return entries, err
}

// StoredTail is what the disk of a server has behind a snapshot.
type StoredTail struct {
	// Commands are those of the state machine.
	Commands []StoredEntry
	// Index and Term of the newest entry; those of the snapshot if there is none.
	Index, Term uint64
	// Lost is how far the log had reached, if that is beyond Index: the disk has lost entries.
	Lost uint64
}

// ReadTail returns what the data directory of a server that does not run has behind
// a snapshot. It changes nothing. What is before is not looked at. It is an error
// if an entry is damaged or missing. A log that contradicts one of the snapshots of
// the directory does not count, as at the start of a server.
func ReadTail(dir string, s StoredSnapshot, all []StoredSnapshot) (*StoredTail, error) {
	t := &StoredTail{Index: s.Index, Term: s.Term}
	other := false
	err := eachEntry(dir, s.Index, func(l *raft.Log) error {
		contradicts := func(s StoredSnapshot) bool { return s.Index == l.Index && s.Term != l.Term }
		switch other = other || slices.ContainsFunc(all, contradicts); {
		case other, l.Index == s.Index:
		case l.Index != t.Index+1:
			return fmt.Errorf("entries %d to %d are missing", t.Index+1, l.Index-1)
		default:
			t.Index, t.Term = l.Index, l.Term
			if l.Type == raft.LogCommand {
				t.Commands = append(t.Commands, stored(l))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if other {
		t = &StoredTail{Index: s.Index, Term: s.Term}
	}
	f := &Found{Index: t.Index}
	err = f.readMark(dir)
	t.Lost = f.Behind
	return t, err
}

// eachEntry calls fn with the entries of the log from an index on, each checked.
func eachEntry(dir string, from uint64, fn func(*raft.Log) error) (err error) {
	defer func() {
		if p := recover(); p != nil { // a store's, over files that make no sense
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	raw, closeLog, err := openReader(dir)
	if err != nil {
		return err
	}
	defer closeLog()
	first, err1 := raw.FirstIndex()
	last, err2 := raw.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("read bounds of log: %w", err)
	}
	for index := max(first, from); index <= last && last > 0; index++ {
		var l raft.Log
		err := raw.GetLog(index, &l)
		if errors.Is(err, raft.ErrLogNotFound) {
			continue
		}
		if err == nil {
			err = unseal(index, &l)
		}
		if err == nil {
			err = fn(&l)
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
	}
	return nil
}

// logReader reads the entries of a log, checksums included.
type logReader interface {
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
	GetLog(index uint64, l *raft.Log) error
}

// openReader opens the log for reading, wherever it is. The database is open
// meanwhile, which keeps servers out.
func openReader(dir string) (r logReader, closeLog func(), err error) {
	db, err := openReadOnly(filepath.Join(dir, boltName))
	if err != nil {
		return nil, nil, err
	}
	closeDB := func() { _ = db.Close() }
	inWAL := filepath.Join(dir, walName)
	if _, err := os.Stat(inWAL); errors.Is(err, os.ErrNotExist) {
		return db, closeDB, nil
	}
	w, err := openWALReader(inWAL)
	if err != nil {
		closeDB()
		return nil, nil, err
	}
	closeBoth := func() { _ = w.Close(); closeDB() }
	if _, err := leftover(db, w); err != nil {
		closeBoth()
		return nil, nil, err
	}
	return w, closeBoth, nil
}

// readLockTimeout is for a server that is just ending.
const readLockTimeout = 200 * time.Millisecond

// openReadOnly opens the database unless a server has it open.
func openReadOnly(path string) (*boltdb.BoltStore, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	store, err := boltdb.New(boltdb.Options{
		Path:                    path,
		BoltOptions:             &bbolt.Options{ReadOnly: true, Timeout: readLockTimeout},
		MsgpackUseNewTimeFormat: true,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open log store %s: %w", path, err)
	}
	return store, nil
}

func stored(l *raft.Log) StoredEntry {
	e := StoredEntry{Index: l.Index, Term: l.Term}
	switch l.Type {
	case raft.LogCommand:
		e.Command = l.Data
	case raft.LogConfiguration:
		for _, s := range raft.DecodeConfiguration(l.Data).Servers {
			if s.Suffrage == raft.Voter {
				e.Voters = append(e.Voters, string(s.ID))
			}
		}
	}
	return e
}
