package layers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/internal/record"
	"rota/agent/internal/removal"
)

const (
	snapshotsName = "snapshots"
	homesName     = "homes"
	layersName    = "layers"
	// removedName has layers that nothing has, until their files are removed.
	removedName  = "removed"
	filesName    = "files"
	workName     = "work"
	recordSuffix = ".json"
	dirMode      = 0o700
	// depthMax bounds the layers of a directory: the options of a mount have to fit into a page.
	depthMax = 24
)

// Errors of a Store.
var (
	ErrNoSnapshot = errors.New("there is no such snapshot on the node")
	ErrInUse      = errors.New("the directory is in use")
	// ErrDamaged says that a record is not what was written. It will not be read by trying again.
	ErrDamaged = errors.New("the record is damaged")
)

// Layer is a tree of files that does not change any more.
type Layer struct {
	Name string
	owner
}

// owner is the user whose files are shown as those of another user, where a directory of another
// trajectory begins with them. Files of others are not changed.
type owner struct{ UID, GID uint32 }

// snapshot is what is on disk of a snapshot: its layers, the top first.
type snapshot struct {
	Layers []Layer
	// Root is the name of the root file system of its container; empty: it has none of its own.
	Root string
	// Boot is the boot of the machine in which it was taken, until its files are on disk; empty: they are.
	Boot string `json:",omitempty"`
}

// home is what is on disk of a directory that is not as it was made.
type home struct {
	Path string
	// Lower are the layers below, the top first. Upper is the layer that it writes to; empty: the
	// files are being copied into it, or have been.
	Lower []Layer
	Upper string
	// Plain: the directory is being moved, and becomes Lower[0]. Until Lower[0] has files, Before counts
	// instead of this record; nil: none.
	Plain  bool
	Before *home `json:",omitempty"`
	// Copied: its files are whole.
	Copied bool
	// Owner is whose the files of the layers are in it. It is not always the owner of the directory: a
	// container gives that to the user of each command. nil: the owner of Upper, in a record of an earlier release.
	Owner *owner
	// Root is that of the snapshot that it began with.
	Root string
}

// Store has the snapshots of a node. An operator makes one for each folder. Its methods may be
// called at the same time for different directories.
type Store struct {
	dir string
	// homeOf is where the directory of a trajectory is.
	homeOf func(trajectory uint64) string
	log    hclog.Logger
	// room is how many bytes copies may take.
	room func() (bytes uint64, err error)
	// removeAll removes a tree of files.
	removeAll func(path string) error
	// write writes a record as a whole, and returns when it outlives a crash of the machine.
	write func(path string, what any) error
	// sync writes the file system of the folder to disk. A sync of all would wait for any that hangs.
	sync        func() error
	settleDelay time.Duration
	boot        string

	// probing is held while it is found out whether layers can be mounted, with probe, which makes a
	// directory for that. overlays: they can. unknown is what kept that from being found out; nil: it was.
	probing  sync.Mutex
	probe    func(dir string) error
	overlays bool
	unknown  error

	// records is held while the record of a snapshot that there is already is written or removed.
	records sync.Mutex
	closed  bool

	mu     sync.Mutex
	serial uint64
	// pinned counts the users of layers that may not be in a record.
	pinned map[string]int
	// unsettled are snapshots whose files may not be on disk, see settle, which runs while settling.
	unsettled []uint64
	settling  bool
	// suspect: a sync has failed in this boot, see distrust.
	suspect bool
}

// Open opens the store of a folder, which it makes. It must be on the file system of the directories,
// where homeOf finds that of a trajectory. What was interrupted is finished or undone, but for copies of
// files, which Begin makes. Without mounts, files are copied: use that where what runs would not see what
// is mounted later, see Shared. Room says how many bytes copies may take at a moment; it is asked again
// while files are copied.
func Open(dir string, homeOf func(trajectory uint64) string, log hclog.Logger, mounts bool, room func() (bytes uint64, err error)) (*Store, error) {
	s := &Store{dir: dir, homeOf: homeOf, log: log, room: room, removeAll: removal.All, write: record.ReplaceJSON, pinned: map[string]int{},
		sync: func() error { return syncFileSystem(dir) }, settleDelay: settleDelay, probe: probe}
	s.boot, _ = record.BootID() // without it, files count as being on disk
	for _, name := range []string{snapshotsName, homesName, layersName, removedName} {
		if err := os.MkdirAll(filepath.Join(dir, name), dirMode); err != nil {
			return nil, fmt.Errorf("make the folder of snapshots: %w", err)
		}
		unfinished, _ := filepath.Glob(filepath.Join(dir, name, "*"+recordSuffix+".new")) // see record.Replace
		for _, path := range unfinished {
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("remove a record that was not finished: %w", err)
			}
		}
	}
	if mounts {
		if s.tryMounts(); s.unknown != nil {
			log.Warn("whether layers can be mounted cannot be told now; trying again when a snapshot is taken or used", "error", s.unknown)
		}
	}
	for _, name := range []string{layersName, removedName} {
		entries, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("find layers: %w", err)
		}
		for _, e := range entries {
			if n, err := strconv.ParseUint(e.Name(), 10, 64); err == nil {
				s.serial = max(s.serial, n)
			}
		}
	}
	if err := s.readSuspect(); err != nil {
		return nil, err
	}
	if err := s.loseUnsettled(); err != nil {
		return nil, err
	}
	homes, err := s.ids(homesName)
	if err != nil {
		return nil, fmt.Errorf("find records of directories: %w", err)
	}
	for _, id := range homes {
		if err := s.recover(id); err != nil {
			log.Error("the files of a trajectory cannot be had again", "trajectory", id, "error", err)
		}
	}
	if err := s.Sweep(); err != nil { // the others have their files all the same
		log.Warn("what no snapshot and no trajectory has is not removed; trying on", "error", err)
	}
	return s, nil
}

