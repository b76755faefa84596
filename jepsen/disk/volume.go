package disk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// volume is a tree of files and folders over a real one, with what it takes to
// say what a power loss would leave of it. After the loss it is dead.
type volume struct {
	root string // the folder below

	// mu guards the tree. It is held for reading while a file is used.
	mu   sync.RWMutex
	dead bool
	top  *inode
	last uint64 // newest number of an inode
	// pending are the changes of names that no fsync has made durable, oldest
	// first.
	pending []naming
}

// inode is a file, a folder or something special such as a socket.
type inode struct {
	id   uint64
	mode uint32 // type, as in stat

	// Of a folder: its entries, and those that would survive.
	live, durable map[string]*inode
	// Where it is; of a file with several names, the newest.
	parent *inode
	name   string
	links  int // names that it has; of files

	// Of a file. The file below is closed when nobody knows the inode any more.
	mu      sync.Mutex
	file    *os.File
	content content
	writers int // handles that are open for writing
}

func (n *inode) kind() uint32 { return n.mode & syscall.S_IFMT }

// naming is one step that changes names: one entry, or two for a rename.
type naming []entry

// entry says what a name stands for from then on; nil for nothing.
type entry struct {
	dir  *inode
	name string
	to   *inode
}

// openVolume reads the folder. All that is there counts as durable.
func openVolume(root string, last uint64) (*volume, error) {
	v := &volume{root: root, last: last}
	err := v.load(make(map[uint64]*inode))
	if err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// load reads the tree; byNumber are the files that were found, by their number
// below, for those with several names.
func (v *volume) load(byNumber map[uint64]*inode) error {
	v.top = v.newInode(syscall.S_IFDIR, nil, "")
	var walk func(dir *inode) error
	walk = func(dir *inode) error {
		entries, err := os.ReadDir(v.path(dir))
		for _, e := range entries {
			n, errLoad := v.loadEntry(dir, e.Name(), byNumber)
			if errLoad == nil && e.IsDir() {
				errLoad = walk(n)
			}
			err = errors.Join(err, errLoad)
		}
		return err
	}
	return walk(v.top)
}

func (v *volume) loadEntry(dir *inode, name string, byNumber map[uint64]*inode) (*inode, error) {
	var st unix.Stat_t
	if err := unix.Lstat(v.under(dir, name), &st); err != nil {
		return nil, err
	}
	n := byNumber[st.Ino]
	var err error
	if n == nil {
		n = v.newInode(st.Mode, dir, name)
		byNumber[st.Ino] = n
		err = v.open(n, st.Size)
	}
	n.links++
	dir.live[name], dir.durable[name] = n, n
	return n, err
}

func (v *volume) newInode(mode uint32, parent *inode, name string) *inode {
	v.last++
	n := &inode{id: v.last, mode: mode & syscall.S_IFMT, parent: parent, name: name}
	if n.kind() == syscall.S_IFDIR {
		n.live, n.durable = make(map[string]*inode), make(map[string]*inode)
	}
	return n
}

// open opens the file below, if it is one, with a durable content of so many
// bytes.
func (v *volume) open(n *inode, size int64) (err error) {
	if n.kind() == syscall.S_IFREG {
		n.content.live, n.content.durable = size, size
		n.file, err = os.OpenFile(v.path(n), os.O_RDWR, 0)
	}
	return err
}

// close closes the files below that still have names.
func (v *volume) close() {
	var walk func(n *inode)
	walk = func(n *inode) {
		if n.file != nil {
			_ = n.file.Close()
		}
		for _, child := range n.live {
			walk(child)
		}
	}
	walk(v.top)
}

// path is where an inode is in the folder below.
func (v *volume) path(n *inode) string {
	if n.parent == nil {
		return v.root
	}
	return v.under(n.parent, n.name)
}

func (v *volume) under(dir *inode, name string) string { return filepath.Join(v.path(dir), name) }

// change runs a change of the tree.
func (v *volume) change(fn func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dead {
		return syscall.EIO
	}
	return fn()
}

// use runs something that leaves the tree as it is.
func (v *volume) use(fn func() error) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.dead {
		return syscall.EIO
	}
	return fn()
}

// set carries out a step of names that the folder below has seen.
func (v *volume) set(step naming) {
	for _, e := range step {
		if before := e.dir.live[e.name]; before != nil {
			before.links--
		}
		if e.to == nil {
			delete(e.dir.live, e.name)
			continue
		}
		e.dir.live[e.name] = e.to
		e.to.links++
		e.to.parent, e.to.name = e.dir, e.name
	}
	v.pending = append(v.pending, step)
}

