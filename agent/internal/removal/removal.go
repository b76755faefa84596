package removal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openMax is how many directories of a tree are open at once, one more while one is entered. Trees may
// be deeper than a process may have files open. Below that, the way up leads over "..".
const openMax = 64

// batchMax is how many directories of a level are known at once.
const batchMax = 1024

// passesMax is how often a directory is listed again although it was listed to its end: a list may leave out
// what is in it while other things are removed. Whoever writes into it meanwhile must not keep a removal from
// its end.
const passesMax = 3

// errMoved says that a directory was moved while its tree was removed.
var errMoved = errors.New("it was moved while it was removed")

// All removes a file, or a directory and what is in it, if it is there. Without root, it also does so
// for directories that their owner may not change. It has few files open, however deep the tree is.
func All(path string) error {
	path, err := clean(path)
	if err != nil {
		return err
	}
	above, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ignoreGone(&fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err})
	}
	defer unix.Close(above)
	return (&walk{ctx: context.Background(), openUp: os.Geteuid() != 0}).remove(above, filepath.Base(path))
}

// In removes a file, or a directory and what is in it, below a root. No link leads out of the root. What is
// left when the context ends stays.
func In(ctx context.Context, root *os.Root, path string) error {
	path, err := clean(path)
	if err != nil {
		return err
	}
	above, err := root.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return ignoreGone(err)
	}
	defer above.Close()
	return (&walk{ctx: ctx}).remove(int(above.Fd()), filepath.Base(path))
}

// clean returns a path whose last part is a name, and refuses others.
func clean(path string) (string, error) {
	if path != "" {
		path = filepath.Clean(path)
	}
	switch filepath.Base(path) {
	case ".", "..", "/":
		return "", &fs.PathError{Op: "remove", Path: path, Err: fs.ErrInvalid}
	}
	return path, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// walk is the removal of a tree.
type walk struct {
	ctx    context.Context
	openUp bool // directories that their owner may not change are opened up first
	levels []*level
	err    error // the first one; the rest is removed all the same
}

// level is a directory on the way to what is being removed.
type level struct {
	name     string // in the level above
	fd       int    // -1: closed until it is the lowest level again
	dev, ino uint64
	dirs     []string // some that are in it, which are to be removed next
	// changed: something in it was removed since it was last listed, so more may be found. cutOff: the list
	// did not reach the end.
	changed, cutOff bool
	passes          int // lists that did not follow one that was cut off
}

// remove removes what has a name in the directory above.
func (w *walk) remove(above int, name string) error {
	isDir, err := w.unlink(above, name)
	if !isDir {
		return err
	}
	defer w.close()
	if err := w.enter(above, name); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		if w.ctx.Err() != nil {
			return errors.Join(w.err, w.ctx.Err())
		}
		l := w.levels[len(w.levels)-1]
		switch last := len(l.dirs) - 1; {
		case last >= 0:
			next := l.dirs[last]
			l.dirs = l.dirs[:last]
			w.note(w.enter(l.fd, next))
		case l.again():
			w.note(w.list(l))
		default:
			if err := w.leave(above); err != nil {
				return errors.Join(w.err, err)
			}
		}
	}
	return w.err
}

// removed notes that something in the lowest directory was removed.
func (w *walk) removed() {
	if n := len(w.levels); n > 0 {
		w.levels[n-1].changed = true
	}
}

// note keeps the first error: others mostly follow from it.
func (w *walk) note(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *walk) close() {
	for _, l := range w.levels {
		if l.fd >= 0 {
			_ = unix.Close(l.fd)
		}
	}
}

// unlink removes what is no directory. It reports whether it is one, as far as the kernel says.
func (w *walk) unlink(in int, name string) (isDir bool, err error) {
	err = again(func() error { return unix.Unlinkat(in, name, 0) })
	switch {
	case err == nil:
		w.removed()
		return false, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		var st unix.Stat_t
		if unix.Fstatat(in, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return true, nil
		}
	}
	return false, &fs.PathError{Op: "remove", Path: name, Err: err}
}

// enter begins with a directory, which is not a link. One that cannot be opened is removed if it is empty.
func (w *walk) enter(in int, name string) error {
	fd, err := w.open(in, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	var st unix.Stat_t
	if err == nil {
		if err = unix.Fstat(fd, &st); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		if w.removeEmpty(in, name) == nil {
			return nil
		}
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if n := len(w.levels); n >= openMax {
		_ = unix.Close(w.levels[n-1].fd)
		w.levels[n-1].fd = -1
	}
	w.levels = append(w.levels, &level{name: name, fd: fd, dev: st.Dev, ino: st.Ino, changed: true})
	return nil
}

// removeEmpty removes a directory, if it is there.
func (w *walk) removeEmpty(in int, name string) error {
	err := again(func() error { return unix.Unlinkat(in, name, unix.AT_REMOVEDIR) })
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		w.removed()
	}
	return err
}

func (w *walk) open(in int, name string) (fd int, err error) {
	if w.openUp {
		openUp(in, name)
	}
	err = again(func() error {
		fd, err = unix.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// openUp lets the owner change a directory. What is the matter with it is said by the removal.
func openUp(in int, name string) {
	fd, err := unix.Openat(in, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700)
}

// again reports whether more may be found in a directory.
func (l *level) again() bool { return l.changed && (l.cutOff || l.passes <= passesMax) }

// list removes the files of a directory, and notes the directories in it, or some of many.
func (w *walk) list(l *level) error {
	if !l.cutOff {
		l.passes++
	}
	l.changed, l.cutOff = false, false
	if _, err := unix.Seek(l.fd, 0, unix.SEEK_SET); err != nil {
		return &fs.PathError{Op: "read", Path: l.name, Err: err}
	}
	buf := make([]byte, 8<<10)
	for len(l.dirs) < batchMax {
		n := 0
		err := again(func() (err error) {
			n, err = unix.ReadDirent(l.fd, buf)
			return err
		})
		if errors.Is(err, unix.ENOENT) { // it was removed itself
			return nil
		}
		if err != nil {
			return &fs.PathError{Op: "read", Path: l.name, Err: err}
		}
		if n <= 0 || w.ctx.Err() != nil {
			return nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			isDir, err := w.unlink(l.fd, name)
			if isDir {
				l.dirs = append(l.dirs, name)
			}
			w.note(err)
		}
	}
	l.cutOff = true
	return nil
}

// leave removes the lowest directory, in which there is nothing more to remove. Its error is one after
// which the walk cannot go on.
func (w *walk) leave(above int) error {
	n := len(w.levels) - 1
	l := w.levels[n]
	up := above
	if n > 0 {
		if err := w.levels[n-1].reopen(l); err != nil {
			return err
		}
		up = w.levels[n-1].fd
	}
	w.levels = w.levels[:n]
	_ = unix.Close(l.fd)
	switch err := w.removeEmpty(up, l.name); {
	case err != nil:
		w.note(&fs.PathError{Op: "remove", Path: l.name, Err: err})
	case n == 0: // with all that was in it, whoever removed it
		w.err = nil
	}
	return nil
}

// reopen opens a directory that was closed, from one that is in it.
func (l *level) reopen(below *level) error {
	if l.fd >= 0 {
		return nil
	}
	fd := -1
	err := again(func() (err error) {
		fd, err = unix.Openat(below.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	var st unix.Stat_t
	if err == nil {
		if err = unix.Fstat(fd, &st); err == nil && (st.Dev != l.dev || st.Ino != l.ino) {
			err = errMoved
		}
		if err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: l.name, Err: err}
	}
	l.fd = fd
	return nil
}

// again calls what a signal may interrupt.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
