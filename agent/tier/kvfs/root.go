package kvfs

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"rota/agent/tier"
	"rota/internal/clock"
)

const (
	// suffix ends the name of each page. A page is written under a longer name first, with
	// temporary after the suffix, and then renamed.
	suffix    = ".bin"
	temporary = suffix + ".tmp."
	// temporaryFor is how long a page that nobody renames stays: its writer is gone.
	temporaryFor = 10 * time.Minute
	// handlesMax is how many files are open at once.
	handlesMax = 4096
	// heldPart of the memory tier may be taken up by open files.
	heldPart = 2
	// listPage is how many keys a listing looks at in one go.
	listPage = 1024
	// renameNoReplace is RENAME_NOREPLACE of renameat2(2).
	renameNoReplace = 1
)

// isName says whether a key can be a file: it is a page of HiCache. Values that clients of Redis
// have stored are not listed, or an engine that clears its directory would delete them.
func isName(key string) bool {
	return (strings.HasSuffix(key, suffix) || strings.Contains(key, temporary)) &&
		len(key) <= unix.NAME_MAX && !strings.ContainsAny(key, "/\x00")
}

func isTemporary(name string) bool {
	return !strings.HasSuffix(name, suffix) && strings.Contains(name, temporary)
}

// filesystem is what all files of a mount have in common.
type filesystem struct {
	Options
	owner   fuse.Owner
	mode    uint32 // of the directory
	mounted time.Time

	mu      sync.Mutex
	handles map[handle]struct{}
	held    uint64 // bytes of memory that open files take up
	heldMax uint64
	guess   int // size of the page that was written last: the next one is likely as large
	refused sync.Once
}

func newFilesystem(o Options, st unix.Stat_t) *filesystem {
	return &filesystem{
		Options: o, owner: fuse.Owner{Uid: st.Uid, Gid: st.Gid}, mode: st.Mode & 0o770, mounted: clock.Now(),
		handles: map[handle]struct{}{}, heldMax: o.Store.Stat().MemoryBytesMax / heldPart,
	}
}

// handle is an open file.
type handle interface{ drop() }

// admit counts an open file, unless there are too many.
func (f *filesystem) admit(h handle) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.handles) >= handlesMax {
		return false
	}
	f.handles[h] = struct{}{}
	return true
}

// leave forgets an open file, and reports whether it was there.
func (f *filesystem) leave(h handle) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, there := f.handles[h]
	delete(f.handles, h)
	return there
}

// hold counts memory that an open file takes up, unless that is too much.
func (f *filesystem) hold(bytes int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held+uint64(bytes) > f.heldMax {
		return false
	}
	f.held += uint64(bytes)
	return true
}

func (f *filesystem) letGo(bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held -= uint64(bytes)
}

// close gives up what files have that processes still have open. No request may be under way.
func (f *filesystem) close() {
	f.mu.Lock()
	open := make([]handle, 0, len(f.handles))
	for h := range f.handles {
		open = append(open, h)
	}
	f.mu.Unlock()
	for _, h := range open {
		if f.leave(h) {
			h.drop()
		}
	}
}

// attr describes a file, or the directory.
func (f *filesystem) attr(out *fuse.Attr, size int, dir bool) {
	out.Owner, out.Nlink, out.Blksize = f.owner, 1, requestBytes
	out.Mode = syscall.S_IFREG | f.mode&0o660
	if dir {
		out.Mode, out.Nlink = syscall.S_IFDIR|f.mode, 2
	}
	out.Size, out.Blocks = uint64(size), uint64(size+511)/512
	out.SetTimes(&f.mounted, &f.mounted, &f.mounted)
}

// root is the directory.
type root struct {
	fusefs.Inode
	fs *filesystem
}

var (
	_ fusefs.NodeGetattrer = (*root)(nil)
	_ fusefs.NodeLookuper  = (*root)(nil)
	_ fusefs.NodeCreater   = (*root)(nil)
	_ fusefs.NodeUnlinker  = (*root)(nil)
	_ fusefs.NodeRenamer   = (*root)(nil)
	_ fusefs.NodeReaddirer = (*root)(nil)
	_ fusefs.NodeStatfser  = (*root)(nil)
)

// Getattr implements fs.NodeGetattrer.
func (r *root) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	r.fs.attr(&out.Attr, 0, true)
	return 0
}

