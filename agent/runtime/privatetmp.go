package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"rota/agent/internal/fileuser"
)

// privateDirs are those that every user may write to. A cell has its own.
var privateDirs = []string{"/tmp", "/var/tmp"}

// sharedMemory is where programs make shared memory that has a name.
const sharedMemory = "/dev/shm"

// hideTmp puts the owner's directory in the place of /tmp and /var/tmp, for the mount namespace
// of the calling thread, and an empty file system in that of /dev/shm. What is named
// of these stays where it was. A client has named the attempt's program and its directory: these
// are there only if the attempt's user can reach them. The supervisor has made what is its own.
func hideTmp(o owner, named, own []string) error {
	type tree struct {
		fd int
		at string
	}
	var trees []tree
	defer func() {
		for _, t := range trees {
			unix.Close(t.fd)
		}
	}()
	pick := func(at string, open func() (int, error)) error {
		fd, err := open()
		if err != nil {
			return fmt.Errorf("open %s for the attempt: %w", at, err)
		}
		trees = append(trees, tree{fd, at})
		return nil
	}
	for _, dir := range privateDirs {
		if err := pick(dir, func() (int, error) { return openTree(o.tmp) }); err != nil {
			return err
		}
	}
	for _, path := range named {
		if privateDirOf(path) == "" || inOneOf(path, own) {
			continue
		}
		if err := pick(path, func() (int, error) { return openTreeAs(o, path) }); errors.Is(err, unix.ENOENT) {
			continue // what uses it says so
		} else if err != nil {
			return err
		}
	}
	for _, path := range own {
		if privateDirOf(path) == "" {
			continue
		}
		if err := pick(path, func() (int, error) { return openTree(path) }); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for _, t := range trees {
		if err := put(t.fd, t.at); err != nil {
			return fmt.Errorf("mount %s for the attempt: %w", t.at, err)
		}
	}
	err := unix.Mount("tmpfs", sharedMemory, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount %s for the attempt: %w", sharedMemory, err)
	}
	return nil
}

// openTree opens a path to be mounted elsewhere.
func openTree(path string) (fd int, err error) {
	return unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// openTreeAs is openTree for a path that a client has named. Once it is mounted, the permissions of the
// directories that lead to it count for nothing: so they have to count here.
func openTreeAs(o owner, path string) (fd int, err error) {
	found := -1
	err = o.asOnThread(func() (err error) {
		found, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		return err
	})
	if errors.Is(err, fileuser.ErrNotGivenBack) { // the thread forks all attempts: as with a box
		fmt.Fprintln(os.Stderr, "supervisor:", err)
		os.Exit(1)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(found)
	return unix.OpenTree(found, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
}

// inOneOf reports whether a path is one of some directories, or below one. None is the empty one.
func inOneOf(path string, dirs []string) bool {
	path = filepath.Clean(path)
	for _, dir := range dirs {
		if dir != "" && (path == dir || strings.HasPrefix(path, dir+"/")) {
			return true
		}
	}
	return false
}

// privateDirOf returns which of privateDirs a path is in; empty: none.
func privateDirOf(path string) string {
	for _, dir := range privateDirs {
		if strings.HasPrefix(path, dir+"/") {
			return dir
		}
	}
	return ""
}

// put mounts a tree. Where it is to be inside a private directory, a place is made
// for it, without following links that the attempt's user may have made there.
func put(tree int, at string) error {
	dir := privateDirOf(at)
	if dir == "" {
		err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS)
		if errors.Is(err, unix.ENOENT) {
			return nil // this machine has none
		}
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	place, err := makePlace(root, strings.TrimPrefix(filepath.Clean(at), dir+"/"), isDirectory(tree))
	if err != nil {
		return err
	}
	defer place.Close()
	return unix.MoveMount(tree, "", int(place.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// placeFlags: the attempt may have put a FIFO there, which would wait for its other end.
const placeFlags = os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

// makePlace makes what a tree is mounted on, and opens it.
func makePlace(root *os.Root, rel string, isDir bool) (*os.File, error) {
	parent := rel
	if !isDir {
		parent = filepath.Dir(rel)
	}
	if err := root.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	if isDir {
		return root.OpenFile(rel, placeFlags, 0)
	}
	f, err := root.OpenFile(rel, placeFlags|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return root.OpenFile(rel, placeFlags, 0)
	}
	return f, err
}

func isDirectory(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
