package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// boltName is the database of term and vote, and of the entries if they are not in the
// folder "wal".
const boltName = "raft.db"

// ErrInUse says that another process has the data directory open.
var ErrInUse = errors.New("data directory is in use by another process")

// storage is everything durable of one replica.
type storage struct {
	lock    *os.File
	bolt    *boltdb.BoltStore // of the stable store
	mark    *mark
	entries LogStore // of logs
	logs    *logStore
	stable  *stableStore
	snaps   *snapStore
	// suspect is why the store may miss what it once had; empty if it does not.
	suspect string
	// blank: the mark may be lost as well, because the disk was empty. pristine: the
	// store holds nothing that an election or a leader has put there.
	blank, pristine bool
	// marked is what the mark said when the store was opened.
	marked markState
}

func openStorage(cfg *Config, g *guard) (s *storage, err error) {
	if err := makeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	s = &storage{}
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	if s.lock, err = lockDir(cfg.Dir); err != nil {
		return s, err
	}
	path := filepath.Join(cfg.Dir, boltName)
	if s.mark, err = openMark(cfg.Dir, g); err != nil {
		return s, err
	}
	// Before bbolt opens the file: its first write overwrites the evidence.
	if err := s.inspectMeta(path); err != nil {
		return s, err
	}
	if s.bolt, err = openBolt(path); err != nil {
		return s, err
	}
	if s.stable, err = openStable(s.bolt, s.mark, g); err != nil {
		return s, err
	}
	if s.snaps, err = openSnapshots(cfg.Dir, g, cfg.Logger); err != nil {
		return s, err
	}
	if err := s.openEntries(cfg, g); err != nil {
		return s, err
	}
	// What is written to these files is durable, but their names are only now.
	if err := syncDir(cfg.Dir); err != nil {
		return s, fmt.Errorf("sync data directory: %w", err)
	}
	return s, s.inspectLog()
}

// openEntries opens the log, in the store that the configuration names.
func (s *storage) openEntries(cfg *Config, g *guard) error {
	snap, err := s.snaps.newest()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	opener := entriesOpener{
		dir: cfg.Dir, kind: cfg.LogStore, bolt: s.bolt, snapshot: snap.index, step: cfg.converting,
		walOptions: walOptions{guard: g, logger: cfg.Logger, segmentBytes: cfg.segmentBytes},
	}
	if s.entries, err = opener.open(); err != nil {
		return err
	}
	if cfg.WrapLogs != nil {
		s.entries = cfg.WrapLogs(s.entries)
	}
	s.logs, err = openLogs(s.entries, s.mark, g)
	return err
}

// makeDir creates a directory and those above it, durably: without its name
// everything in it is lost with the power.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s (%w)", ErrInUse, dir, err)
	}
	return f, nil
}

// openBolt opens the database, which it creates under another name: bbolt
// refuses a file whose creation was cut short.
func openBolt(path string) (*boltdb.BoltStore, error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := createBolt(path); err != nil {
			return nil, fmt.Errorf("create log store %s: %w", path, err)
		}
	}
	return openBoltAt(path)
}

func createBolt(path string) error {
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	store, err := openBoltAt(fresh)
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// openBoltAt never sets NoSync. The freelist is rebuilt at start: writing it at
// each commit costs more than the commit.
func openBoltAt(path string) (store *boltdb.BoltStore, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: open %s: %v", ErrCorrupt, path, p)
		}
	}()
	store, err = boltdb.New(boltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
			Timeout:        lockTimeout,
		},
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open log store %s: %w", path, err)
	}
	return store, nil
}

// inspectMeta holds the mark if bbolt is about to fall back to an older state.
func (s *storage) inspectMeta(path string) error {
	s.marked = s.mark.snapshot()
	damaged, err := metaDamaged(path)
	if err != nil {
		return err
	}
	switch {
	case s.marked.held:
		s.suspect = "it was in quarantine when it stopped"
	case damaged && s.marked != markState{}:
		s.suspect = "a meta page of the log store is damaged, so its newest transaction may be missing"
		return s.mark.hold()
	}
	return nil
}

// inspectLog compares the log with the mark and with the newest snapshot.
func (s *storage) inspectLog() error {
	snap, err := s.snaps.newest()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	last := max(s.logs.last.Load(), snap.index)
	if err := s.unfound(last); err != nil {
		return err
	}
	term := s.stable.term()
	s.pristine = last <= bootstrapIndex && term <= bootstrapTerm
	switch {
	case last < s.marked.index:
		s.suspect = fmt.Sprintf("the log ends at %d but had reached %d", last, s.marked.index)
	case last == 0 && term == 0:
		s.suspect = "its disk is empty, and it cannot tell whether it once held something"
	}
	// A mark that is held and stands at nothing was made on an empty disk.
	s.blank = s.suspect != "" && s.marked.index == 0
	if s.suspect != "" {
		if err := s.mark.hold(); err != nil {
			return err
		}
	}
	return s.dropConflict(snap)
}

// unfound takes back the first half of founding a cluster, if a crash came before the second:
// raft writes the term, then the entry, and never founds over a term. An election has a later
// term, so no message and no vote of this server was of this one.
func (s *storage) unfound(last uint64) error {
	if last > 0 || s.marked.index > 0 || s.stable.term() != bootstrapTerm {
		return nil
	}
	return s.stable.unfound()
}

// dropConflict removes a log that contradicts the newest snapshot. Raft keeps
// such a tail after InstallSnapshot and then refuses every append
// (hashicorp/raft issue 697).
func (s *storage) dropConflict(snap position) error {
	last := s.logs.last.Load()
	if snap.index == 0 || last < snap.index {
		return nil
	}
	var entry raft.Log
	err := s.logs.GetLog(snap.index, &entry)
	if errors.Is(err, raft.ErrLogNotFound) || err == nil && entry.Term == snap.term {
		return nil // compacted away, or the same history
	}
	if err != nil {
		return err
	}
	first, err := s.logs.FirstIndex()
	if err != nil {
		return err
	}
	return s.logs.DeleteRange(first, last)
}

func (s *storage) close() error {
	var errs []error
	if s.mark != nil {
		errs = append(errs, s.mark.close())
	}
	if s.entries != nil {
		errs = append(errs, s.entries.Close())
	}
	if s.bolt != nil {
		errs = append(errs, s.bolt.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// bbolt's meta page: a 16-byte page header, then this many bytes under a
// checksum.
const (
	metaOffset   = 16
	metaChecked  = 56
	metaBytes    = metaChecked + 8
	metaPageSize = 8 // offset of the page size in the meta
	boltMagic    = 0xED0CDAED
)

// metaDamaged says whether one of the two meta pages does not match its
// checksum. bbolt falls back to the other one and says nothing; the last
// transaction is gone then. A crash cannot do that: the fields of a meta page
// lie within one sector.
func metaDamaged(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect log store: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() == 0 {
		return false, err
	}
	page := int64(os.Getpagesize())
	for n := range int64(2) {
		buf := make([]byte, metaOffset+metaBytes)
		if _, err := f.ReadAt(buf, n*page); err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("inspect log store: %w", err)
		}
		meta := buf[metaOffset:]
		h := fnv.New64a()
		_, _ = h.Write(meta[:metaChecked])
		if binary.NativeEndian.Uint32(meta) != boltMagic || h.Sum64() != binary.NativeEndian.Uint64(meta[metaChecked:]) {
			return true, nil
		}
		if n == 0 {
			page = int64(binary.NativeEndian.Uint32(meta[metaPageSize:]))
		}
	}
	return false, nil
}
