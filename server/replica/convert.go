package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
)

// The log is in the folder "wal" if that exists, else in the database. A server that
// is told to keep it in the other place moves it there when it starts. A crash at any
// step leaves one of the two whole, and the next start goes on or begins again:
//
//   - To the folder: the entries are written to "wal.new", which is renamed. Only then
//     do they go from the database.
//   - To the database: what an earlier attempt has left there goes, the entries are
//     written, and the folder is renamed to "wal.old". Only then is it removed.
const (
	walFresh = walName + ".new"
	walStale = walName + ".old"
)

// convertBytes is how much is written before a flush, about.
const convertBytes = 4 << 20

// errTwoLogs: a version of rota that does not know the folder has written to the
// database since.
var errTwoLogs = errors.New("the data directory holds two logs, as after a downgrade: replace it by an empty one")

// entriesOpener opens the entries of the log in the place where they are wanted.
type entriesOpener struct {
	dir  string
	kind StoreKind
	bolt *boltdb.BoltStore
	// snapshot is the last index of the newest one.
	snapshot uint64
	walOptions
	// step is called after each durable step, for tests that end there; may be nil.
	step func(done string) error
}

func (o *entriesOpener) path(name string) string { return filepath.Join(o.dir, name) }

func (o *entriesOpener) open() (LogStore, error) {
	for _, name := range []string{walFresh, walStale} {
		if err := os.RemoveAll(o.path(name)); err != nil {
			return nil, fmt.Errorf("remove what a conversion has left: %w", err)
		}
	}
	_, err := os.Stat(o.path(walName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open log store: %w", err)
	}
	if inWAL := err == nil; inWAL {
		return o.fromWAL()
	}
	if o.kind == BoltDB {
		return boltEntries{o.bolt}, nil
	}
	if err := o.toWAL(); err != nil {
		return nil, fmt.Errorf("convert log to %s: %w", WAL, err)
	}
	return o.fromWAL()
}

// fromWAL opens the log in the folder, and moves it if that is wanted.
func (o *entriesOpener) fromWAL() (LogStore, error) {
	w, err := openWAL(o.path(walName), o.walOptions)
	if err != nil {
		return nil, err
	}
	err = o.forget(w)
	if err == nil && o.kind == WAL {
		return w, nil
	}
	if err == nil {
		err = o.toBolt(w)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return boltEntries{o.bolt}, o.discardWAL()
}

// forget removes from the database what the folder holds as well.
func (o *entriesOpener) forget(w LogStore) error {
	if left, err := leftover(o.bolt, w); err != nil || !left {
		return err
	}
	return o.clearBolt()
}

// leftover reports whether the database has entries that the folder has, too. errTwoLogs: it
// has others.
func leftover(bolt, w logReader) (bool, error) {
	last, err := bolt.LastIndex()
	if err != nil || last == 0 {
		return false, err
	}
	var left, kept raft.Log
	if err := errors.Join(bolt.GetLog(last, &left), w.GetLog(last, &kept)); err != nil || left.Term != kept.Term {
		return false, errors.Join(errTwoLogs, err)
	}
	return true, nil
}

// clearBolt removes all entries from the database, oldest first, so that its newest one
// says to the end which log it was.
func (o *entriesOpener) clearBolt() error {
	for {
		first, err := o.bolt.FirstIndex()
		if err != nil || first == 0 {
			return err
		}
		err = o.guard.write("remove converted entries", func() error {
			return o.bolt.DeleteRange(first, first+deleteChunk-1)
		})
		if err := errors.Join(err, o.done("removed entries")); err != nil {
			return err
		}
	}
}

// toWAL moves the log to the folder, of which nothing is there yet.
func (o *entriesOpener) toWAL() error {
	fresh := o.path(walFresh)
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	w, err := openWAL(fresh, o.walOptions)
	if err != nil {
		return err
	}
	err = o.copyAll(w, boltEntries{o.bolt}, BoltDB)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return o.rename(walFresh, walName)
}

// toBolt copies the log to the database, which is empty.
func (o *entriesOpener) toBolt(w LogStore) error {
	if err := o.copyAll(boltEntries{o.bolt}, w, WAL); err != nil {
		return fmt.Errorf("convert log to %s: %w", BoltDB, err)
	}
	return nil
}

// discardWAL makes the database the one that counts.
func (o *entriesOpener) discardWAL() error {
	if err := o.rename(walName, walStale); err != nil {
		return fmt.Errorf("convert log to %s: %w", BoltDB, err)
	}
	return os.RemoveAll(o.path(walStale))
}

// rename makes everything durable that was written, and then the new name.
func (o *entriesOpener) rename(from, to string) error {
	return o.guard.write("convert log", func() error {
		if err := errors.Join(syncDir(o.path(from)), syncDir(o.dir), o.done("synced")); err != nil {
			return err
		}
		if err := os.Rename(o.path(from), o.path(to)); err != nil {
			return err
		}
		return errors.Join(o.done("renamed"), syncDir(o.dir), o.done("synced the name"))
	})
}

// copyAll copies the log and says so.
func (o *entriesOpener) copyAll(to, from LogStore, kind StoreKind) error {
	start := time.Now()
	n, err := o.copyEntries(to, from)
	if err == nil && n > 0 {
		o.logger.Info("the log was converted", "from", kind, "to", o.kind, "entries", n,
			"took", time.Since(start).Round(time.Millisecond))
	}
	return err
}

// copyEntries appends the entries of one store to another, each checked.
func (o *entriesOpener) copyEntries(to, from LogStore) (n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	first, err1 := from.FirstIndex()
	last, err2 := from.LastIndex()
	if err := errors.Join(err1, err2); err != nil || last == 0 {
		return 0, err
	}
	var batch []*raft.Log
	bytes := 0
	for index := first; index <= last; index++ {
		entry, err := o.entry(from, index)
		if err != nil {
			return n, err
		}
		if entry != nil {
			batch, bytes = append(batch, entry), bytes+len(entry.Data)
		}
		if bytes < convertBytes && len(batch) < convertEntries && index < last && entry != nil {
			continue
		}
		if err := o.store(to, batch); err != nil {
			return n, err
		}
		n += len(batch)
		batch, bytes = nil, 0
	}
	return n, nil
}

// convertEntries is how many entries are written before a flush, at most.
const convertEntries = 512

// store appends a batch that has no gap in it.
func (o *entriesOpener) store(to LogStore, batch []*raft.Log) error {
	if len(batch) == 0 {
		return nil
	}
	err := o.guard.write("convert log", func() error { return to.StoreLogs(batch) })
	return errors.Join(err, o.done("copied entries"))
}

// entry reads an entry as it is stored, and checks it. There may be none below a
// snapshot that the leader has sent.
func (o *entriesOpener) entry(from LogStore, index uint64) (*raft.Log, error) {
	var entry raft.Log
	err := from.GetLog(index, &entry)
	if errors.Is(err, raft.ErrLogNotFound) && index <= o.snapshot {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: entry %d: %w", ErrCorrupt, index, err)
	}
	opened := entry
	return &entry, unseal(index, &opened)
}

func (o *entriesOpener) done(step string) error {
	if o.step == nil {
		return nil
	}
	return o.step(step)
}
