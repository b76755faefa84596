package kvfs

import (
	"context"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"rota/agent/tier"
)

// bufferLeast is the smallest buffer of a file that is written, in bytes.
const bufferLeast = 64 << 10

// writer is a file that is open for writing. What it has is a value when it is closed.
type writer struct {
	file    *file
	opener  uint32 // thread that has opened it; 0: not known
	appends bool
	fresh   bool // it was opened without what the name may have had

	mu      sync.Mutex
	value   *tier.Value // buffer; nil: none yet
	size    int         // bytes of it that were written
	shared  bool        // the store has the buffer too, so it must not be changed
	changed bool        // there is more than what was published
	killed  bool        // its process was killed meanwhile
}

var (
	_ fusefs.FileWriter    = (*writer)(nil)
	_ fusefs.FileReader    = (*writer)(nil)
	_ fusefs.FileFlusher   = (*writer)(nil)
	_ fusefs.FileReleaser  = (*writer)(nil)
	_ fusefs.FileAllocater = (*writer)(nil)
)

func (w *writer) length() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// start fills the buffer of a writer that nobody else knows yet.
func (w *writer) start(b []byte) syscall.Errno {
	if errno := w.room(len(b)); errno != 0 {
		return errno
	}
	w.size = copy(w.value.Bytes(), b)
	return 0
}

// room makes the buffer hold n bytes or more, and ready to be changed.
func (w *writer) room(n int) syscall.Errno {
	if w.value != nil && !w.shared && n <= len(w.value.Bytes()) {
		return 0
	}
	fs := w.file.fs
	most := int(min(fs.Store.ValueBytesMax(), 1<<40))
	if n > most {
		return syscall.EFBIG
	}
	want := max(n, bufferLeast)
	if w.value == nil {
		fs.mu.Lock()
		want = max(want, fs.guess)
		fs.mu.Unlock()
	} else {
		want = max(want, 2*w.size)
	}
	want = min(want, most)
	if !fs.hold(want) {
		return syscall.ENOSPC
	}
	v, err := fs.Store.NewValue(uint64(want))
	if err != nil {
		fs.letGo(want)
		return errnoOf(err)
	}
	if w.value != nil {
		copy(v.Bytes(), w.value.Bytes()[:w.size])
		w.dropValue()
	}
	w.value, w.shared = v, false
	return 0
}

func (w *writer) dropValue() {
	w.file.fs.letGo(len(w.value.Bytes()))
	w.value.Release()
	w.value = nil
}

// Write implements fs.FileWriter.
func (w *writer) Write(_ context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.appends {
		off = int64(w.size)
	}
	if off < 0 || uint64(off) > w.file.fs.Store.ValueBytesMax() {
		return 0, syscall.EFBIG
	}
	end := int(off) + len(data)
	if errno := w.room(max(end, w.size)); errno != 0 {
		return 0, errno
	}
	b := w.value.Bytes()
	if int(off) > w.size {
		clear(b[w.size:off])
	}
	copy(b[off:], data)
	w.size, w.changed = max(w.size, end), true
	return uint32(len(data)), 0
}

// Read implements fs.FileReader, for files that are open for both.
func (w *writer) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.value == nil {
		return fuse.ReadResultData(nil), 0
	}
	n := copy(dest, part(w.value.Bytes()[:w.size], len(dest), off)) // it may be changed before it is sent
	return fuse.ReadResultData(dest[:n]), 0
}

// Allocate implements fs.FileAllocater: what is to be written is known beforehand. Only memory is
// taken; mode 1 leaves the size as it is.
func (w *writer) Allocate(_ context.Context, off, size uint64, mode uint32) syscall.Errno {
	const keepSize = 1
	if mode != keepSize {
		return syscall.EOPNOTSUPP
	}
	most := w.file.fs.Store.ValueBytesMax()
	if off > most || size > most-off {
		return syscall.ENOSPC
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.room(max(int(off+size), w.size))
}

func (w *writer) truncate(size uint64) syscall.Errno {
	w.mu.Lock()
	defer w.mu.Unlock()
	if size > w.file.fs.Store.ValueBytesMax() {
		return syscall.EFBIG
	}
	n := int(size)
	if n != w.size {
		if errno := w.room(max(n, w.size)); errno != 0 {
			return errno
		}
		if n > w.size {
			clear(w.value.Bytes()[w.size:n])
		}
		w.size = n
	}
	w.changed = true
	return 0
}

// Flush implements fs.FileFlusher: some process has closed the file. That may be one that has only
// inherited it, or one that is being killed.
func (w *writer) Flush(ctx context.Context) syscall.Errno {
	caller := callerOf(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !sameProcess(w.opener, caller):
		return 0
	case wasKilled(caller):
		w.killed = true
		return 0
	case !w.changed:
		return 0
	}
	return errnoOf(w.publish())
}

// publish makes what was written the value.
func (w *writer) publish() error {
	name := w.file.key()
	if name == "" { // it was removed
		w.changed = false
		return nil
	}
	fs := w.file.fs
	if errno := w.room(w.size); errno != 0 {
		return errno
	}
	held := len(w.value.Bytes())
	w.value.Shrink(w.size)
	fs.letGo(held - w.size)
	var expires time.Time
	if isTemporary(name) {
		expires = fs.Store.Now().Add(temporaryFor)
	}
	_, err := fs.Store.Set(name, w.value.Retain(), expires, tier.Always)
	w.shared, w.changed = true, false
	fs.mu.Lock()
	fs.guess = w.size
	fs.mu.Unlock()
	return err
}

// Release implements fs.FileReleaser: no process has the file open any more.
func (w *writer) Release(context.Context) syscall.Errno {
	if !w.file.fs.leave(w) {
		return 0
	}
	w.mu.Lock()
	empty := w.fresh && w.value == nil // a shell closes a file once before anything is written
	if (w.changed || empty) && !w.killed {
		_ = w.publish() // nobody can be told
	}
	w.mu.Unlock()
	w.drop()
	return 0
}

func (w *writer) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.file.closed(w)
	if w.value != nil {
		w.dropValue()
	}
}