// known returns the file of a name, if the kernel has one.
func (r *root) known(name string) *file {
	child := r.GetChild(name)
	if child == nil {
		return nil
	}
	if f, ok := child.Operations().(*file); ok && f.isNamed(name) {
		return f
	}
	return nil
}

// Lookup implements fs.NodeLookuper. Only values have a name, so a file that is being written for
// the first time does not exist yet.
func (r *root) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if !isName(name) {
		return nil, syscall.ENOENT
	}
	size, ok := r.fs.Store.Size(name)
	if !ok {
		return nil, syscall.ENOENT
	}
	r.fs.attr(&out.Attr, size, false)
	if f := r.known(name); f != nil {
		return &f.Inode, 0
	}
	return r.newFile(ctx, name), 0
}

func (r *root) newFile(ctx context.Context, name string) *fusefs.Inode {
	return r.NewInode(ctx, &file{fs: r.fs, name: name}, fusefs.StableAttr{Mode: syscall.S_IFREG})
}

// Create implements fs.NodeCreater.
func (r *root) Create(ctx context.Context, name string, flags, _ uint32, out *fuse.EntryOut) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	if !isName(name) {
		r.refuse(name)
		return nil, nil, 0, syscall.EINVAL
	}
	inode := r.newFile(ctx, name)
	w, errno := inode.Operations().(*file).write(ctx, flags)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	w.fresh = true
	r.fs.attr(&out.Attr, 0, false)
	return inode, w, fuse.FOPEN_DIRECT_IO, 0
}

// refuse says once why files cannot be created: the error number does not.
func (r *root) refuse(name string) {
	r.fs.refused.Do(func() {
		r.fs.Logger.Warn("the directory of the KV cache takes pages of SGLang HiCache only, whose names end in "+suffix, "refused", name)
	})
}

// Unlink implements fs.NodeUnlinker.
func (r *root) Unlink(_ context.Context, name string) syscall.Errno {
	there := isName(name) && r.fs.Store.Delete(name)
	if f := r.known(name); f != nil && f.rename("") {
		there = true
	}
	if !there {
		return syscall.ENOENT
	}
	return 0
}

// Rename implements fs.NodeRenamer.
func (r *root) Rename(_ context.Context, from string, _ fusefs.InodeEmbedder, to string, flags uint32) syscall.Errno {
	if !isName(to) || flags&^renameNoReplace != 0 {
		r.refuse(to)
		return syscall.EINVAL
	}
	if _, there := r.fs.Store.Size(to); there && flags&renameNoReplace != 0 {
		return syscall.EEXIST
	}
	f, over := r.known(from), r.known(to)
	renamed := isName(from) && r.fs.Store.Rename(from, to)
	if f != nil && f.rename(to) {
		renamed = true
	}
	if !renamed {
		return syscall.ENOENT
	}
	if over != nil && over != f {
		over.rename("")
	}
	return 0
}

// Statfs implements fs.NodeStatfser. All space is free: the cache makes room for what comes.
func (r *root) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	st := r.fs.Store.Stat()
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, unix.NAME_MAX
	out.Blocks = (st.MemoryBytesMax + st.DiskBytesMax) / 4096
	out.Bfree, out.Bavail = out.Blocks, out.Blocks
	return 0
}

// Readdir implements fs.NodeReaddirer.
func (r *root) Readdir(context.Context) (fusefs.DirStream, syscall.Errno) {
	return &listing{store: r.fs.Store, more: true}, 0
}

// listing goes over the keys that are files, some at a time.
type listing struct {
	store  *tier.Store
	names  []string
	cursor uint64
	more   bool
}

// HasNext implements fs.DirStream.
func (l *listing) HasNext() bool {
	for len(l.names) == 0 && l.more {
		keys, next := l.store.Scan(l.cursor, listPage)
		l.cursor, l.more = next, next != 0
		for _, key := range keys {
			if isName(key) {
				l.names = append(l.names, key)
			}
		}
	}
	return len(l.names) > 0
}

// Next implements fs.DirStream.
func (l *listing) Next() (fuse.DirEntry, syscall.Errno) {
	name := l.names[0]
	l.names = l.names[1:]
	return fuse.DirEntry{Name: name, Mode: syscall.S_IFREG}, 0
}

// Close implements fs.DirStream.
func (l *listing) Close() {}
