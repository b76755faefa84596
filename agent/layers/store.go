package layers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"rota/agent/internal/record"
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
)

// Layer is a tree of files that does not change any more.
type Layer struct {
	Name string
	// UID and GID own its files; those of others are theirs.
	UID, GID uint32
}

// snapshot is what is on disk of a snapshot: its layers, the top first.
type snapshot struct {
	Layers []Layer
	// Root is the name of the root file system of its container; empty: it has none of its own.
	Root string
}

// home is what is on disk of a directory that is not as it was made.
type home struct {
	Path string
	// Lower are the layers below, the top first. Upper is the layer that it writes to; empty: the
	// files are being copied into it, or have been.
	Lower []Layer
	Upper string
	// Plain: until Lower[0] has files, the directory is that layer. It is moved there.
	Plain bool
	// Copied: its files are whole.
	Copied bool
	// Root is that of the snapshot that it began with.
	Root string
}

// Store has the snapshots of a node. An operator makes one for each folder. Its methods may be
// called at the same time for different directories.
type Store struct {
	dir string
	log hclog.Logger
	// overlays: layers can be mounted.
	overlays bool
	// room is how many bytes copies may take.
	room func() (bytes uint64, err error)
	// removeAll removes a tree of files.
	removeAll func(path string) error

	mu     sync.Mutex
	serial uint64
	// making are layers that no record names yet.
	making map[string]bool
}

// Open opens the store of a folder, which it makes. It must be on the file system of the directories.
// What was interrupted is finished or undone. Without mounts, files are copied: use that where what runs
// would not see what is mounted later, see Shared. Room says how many bytes copies may take at a moment;
// it is asked again while files are copied.
func Open(dir string, log hclog.Logger, mounts bool, room func() (bytes uint64, err error)) (*Store, error) {
	s := &Store{dir: dir, log: log, room: room, removeAll: os.RemoveAll, making: map[string]bool{}}
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
	s.overlays = mounts && probe(filepath.Join(dir, "probe"))
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
	homes, err := s.ids(homesName)
	if err != nil {
		return nil, fmt.Errorf("find records of directories: %w", err)
	}
	for _, id := range homes {
		if err := s.recover(id); err != nil {
			log.Error("the files of a trajectory cannot be had again", "trajectory", id, "error", err)
		}
	}
	return s, s.Sweep()
}

// Overlays reports whether snapshots share files. Otherwise they are copied.
func (s *Store) Overlays() bool { return s.overlays }

