package layers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// copyOf makes a layer of copies of the files of a directory.
func (s *Store) copyOf(ctx context.Context, path string) ([]Layer, error) {
	own, err := ownerOf(path)
	if err != nil {
		return nil, err
	}
	var done func()
	if own.Name, done, err = s.newLayer(); err != nil {
		return nil, err
	}
	defer done()
	if err := os.Mkdir(s.files(own.Name), dirMode); err != nil {
		return nil, err
	}
	if err := copyTree(ctx, path, s.files(own.Name), own, own); err != nil {
		return nil, errors.Join(err, os.RemoveAll(filepath.Join(s.dir, layersName, own.Name)))
	}
	return []Layer{own}, nil
}

// copyInto fills a directory with the files of its snapshot, which is one layer where files are
// copied. What an earlier try has left is removed first.
func (s *Store) copyInto(ctx context.Context, trajectory uint64, h *home) error {
	if len(h.Lower) != 1 {
		return fmt.Errorf("the snapshot has %d layers, and this agent cannot mount them", len(h.Lower))
	}
	entries, err := os.ReadDir(h.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(h.Path, e.Name())); err != nil {
			return err
		}
	}
	own, err := ownerOf(h.Path)
	if err != nil {
		return err
	}
	if err := copyTree(ctx, s.files(h.Lower[0].Name), h.Path, h.Lower[0], own); err != nil {
		return err
	}
	h.Lower, h.Copied = nil, true
	return write(s.record(homesName, trajectory), h)
}

// copyTree copies what is in a directory into another, which is empty. The files of one user become
// those of another. Files with several names stay one file.
func copyTree(ctx context.Context, from, to string, was, is Layer) error {
	links := map[uint64]string{}
	type made struct {
		path string
		info fs.FileInfo
	}
	var dirs []made // their times change with what is put into them, and some may not be written to
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, path[len(from):])
		st := info.Sys().(*syscall.Stat_t)
		if first := links[st.Ino]; first != "" && !info.IsDir() {
			return os.Link(first, target)
		}
		if st.Nlink > 1 {
			links[st.Ino] = target
		}
		if info.IsDir() {
			dirs = append(dirs, made{target, info})
		}
		if err := copyOne(path, target, info, path == from); err != nil {
			return err
		}
		return dress(target, info, was, is)
	})
	for i := len(dirs) - 1; i >= 0 && err == nil; i-- {
		err = errors.Join(os.Chmod(dirs[i].path, dirs[i].info.Mode()), os.Chtimes(dirs[i].path, dirs[i].info.ModTime(), dirs[i].info.ModTime()))
	}
	return err
}

// copyOne makes a file as another, without its owner and its time.
func copyOne(from, to string, info fs.FileInfo, top bool) error {
	switch mode := info.Mode(); {
	case mode.IsDir() && top:
		return nil
	case mode.IsDir():
		return os.Mkdir(to, dirMode)
	case mode.IsRegular():
		return copyFile(from, to)
	case mode.Type() == fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case mode.Type() == fs.ModeNamedPipe:
		return unix.Mkfifo(to, uint32(mode.Perm()))
	}
	return nil // a socket is nothing without its process, and devices are not for trajectories
}

// copyFile shares the blocks of a file where the file system can, and copies them where not.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		_, err = io.Copy(out, in)
	}
	return errors.Join(err, out.Close())
}

// dress gives a copy the owner, the permissions and the time of what it is a copy of; a directory gets
// only its owner.
func dress(path string, info fs.FileInfo, was, is Layer) error {
	st := info.Sys().(*syscall.Stat_t)
	uid, gid := st.Uid, st.Gid
	if uid == was.UID {
		uid = is.UID
	}
	if gid == was.GID {
		gid = is.GID
	}
	err := os.Lchown(path, int(uid), int(gid))
	switch {
	case errors.Is(err, fs.ErrNotExist) && info.Mode().Type()&(fs.ModeSocket|fs.ModeDevice) != 0:
		return nil
	case err != nil || info.IsDir() || info.Mode().Type() == fs.ModeSymlink:
		return err
	}
	return errors.Join(os.Chmod(path, info.Mode()), os.Chtimes(path, info.ModTime(), info.ModTime()))
}