// make creates a file, a folder or something special by the function given.
func (v *volume) make(dir *inode, name string, mode uint32, create func(path string) error) (n *inode, err error) {
	err = v.change(func() error {
		if dir.live[name] != nil {
			return syscall.EEXIST
		}
		if err := create(v.under(dir, name)); err != nil {
			return err
		}
		n = v.newInode(mode, dir, name)
		v.set(naming{{dir, name, n}})
		return v.open(n, 0)
	})
	return n, err
}

func (v *volume) lookup(dir *inode, name string) (n *inode, err error) {
	err = v.use(func() error {
		if n = dir.live[name]; n == nil {
			return syscall.ENOENT
		}
		return nil
	})
	return n, err
}

func (v *volume) link(n, dir *inode, name string) error {
	return v.change(func() error {
		if n.links == 0 {
			return syscall.ENOENT
		}
		if err := os.Link(v.path(n), v.under(dir, name)); err != nil {
			return err
		}
		v.set(naming{{dir, name, n}})
		return nil
	})
}

// remove removes a name. It returns what the name stood for.
func (v *volume) remove(dir *inode, name string, by func(path string) error) (n *inode, err error) {
	err = v.change(func() error {
		if n = dir.live[name]; n == nil {
			return syscall.ENOENT
		}
		if err := by(v.under(dir, name)); err != nil {
			return err
		}
		v.set(naming{{dir, name, nil}})
		v.relocate(n)
		return nil
	})
	return n, err
}

// relocate finds another name for a file that has lost its newest.
func (v *volume) relocate(n *inode) {
	if n.links == 0 || n.parent.live[n.name] == n {
		return
	}
	var walk func(dir *inode)
	walk = func(dir *inode) {
		for name, child := range dir.live {
			if child == n {
				n.parent, n.name = dir, name
			}
			walk(child)
		}
	}
	walk(v.top)
}

// rename moves a name, over another one or, with RENAME_EXCHANGE, in its place.
// It returns what the new name stood for.
func (v *volume) rename(from *inode, name string, to *inode, newName string, flags uint) (over *inode, err error) {
	err = v.change(func() error {
		n := from.live[name]
		if n == nil {
			return syscall.ENOENT
		}
		over = to.live[newName]
		err := unix.Renameat2(unix.AT_FDCWD, v.under(from, name), unix.AT_FDCWD, v.under(to, newName), flags)
		if err != nil || n == over { // two names of one file: POSIX does nothing
			return err
		}
		if flags&unix.RENAME_EXCHANGE != 0 {
			v.set(naming{{from, name, over}, {to, newName, n}})
			return nil
		}
		v.set(naming{{from, name, nil}, {to, newName, n}})
		if over != nil {
			v.relocate(over)
		}
		return nil
	})
	return over, err
}

// write writes to a file.
func (v *volume) write(n *inode, data []byte, off int64) error {
	return v.use(func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.content.write(n.file, data, off)
	})
}

func (v *volume) truncate(n *inode, size int64) error {
	return v.use(func() error {
		if n.file == nil {
			return syscall.EINVAL
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.content.truncate(n.file, size)
	})
}

func (n *inode) size() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.content.live
}

// sync makes durable what was there when it began.
func (v *volume) sync(n *inode) error {
	if n.kind() == syscall.S_IFDIR {
		return v.syncFolder(n)
	}
	return v.use(func() error {
		if n.file == nil {
			return nil
		}
		n.mu.Lock()
		until := n.content.now()
		n.mu.Unlock()
		if err := unix.Fdatasync(int(n.file.Fd())); err != nil {
			return err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.content.settle(until)
		return nil
	})
}

func (v *volume) syncFolder(dir *inode) error {
	return v.change(func() error {
		f, err := os.Open(v.path(dir))
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
		v.pending = settle(v.pending, dir)
		return nil
	})
}

// dropSync is an fsync of a file that fails.
func (v *volume) dropSync(n *inode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.content.drop(n.content.now())
}

// settle makes the names in a folder durable, and in all folders that pending
// renames tie to it. It returns what is still pending.
func settle(pending []naming, dir *inode) (rest []naming) {
	tied := []*inode{dir}
	touches := func(step naming) bool {
		return slices.ContainsFunc(step, func(e entry) bool { return slices.Contains(tied, e.dir) })
	}
	for before := 0; before != len(tied); {
		before = len(tied)
		for _, step := range pending {
			for _, e := range step {
				if touches(step) && !slices.Contains(tied, e.dir) {
					tied = append(tied, e.dir)
				}
			}
		}
	}
	for _, step := range pending {
		if touches(step) {
			step.persist()
		} else {
			rest = append(rest, step)
		}
	}
	return rest
}

func (s naming) persist() {
	for _, e := range s {
		if e.to == nil {
			delete(e.dir.durable, e.name)
		} else {
			e.dir.durable[e.name] = e.to
		}
	}
}
