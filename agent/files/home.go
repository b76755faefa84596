package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"rota/agent/internal/fileuser"
	"rota/agent/internal/removal"
)

// Bounds of calls.
const (
	// ChunkBytesMax is how much one call reads or writes.
	ChunkBytesMax = 1 << 20
	// PathBytesMax is the longest path.
	PathBytesMax = 4096
	// PageMax is how many files one call lists.
	PageMax = 1000
	// listedMax is how many files a directory may have to be listed.
	listedMax = 200_000
)

var (
	// ErrPath means that a path does not name something in the directory.
	ErrPath = errors.New("not a path in the directory of the trajectory")
	// ErrNotRegular means that something is neither a regular file nor leads to one.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooMany means that a directory has too many files to be listed.
	ErrTooMany = errors.New("more files than can be listed; list them with a command")
)

// Home is the directory of a trajectory. Errors of its methods are those of the package and of
// io/fs, and errors of the kernel such as syscall.ENOSPC.
type Home struct {
	root *os.Root
	// user and group own it.
	user, group int
}

// Open opens the directory of a trajectory.
func Open(dir string) (*Home, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	st, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	sys := st.Sys().(*syscall.Stat_t)
	return &Home{root: root, user: int(sys.Uid), group: int(sys.Gid)}, nil
}

// Close closes it.
func (h *Home) Close() error { return h.root.Close() }

// as does something with the rights of the directory's user, and of no group beside its own.
func (h *Home) as(do func() error) error {
	user, group := unix.Geteuid(), unix.Getegid()
	if h.user == user && h.group == group || user != 0 {
		return do()
	}
	return fileuser.ID{User: h.user, Group: h.group}.Do(do)
}

// clean checks a path, and returns it in its shortest form.
func clean(path string) (string, error) {
	if path == "" {
		path = "."
	}
	if len(path) > PathBytesMax || !filepath.IsLocal(path) {
		return "", fmt.Errorf("%w: give a relative path of at most %d bytes, without .. that leads out of it", ErrPath, PathBytesMax)
	}
	return filepath.Clean(path), nil
}

// at does something with a path, with the rights of the directory's user.
func (h *Home) at(path string, do func(path string) error) error {
	path, err := clean(path)
	if err != nil {
		return err
	}
	return h.as(func() error { return do(path) })
}

// below is at for what is not the directory itself, which clients must not move or remove.
func (h *Home) below(path string, do func(path string) error) error {
	return h.at(path, func(path string) error {
		if path == "." {
			return fmt.Errorf("%w: this is the directory itself", ErrPath)
		}
		return do(path)
	})
}

// MakeDirectory makes a directory and those above it.
func (h *Home) MakeDirectory(path string) error {
	return h.at(path, func(path string) error { return h.makeAll(path) })
}

func (h *Home) makeAll(path string) error {
	if err := h.root.MkdirAll(path, 0o755); err != nil {
		return err
	}
	st, err := h.root.Stat(path)
	if err == nil && !st.IsDir() {
		err = &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	return err
}

// Move renames something.
func (h *Home) Move(path, to string) error {
	to, err := clean(to)
	if err != nil {
		return err
	}
	return h.below(path, func(path string) error { return h.root.Rename(path, to) })
}

// Remove removes a file, a link or a directory. What is not there is an error, also if it is
// recursive. It ends with the context.
func (h *Home) Remove(ctx context.Context, path string, recursive bool) error {
	return h.below(path, func(path string) error {
		if !recursive {
			return h.root.Remove(path)
		}
		if _, err := h.root.Lstat(path); err != nil {
			return err
		}
		return removal.In(ctx, h.root, path)
	})
}