// recover makes a directory what its record says.
func (s *Store) recover(id uint64) error {
	h, err := read[home](s.record(homesName, id))
	if err != nil || h.Copied {
		return err
	}
	if h.Upper == "" {
		return nil // Begin copies its files: that may take long, and leases end meanwhile
	}
	if h.Plain {
		if !s.moved(h) {
			return s.restore(id, h.Before)
		}
		if err := makeOwned(h.Path, h.Lower[0].owner); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// From now on it is gone if it is missing: with its trajectory, and not half moved.
		if err := s.setMoved(id, h); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(h.Path); err != nil {
		return nil // it went with its trajectory; see Sweep
	}
	if mounted, err := isMount(h.Path); mounted || err != nil {
		return err
	}
	return s.mount(h)
}

func (s *Store) record(kind string, id uint64) string {
	return filepath.Join(s.dir, kind, strconv.FormatUint(id, 10)+recordSuffix)
}

func (s *Store) files(layer string) string { return filepath.Join(s.dir, layersName, layer, filesName) }

// ids are the records of a kind.
func (s *Store) ids(kind string) (ids []uint64, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, kind))
	for _, e := range entries {
		if number, ok := strings.CutSuffix(e.Name(), recordSuffix); ok {
			if id, err := strconv.ParseUint(number, 10, 64); err == nil {
				ids = append(ids, id)
			}
		}
	}
	return ids, err
}

// Snapshots are those that there are.
func (s *Store) Snapshots() ([]uint64, error) { return s.ids(snapshotsName) }

// Has reports whether there is a snapshot. Its error is ErrDamaged if nothing can begin with it any more.
func (s *Store) Has(id uint64) (bool, error) {
	_, err := read[snapshot](s.record(snapshotsName, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Began reports whether a directory has the files that it was to begin with.
func (s *Store) Began(trajectory uint64) (bool, error) {
	h, err := s.home(trajectory)
	return h != nil && h.began(), err
}

func (h *home) began() bool { return h.Copied || h.Upper != "" }

// home returns the record of a directory; nil: it is as it was made.
func (s *Store) home(trajectory uint64) (*home, error) {
	h, err := read[home](s.record(homesName, trajectory))
	if err == nil && h.Plain && !s.moved(h) {
		return h.Before, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return h, err
}

// Forget forgets a snapshot. Sweep removes its layers when nothing has them any more.
func (s *Store) Forget(id uint64) error {
	s.records.Lock()
	defer s.records.Unlock()
	return removeFile(s.record(snapshotsName, id))
}

// Whole is an error if the files of a directory are not all there to be seen.
func (s *Store) Whole(trajectory uint64) error {
	h, err := s.home(trajectory)
	if err != nil || h == nil || h.Copied {
		return err
	}
	if h.Upper == "" {
		return errors.New("its files are not all copied from the snapshot that it begins with")
	}
	mounted, err := isMount(h.Path)
	if err == nil && !mounted {
		err = errors.New("its files are not mounted: the agent tries that again when it starts")
	}
	return err
}

// Bytes counts what the top layer of a snapshot takes on disk. Root is the root file system of its
// container, which is not in that; empty: it has none.
func (s *Store) Bytes(ctx context.Context, id uint64) (bytes uint64, root string, err error) {
	snap, err := read[snapshot](s.record(snapshotsName, id))
	if err != nil {
		return 0, "", err
	}
	seen := map[uint64]bool{} // files with several names
	err = filepath.WalkDir(s.files(snap.Layers[0].Name), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if st.Nlink > 1 && !e.IsDir() {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		bytes += uint64(st.Blocks) * 512
		return nil
	})
	return bytes, snap.Root, err
}

// ownerOf is the owner of a directory.
func ownerOf(dir string) (owner, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return owner{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return owner{st.Uid, st.Gid}, nil
}

// ownerIn is whose the files of the layers of a directory are in it.
func (s *Store) ownerIn(h *home) (owner, error) {
	if h.Owner != nil {
		return *h.Owner, nil
	}
	return ownerOf(s.files(h.Upper))
}

func makeOwned(dir string, like owner) error {
	if err := os.Mkdir(dir, dirMode); err != nil {
		return err
	}
	return os.Lchown(dir, int(like.UID), int(like.GID))
}

// read reads a record.
func read[T any](path string) (*T, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := json.Unmarshal(b, out); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	return out, nil
}

// RootOf returns the name of the root file system of a snapshot; empty: it has none.
func (s *Store) RootOf(id uint64) (string, error) {
	snap, err := read[snapshot](s.record(snapshotsName, id))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("snapshot %d: %w", id, ErrNoSnapshot)
	}
	if err != nil {
		return "", err
	}
	return snap.Root, nil
}

// Root returns the name of the root file system with which the container of a trajectory begins;
// empty: that of its image.
func (s *Store) Root(trajectory uint64) (string, error) {
	h, err := s.home(trajectory)
	if err != nil || h == nil {
		return "", err
	}
	return h.Root, nil
}