// recover makes a directory what its record says.
func (s *Store) recover(id uint64) error {
	h, err := read[home](s.record(homesName, id))
	if err != nil || h.Copied {
		return err
	}
	if _, err := os.Lstat(h.Path); h.Upper == "" {
		if err != nil {
			return nil // it went with its trajectory; see Sweep
		}
		return s.copyInto(context.Background(), id, h)
	}
	if h.Plain {
		if _, err := os.Lstat(s.files(h.Lower[0].Name)); errors.Is(err, fs.ErrNotExist) {
			return os.Remove(s.record(homesName, id)) // it was not moved yet
		}
		if err := makeOwned(h.Path, h.Lower[0]); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// From now on it is gone if it is missing: with its trajectory, and not half moved.
		h.Plain = false
		if err := write(s.record(homesName, id), h); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(h.Path); err != nil {
		return nil
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

// Has reports whether there is a snapshot.
func (s *Store) Has(id uint64) (bool, error) {
	_, err := os.Lstat(s.record(snapshotsName, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Began reports whether a directory has the files that it was to begin with.
func (s *Store) Began(trajectory uint64) (bool, error) {
	h, err := s.home(trajectory)
	return h != nil && (h.Copied || h.Upper != ""), err
}

// home returns the record of a directory; nil: it is as it was made.
func (s *Store) home(trajectory uint64) (*home, error) {
	h, err := read[home](s.record(homesName, trajectory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return h, err
}

// Remove forgets a snapshot. Its layers go when nothing has them any more.
func (s *Store) Remove(id uint64) error {
	if err := os.Remove(s.record(snapshotsName, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.Sweep()
}

// newLayer makes an empty layer, which Sweep leaves alone until done.
func (s *Store) newLayer() (name string, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	name = strconv.FormatUint(s.serial, 10)
	if err := os.Mkdir(filepath.Join(s.dir, layersName, name), dirMode); err != nil {
		return "", nil, err
	}
	s.making[name] = true
	return name, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.making, name)
	}, nil
}

// Sweep forgets directories that are gone, and removes layers that nothing has. Layers can be made
// while files are removed.
func (s *Store) Sweep() error {
	if err := s.dropUnused(); err != nil {
		return err
	}
	dir := filepath.Join(s.dir, removedName)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, s.removeAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// dropUnused moves the layers that nothing has to those that are removed.
func (s *Store) dropUnused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := map[string]bool{}
	use := func(layers []Layer) {
		for _, l := range layers {
			used[l.Name] = true
		}
	}
	homes, err := s.ids(homesName)
	if err != nil {
		return err
	}
	for _, id := range homes {
		h, err := read[home](s.record(homesName, id))
		if err != nil {
			return err
		}
		if _, err := os.Lstat(h.Path); errors.Is(err, fs.ErrNotExist) && (!h.Plain || !s.making[h.Upper] && !s.moved(h)) {
			if err := os.Remove(s.record(homesName, id)); err != nil {
				return err
			}
			continue
		}
		use(h.Lower)
		used[h.Upper] = true
	}
	taken, err := s.ids(snapshotsName)
	if err != nil {
		return err
	}
	for _, id := range taken {
		snap, err := read[snapshot](s.record(snapshotsName, id))
		if err != nil {
			return err
		}
		use(snap.Layers)
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, layersName))
	for _, e := range entries {
		if !used[e.Name()] && !s.making[e.Name()] {
			err = errors.Join(err, os.Rename(filepath.Join(s.dir, layersName, e.Name()), filepath.Join(s.dir, removedName, e.Name())))
		}
	}
	return err
}

// moved: the directory is a layer, and not an overlay yet.
func (s *Store) moved(h *home) bool {
	_, err := os.Lstat(s.files(h.Lower[0].Name))
	return h.Plain && err == nil
}

// Whole is an error if the files of a directory are not all there to be seen.
func (s *Store) Whole(trajectory uint64) error {
	h, err := s.home(trajectory)
	if err != nil || h == nil || h.Copied || h.Upper == "" {
		return err
	}
	mounted, err := isMount(h.Path)
	if err == nil && !mounted {
		err = errors.New("its files are not mounted: the agent tries that again when it starts")
	}
	return err
}

// Bytes counts what the top layer of a snapshot takes on disk.
func (s *Store) Bytes(ctx context.Context, id uint64) (bytes uint64, err error) {
	snap, err := read[snapshot](s.record(snapshotsName, id))
	if err != nil {
		return 0, err
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
	return bytes, err
}

// ownerOf is the layer, without a name, that a directory would be.
func ownerOf(dir string) (Layer, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return Layer{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return Layer{UID: st.Uid, GID: st.Gid}, nil
}

func makeOwned(dir string, like Layer) error {
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
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return out, nil
}

// write writes a record as a whole, and returns when it outlives a crash of the machine.
func write(path string, what any) error {
	b, err := json.Marshal(what)
	if err != nil {
		return err
	}
	f, err := record.Replace(path, b)
	if err != nil {
		return err
	}
	return f.Close()
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

// Roots are the names of root file systems that something needs. With an error they are not all.
func (s *Store) Roots() (roots []string, err error) {
	homes, err := s.ids(homesName)
	if err != nil {
		return nil, err
	}
	for _, id := range homes {
		root, err := s.Root(id)
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	taken, err := s.ids(snapshotsName)
	if err != nil {
		return nil, err
	}
	for _, id := range taken {
		snap, err := read[snapshot](s.record(snapshotsName, id))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			roots = append(roots, snap.Root)
		}
	}
	return roots, nil
}

// Take makes a snapshot of a directory, in which nothing may run or be written meanwhile. The
// directory goes on as it was. Root is the name of the root file system of its container.
func (s *Store) Take(ctx context.Context, id uint64, root string, trajectory uint64, path string) error {
	if has, err := s.Has(id); has || err != nil {
		return err
	}
	h, err := s.home(trajectory)
	if err != nil {
		return err
	}
	var layers []Layer
	switch {
	case !s.overlays, h != nil && h.Upper != "" && len(h.Lower) >= depthMax:
		layers, err = s.copyOf(ctx, path)
	case h != nil && h.Upper != "":
		layers, err = s.push(trajectory, path, h)
	default:
		layers, err = s.setAside(trajectory, path)
	}
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	return write(s.record(snapshotsName, id), snapshot{layers, root})
}

// setAside makes a plain directory a layer, with an overlay in its place.
func (s *Store) setAside(trajectory uint64, path string) ([]Layer, error) {
	lower, err := ownerOf(path)
	if err != nil {
		return nil, err
	}
	var done func()
	if lower.Name, done, err = s.newLayer(); err != nil {
		return nil, err
	}
	defer done()
	upper, doneUpper, err := s.newUpper(lower)
	if err != nil {
		return nil, err
	}
	defer doneUpper()
	h := home{Path: path, Lower: []Layer{lower}, Upper: upper, Plain: true}
	if err := write(s.record(homesName, trajectory), h); err != nil {
		return nil, err
	}
	if err := os.Rename(path, s.files(lower.Name)); err != nil {
		return nil, errors.Join(err, os.Remove(s.record(homesName, trajectory)))
	}
	if err := errors.Join(makeOwned(path, lower), s.mount(&h)); err != nil {
		return nil, errors.Join(err, s.moveBack(trajectory, &h))
	}
	h.Plain = false
	return h.Lower, write(s.record(homesName, trajectory), h)
}

// moveBack makes a directory again what it was before setAside.
func (s *Store) moveBack(trajectory uint64, h *home) error {
	if err := unmount(h.Path); err != nil {
		return err
	}
	if err := os.Remove(h.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(s.files(h.Lower[0].Name), h.Path); err != nil {
		return err
	}
	return os.Remove(s.record(homesName, trajectory))
}

// push makes the layer that a directory writes to one of those below, with an empty one on top.
func (s *Store) push(trajectory uint64, path string, h *home) ([]Layer, error) {
	top, err := ownerOf(path)
	if err != nil {
		return nil, err
	}
	top.Name = h.Upper
	upper, done, err := s.newUpper(top)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := unmount(path); err != nil {
		return nil, err
	}
	next := home{Path: path, Lower: slices.Concat([]Layer{top}, h.Lower), Upper: upper, Root: h.Root}
	if err := write(s.record(homesName, trajectory), next); err != nil {
		return nil, errors.Join(err, s.mount(h))
	}
	if err := s.mount(&next); err != nil {
		return nil, errors.Join(err, write(s.record(homesName, trajectory), h), s.mount(h))
	}
	return next.Lower, nil
}

// newUpper makes a layer to write to.
func (s *Store) newUpper(like Layer) (string, func(), error) {
	name, done, err := s.newLayer()
	if err != nil {
		return "", nil, err
	}
	return name, done, errors.Join(makeOwned(s.files(name), like), os.Mkdir(s.work(name), dirMode))
}

func (s *Store) work(layer string) string { return filepath.Join(s.dir, layersName, layer, workName) }

// Begin gives a new, empty directory the files of a snapshot, as those of its owner. A directory
// that has begun already is left alone.
func (s *Store) Begin(ctx context.Context, id, trajectory uint64, path string) error {
	if began, err := s.Began(trajectory); began || err != nil {
		return err
	}
	snap, err := read[snapshot](s.record(snapshotsName, id))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot %d: %w", id, ErrNoSnapshot)
	}
	if err != nil {
		return err
	}
	own, err := ownerOf(path)
	if err != nil {
		return err
	}
	if snap.Root != "" { // the users are those of the container, which are the same in all of them
		own = Layer{UID: snap.Layers[0].UID, GID: snap.Layers[0].GID}
		if err := os.Lchown(path, int(own.UID), int(own.GID)); err != nil {
			return err
		}
	}
	h := &home{Path: path, Lower: snap.Layers, Root: snap.Root}
	if !s.overlays {
		if err := write(s.record(homesName, trajectory), h); err != nil {
			return err
		}
		return s.copyInto(ctx, trajectory, h)
	}
	upper, done, err := s.newUpper(own)
	if err != nil {
		return err
	}
	defer done()
	h.Upper = upper
	if err := write(s.record(homesName, trajectory), h); err != nil {
		return err
	}
	if err := s.mount(h); err != nil {
		return errors.Join(err, os.Remove(s.record(homesName, trajectory)))
	}
	return nil
}
