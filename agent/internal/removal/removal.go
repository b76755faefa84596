package removal

import (
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

// errMoved says that a directory was moved while its tree was removed.
var errMoved = errors.New("it was moved while it was removed")

// All removes a file, or a directory and what is in it, if it is there. Without root, it also does so
// for directories that their owner may not change. It has few files open, however deep the tree is.
func All(path string) error {
	path = filepath.Clean(path)
	above, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ignoreGone(&fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err})
	}
	defer unix.Close(above)
	return (&walk{openUp: os.Geteuid() != 0}).remove(above, filepath.Base(path))
}

// In removes a file, or a directory and what is in it, below a root. No link leads out of the root.
func In(root *os.Root, path string) error {
	path = filepath.Clean(path)
	above, err := root.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return ignoreGone(err)
	}
	defer above.Close()
	return new(walk).remove(int(above.Fd()), filepath.Base(path))
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// walk is the removal of a tree.
type walk struct {
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
	// changed: something in it was removed since it was last listed, so more may be found.
	changed bool
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
		l := w.levels[len(w.levels)-1]
		switch last := len(l.dirs) - 1; {
		case last >= 0:
			next := l.dirs[last]
			l.dirs = l.dirs[:last]
			w.note(w.enter(l.fd, next))
		case l.changed:
			w.note(w.list(l))
		default:
			if err := w.leave(above); err != nil {
				return errors.Join(w.err, err)
			}
		}
	}
	return w.err
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
	case err == nil, errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		var st unix.Stat_t
		if unix.Fstatat(in, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return true, nil
		}
	}
	return false, &fs.PathError{Op: "remove", Path: name, Err: err}
}

// enter begins with a directory, which is not a link.
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
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if n := len(w.levels); n >= openMax {
		_ = unix.Close(w.levels[n-1].fd)
		w.levels[n-1].fd = -1
	}
	w.levels = append(w.levels, &level{name: name, fd: fd, dev: st.Dev, ino: st.Ino, changed: true})
	return nil
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

// list removes the files of a directory, and notes the directories in it, or some of many.
func (w *walk) list(l *level) error {
	l.changed = false
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
		if err != nil {
			return &fs.PathError{Op: "read", Path: l.name, Err: err}
		}
		if n <= 0 {
			return nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			isDir, err := w.unlink(l.fd, name)
			switch {
			case isDir:
				l.dirs = append(l.dirs, name)
			case err != nil:
				w.note(err)
			default:
				l.changed = true
			}
		}
	}
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
	err := again(func() error { return unix.Unlinkat(up, l.name, unix.AT_REMOVEDIR) })
	switch {
	case err != nil && !errors.Is(err, unix.ENOENT):
		w.note(&fs.PathError{Op: "remove", Path: l.name, Err: err})
	case n > 0:
		w.levels[n-1].changed = true
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
