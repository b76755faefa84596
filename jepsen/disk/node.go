package disk

import (
	"context"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// node is an inode as the kernel knows it. The root has none of its own: it is
// that of the volume of the day.
type node struct {
	fs.Inode
	fs     *FS
	volume *volume
	inode  *inode
}

var (
	_ fs.NodeLookuper   = (*node)(nil)
	_ fs.NodeGetattrer  = (*node)(nil)
	_ fs.NodeSetattrer  = (*node)(nil)
	_ fs.NodeOpener     = (*node)(nil)
	_ fs.NodeCreater    = (*node)(nil)
	_ fs.NodeMkdirer    = (*node)(nil)
	_ fs.NodeMknoder    = (*node)(nil)
	_ fs.NodeSymlinker  = (*node)(nil)
	_ fs.NodeReadlinker = (*node)(nil)
	_ fs.NodeLinker     = (*node)(nil)
	_ fs.NodeUnlinker   = (*node)(nil)
	_ fs.NodeRmdirer    = (*node)(nil)
	_ fs.NodeRenamer    = (*node)(nil)
	_ fs.NodeReaddirer  = (*node)(nil)
	_ fs.NodeReader     = (*node)(nil)
	_ fs.NodeWriter     = (*node)(nil)
	_ fs.NodeFsyncer    = (*node)(nil)
	_ fs.NodeStatfser   = (*node)(nil)
	_ fs.FileReleaser   = (*handle)(nil)
)

// at returns the volume and the inode.
func (n *node) at() (*volume, *inode) {
	if n.inode == nil {
		v := n.fs.volume.Load()
		return v, v.top
	}
	return n.volume, n.inode
}

// child makes an inode known to the kernel.
func (n *node) child(ctx context.Context, v *volume, i *inode, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	ch := &node{fs: n.fs, volume: v, inode: i}
	if errno := ch.attr(&out.Attr); errno != 0 {
		return nil, errno
	}
	return n.NewInode(ctx, ch, fs.StableAttr{Mode: i.mode, Ino: i.id, Gen: 1}), 0
}

func (n *node) attr(out *fuse.Attr) syscall.Errno {
	v, i := n.at()
	var st syscall.Stat_t
	err := v.use(func() error {
		if i.file != nil {
			return syscall.Fstat(int(i.file.Fd()), &st)
		}
		return syscall.Lstat(v.path(i), &st)
	})
	out.FromStat(&st)
	out.Ino = 1
	if n.inode != nil {
		out.Ino = i.id // the root keeps its number
	}
	return fs.ToErrno(err)
}

// change passes a change through the switchboard.
func (n *node) change(fn func(v *volume, i *inode) error) syscall.Errno {
	if n.fs.faults.begin(Write) == fail {
		return syscall.EIO
	}
	return fs.ToErrno(fn(n.at()))
}

// Lookup implements fs.NodeLookuper.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	v, dir := n.at()
	i, err := v.lookup(dir, name)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return n.child(ctx, v, i, out)
}

// Getattr implements fs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return n.attr(&out.Attr)
}

// Setattr implements fs.NodeSetattrer. All but the size is durable at once.
func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	errno := n.change(func(v *volume, i *inode) error {
		if size, ok := in.GetSize(); ok {
			if err := n.resize(v, i, int64(size)); err != nil {
				return err
			}
		}
		return v.use(func() error { return setAttributes(v.path(i), i, in) })
	})
	if errno != 0 {
		return errno
	}
	return n.attr(&out.Attr)
}

func (n *node) resize(v *volume, i *inode, size int64) error {
	if err := n.fs.faults.grow(size - i.size()); err != nil {
		return err
	}
	return v.truncate(i, size)
}

func setAttributes(path string, i *inode, in *fuse.SetAttrIn) error {
	if i.links == 0 {
		return nil // its name is gone, and nobody will see
	}
	if mode, ok := in.GetMode(); ok {
		if err := unix.Chmod(path, mode); err != nil {
			return err
		}
	}
	uid, hasUID := in.GetUID()
	gid, hasGID := in.GetGID()
	if hasUID || hasGID {
		if err := unix.Lchown(path, orKeep(uid, hasUID), orKeep(gid, hasGID)); err != nil {
			return err
		}
	}
	mtime, hasM := in.GetMTime()
	atime, hasA := in.GetATime()
	if !hasM && !hasA {
		return nil
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if hasA {
		times[0] = unix.NsecToTimespec(atime.UnixNano())
	}
	if hasM {
		times[1] = unix.NsecToTimespec(mtime.UnixNano())
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW)
}

func orKeep(id uint32, given bool) int {
	if !given {
		return -1
	}
	return int(id)
}

// Open implements fs.NodeOpener. The kernel drops the pages of a file that is opened. It must keep those of
// a file that somebody else may be writing to (options).
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	_, i := n.at()
	i.mu.Lock()
	defer i.mu.Unlock()
	var keep uint32
	if i.writers > 0 {
		keep = fuse.FOPEN_KEEP_CACHE
	}
	return i.opened(flags), keep, 0
}

// handle is an open file.
type handle struct {
	of     *inode
	writes bool
}

// opened counts a handle. The caller holds mu.
func (n *inode) opened(flags uint32) *handle {
	h := &handle{of: n, writes: flags&syscall.O_ACCMODE != syscall.O_RDONLY}
	if h.writes {
		n.writers++
	}
	return h
}

