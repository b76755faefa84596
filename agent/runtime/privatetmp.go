package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// privateDirs are those that every user may write to. A cell has its own.
var privateDirs = []string{"/tmp", "/var/tmp"}

// sharedMemory is where programs make shared memory that has a name.
const sharedMemory = "/dev/shm"

// hideTmp puts a directory in the place of /tmp and /var/tmp, for the mount namespace
// of the calling thread, and an empty file system in that of /dev/shm. What is named
// of these stays where it was: the attempt's program and its directory.
func hideTmp(tmp string, named ...string) error {
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
	pick := func(path, at string) error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open %s for the attempt: %w", path, err)
		}
		trees = append(trees, tree{fd, at})
		return nil
	}
	for _, dir := range privateDirs {
		if err := pick(tmp, dir); err != nil {
			return err
		}
	}
	for _, path := range named {
		if privateDirOf(path) == "" {
			continue
		}
		if err := pick(path, path); errors.Is(err, unix.ENOENT) {
			continue // what uses it says so
		} else if err != nil {
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
		return root.Open(rel)
	}
	f, err := root.OpenFile(rel, os.O_RDONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return root.Open(rel)
	}
	return f, err
}

func isDirectory(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
