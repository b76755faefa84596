package kvfs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"rota/agent/tier"
)

// file is a name that the kernel knows.
type file struct {
	fusefs.Inode
	fs *filesystem

	mu      sync.Mutex
	name    string    // empty: it was removed
	writers []*writer // that are open, the newest last
}

var (
	_ fusefs.NodeGetattrer = (*file)(nil)
	_ fusefs.NodeSetattrer = (*file)(nil)
	_ fusefs.NodeOpener    = (*file)(nil)
	_ fusefs.NodeFsyncer   = (*file)(nil)
)

func (f *file) key() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.name
}

func (f *file) isNamed(name string) bool { return f.key() == name }

// rename gives the file another name, or none, and reports whether it is being written.
func (f *file) rename(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.name = name
	return len(f.writers) > 0
}

func (f *file) newest() *writer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.writers) == 0 {
		return nil
	}
	return f.writers[len(f.writers)-1]
}

// Getattr implements fs.NodeGetattrer.
func (f *file) Getattr(_ context.Context, h fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	size, ok := f.size(h)
	if !ok {
		return syscall.ENOENT
	}
	f.fs.attr(&out.Attr, size, false)
	return 0
}

// size is that of an open file or else of the value. A file that has no value yet has the size that
// was written: its writer asks without saying which open file it means.
func (f *file) size(h fusefs.FileHandle) (int, bool) {
	switch h := h.(type) {
	case *reader:
		return len(h.value.Bytes()), true
	case *writer:
		return h.length(), true
	}
	if size, ok := f.fs.Store.Size(f.key()); ok {
		return size, true
	}
	if w := f.newest(); w != nil {
		return w.length(), true
	}
	return 0, false
}

// Setattr implements fs.NodeSetattrer. Times are ignored. Owner and mode are those of the directory.
func (f *file) Setattr(ctx context.Context, h fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if in.Valid&(fuse.FATTR_MODE|fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
		return syscall.EPERM
	}
	if size, ok := in.GetSize(); ok {
		w, isWriter := h.(*writer)
		if !isWriter {
			return syscall.EPERM // truncate(2) of a name; open(2) with O_TRUNC is what writers do
		}
		if errno := w.truncate(size); errno != 0 {
			return errno
		}
	}
	return f.Getattr(ctx, h, out)
}

// Fsync implements fs.NodeFsyncer. A cache makes no promise to keep what it has.
func (f *file) Fsync(context.Context, fusefs.FileHandle, uint32) syscall.Errno { return 0 }

// Open implements fs.NodeOpener.
func (f *file) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		w, errno := f.write(ctx, flags)
		if errno != 0 {
			return nil, 0, errno
		}
		return w, fuse.FOPEN_DIRECT_IO, 0
	}
	r, ok := f.read()
	if !ok {
		return nil, 0, syscall.ENOENT
	}
	return r, fuse.FOPEN_DIRECT_IO, 0
}

// reader is a file that is open for reading. It has the value, checked, so no read can fail.
type reader struct {
	fs    *filesystem
	value *tier.Value
}

var (
	_ fusefs.FileReader   = (*reader)(nil)
	_ fusefs.FileReleaser = (*reader)(nil)
)

// read opens the file for reading. Whatever is in the way, the file does not exist then.
func (f *file) read() (*reader, bool) {
	v := f.fs.Store.Get(f.key())
	if v == nil {
		return nil, false
	}
	r := &reader{fs: f.fs, value: v}
	if !f.fs.hold(len(v.Bytes())) {
		v.Release()
		return nil, false
	}
	if !f.fs.admit(r) {
		r.drop()
		return nil, false
	}
	return r, true
}

// Read implements fs.FileReader. The kernel copies out of the value itself.
func (r *reader) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	return fuse.ReadResultData(part(r.value.Bytes(), len(dest), off)), 0
}

func part(b []byte, n int, off int64) []byte {
	from := min(max(off, 0), int64(len(b)))
	return b[from:min(from+int64(n), int64(len(b)))]
}

// Release implements fs.FileReleaser.
func (r *reader) Release(context.Context) syscall.Errno {
	if r.fs.leave(r) {
		r.drop()
	}
	return 0
}

func (r *reader) drop() {
	r.fs.letGo(len(r.value.Bytes()))
	r.value.Release()
}

// write opens the file for writing, with what it has unless it is to be truncated.
func (f *file) write(ctx context.Context, flags uint32) (*writer, syscall.Errno) {
	w := &writer{file: f, opener: callerOf(ctx), appends: flags&syscall.O_APPEND != 0}
	if flags&(syscall.O_TRUNC|syscall.O_EXCL) == 0 {
		if v := f.fs.Store.Get(f.key()); v != nil {
			errno := w.start(v.Bytes())
			v.Release()
			if errno != 0 {
				return nil, errno
			}
		}
	}
	w.fresh = flags&syscall.O_TRUNC != 0
	if !f.fs.admit(w) {
		w.drop()
		return nil, syscall.ENFILE
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writers = append(f.writers, w)
	return w, 0
}

// closed forgets a writer.
func (f *file) closed(w *writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writers = slices.DeleteFunc(f.writers, func(other *writer) bool { return other == w })
}

// errnoOf says what a process is told of an error of the store.
func errnoOf(err error) syscall.Errno {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, tier.ErrTooLarge):
		return syscall.EFBIG
	case errors.Is(err, tier.ErrFull):
		return syscall.ENOSPC
	}
	return syscall.EIO
}