// Release implements fs.FileReleaser.
func (h *handle) Release(context.Context) syscall.Errno {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if h.writes {
		h.of.writers--
	}
	return 0
}

// make creates something and makes it known.
func (n *node) make(ctx context.Context, name string, mode uint32, out *fuse.EntryOut, create func(path string) error) (ch *fs.Inode, errno syscall.Errno) {
	var i *inode
	errno = n.change(func(v *volume, dir *inode) (err error) {
		i, err = v.make(dir, name, mode, func(path string) error {
			if err := create(path); err != nil {
				return err
			}
			if caller, ok := fuse.FromContext(ctx); ok {
				return os.Lchown(path, int(caller.Uid), int(caller.Gid))
			}
			return nil
		})
		return err
	})
	if errno != 0 {
		return nil, errno
	}
	v, _ := n.at()
	return n.child(ctx, v, i, out)
}

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	ch, errno := n.make(ctx, name, syscall.S_IFREG, out, func(path string) error {
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, mode&0o7777)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
	if errno != 0 {
		return nil, nil, 0, errno
	}
	_, i := ch.Operations().(*node).at()
	i.mu.Lock()
	defer i.mu.Unlock()
	return ch, i.opened(flags), 0, 0
}

// Mkdir implements fs.NodeMkdirer.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.make(ctx, name, syscall.S_IFDIR, out, func(path string) error { return unix.Mkdir(path, mode&0o7777) })
}

// Mknod implements fs.NodeMknoder: sockets, pipes and, seldom, files.
func (n *node) Mknod(ctx context.Context, name string, mode, dev uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.make(ctx, name, mode, out, func(path string) error { return unix.Mknod(path, mode, int(dev)) })
}

// Symlink implements fs.NodeSymlinker.
func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.make(ctx, name, syscall.S_IFLNK, out, func(path string) error { return os.Symlink(target, path) })
}

// Readlink implements fs.NodeReadlinker.
func (n *node) Readlink(context.Context) (target []byte, errno syscall.Errno) {
	v, i := n.at()
	err := v.use(func() error {
		text, err := os.Readlink(v.path(i))
		target = []byte(text)
		return err
	})
	return target, fs.ToErrno(err)
}

// Link implements fs.NodeLinker.
func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	other, i := target.(*node).at()
	errno := n.change(func(v *volume, dir *inode) error {
		if other != v {
			return syscall.EIO
		}
		return v.link(i, dir, name)
	})
	if errno != 0 {
		return nil, errno
	}
	v, _ := n.at()
	return n.child(ctx, v, i, out)
}

// Unlink implements fs.NodeUnlinker.
func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return n.remove(name, unix.Unlink)
}

// Rmdir implements fs.NodeRmdirer.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno { return n.remove(name, unix.Rmdir) }

func (n *node) remove(name string, by func(path string) error) syscall.Errno {
	return n.change(func(v *volume, dir *inode) error {
		gone, err := v.remove(dir, name, by)
		n.giveBack(gone, err)
		return err
	})
}

// giveBack frees the space of a file that has lost its last name.
func (n *node) giveBack(gone *inode, err error) {
	if err == nil && gone != nil && gone.links == 0 {
		_ = n.fs.faults.grow(-gone.size())
	}
}

// Rename implements fs.NodeRenamer.
func (n *node) Rename(_ context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	return n.change(func(v *volume, dir *inode) error {
		other, to := newParent.(*node).at()
		if other != v {
			return syscall.EIO // one of them was opened before a power loss
		}
		over, err := v.rename(dir, name, to, newName, uint(flags))
		n.giveBack(over, err)
		return err
	})
}

// Readdir implements fs.NodeReaddirer.
func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	v, dir := n.at()
	var list []fuse.DirEntry
	err := v.use(func() error {
		for name, i := range dir.live {
			list = append(list, fuse.DirEntry{Name: name, Mode: i.mode, Ino: i.id})
		}
		return nil
	})
	return fs.NewListDirStream(list), fs.ToErrno(err)
}

// Read implements fs.NodeReader.
func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if n.fs.faults.begin(Read) == fail {
		return nil, syscall.EIO
	}
	v, i := n.at()
	var size int
	err := v.use(func() (err error) {
		size, err = unix.Pread(int(i.file.Fd()), dest, off)
		return err
	})
	return fuse.ReadResultData(dest[:max(size, 0)]), fs.ToErrno(err)
}

// Write implements fs.NodeWriter.
func (n *node) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	errno := n.change(func(v *volume, i *inode) error {
		if err := n.fs.faults.grow(max(0, off+int64(len(data))-i.size())); err != nil {
			return err
		}
		return v.write(i, data, off)
	})
	if errno != 0 {
		return 0, errno
	}
	return uint32(len(data)), 0
}

// Fsync implements fs.NodeFsyncer, also for folders. The kernel calls it after
// each write to a file that was opened with O_SYNC or O_DSYNC, too.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	v, i := n.at()
	switch n.fs.faults.begin(Fsync) {
	case fail:
		v.dropSync(i)
		return syscall.EIO
	case lie:
		return 0
	}
	return fs.ToErrno(v.sync(i))
}

// Statfs implements fs.NodeStatfser.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	v, _ := n.at()
	var st syscall.Statfs_t
	err := syscall.Statfs(v.root, &st)
	out.FromStatfsT(&st)
	return fs.ToErrno(err)
}
