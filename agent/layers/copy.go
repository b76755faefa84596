package layers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"rota/agent/internal/removal"
)

// copyStep is how many bytes are copied between two looks at the free space.
const copyStep = 16 << 20

// ErrNoRoom says that the file system has not the free bytes for a copy.
var ErrNoRoom = errors.New("the disk has no room for a copy of the files")

// copyOf makes a layer of copies of the files of a directory.
func (s *Store) copyOf(ctx context.Context, p *pins, path string) ([]Layer, error) {
	own, err := ownerOf(path)
	if err != nil {
		return nil, err
	}
	name, err := p.newLayer()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(s.files(name), dirMode); err != nil {
		return nil, err
	}
	if err := s.copyTree(ctx, path, s.files(name), own, own); err != nil {
		return nil, errors.Join(err, removal.All(filepath.Join(s.dir, layersName, name)))
	}
	return []Layer{{name, own}}, nil
}

// copyInto fills a directory with the files of its snapshot, which is one layer where files are
// copied, see Begin. What an earlier try has left is removed first. A try that fails leaves no files.
func (s *Store) copyInto(ctx context.Context, trajectory uint64, h *home) error {
	if err := empty(h.Path); err != nil {
		return err
	}
	own, err := ownerOf(h.Path)
	if err != nil {
		return err
	}
	give := func() error { return nil }
	if h.Owner != nil { // else the directory itself says whose it is
		own = *h.Owner
		if give, err = withhold(h.Path, own); err != nil {
			return err
		}
	}
	if err := s.copyTree(ctx, s.files(h.Lower[0].Name), h.Path, h.Lower[0].owner, own); err != nil {
		return errors.Join(err, empty(h.Path), give())
	}
	h.Lower, h.Copied = nil, true
	return s.write(s.record(homesName, trajectory), h)
}

// withhold lets nobody but this process into a directory, until it is given to its owner: others could
// exchange what is in it for links while it is filled.
func withhold(dir string, own owner) (give func() error, err error) {
	info, err := os.Lstat(dir)
	if err == nil {
		err = errors.Join(os.Lchown(dir, os.Geteuid(), os.Getegid()), os.Chmod(dir, dirMode))
	}
	return func() error {
		return errors.Join(os.Lchown(dir, int(own.UID), int(own.GID)), os.Chmod(dir, info.Mode()))
	}, err
}

// empty removes what is in a directory.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, removal.All(filepath.Join(dir, e.Name())))
	}
	return err
}

// copying is a copy of a directory in progress. The files of one user become those of another.
//
// Nothing of its trajectory runs meanwhile, but others may be let into its directory, and exchange a
// file or a directory for a link or a pipe. So files are opened below the directory only, what a copy
// gets is that of the file that was opened, and what is made there is a directory if it is listed.
type copying struct {
	ctx     context.Context
	room    func() (bytes uint64, err error)
	from    *os.Root
	to      string
	was, is owner
	links   map[inode]string // the copies of files with several names
	dirs    []madeDir        // which get their owner, permissions and times last, the inner ones first
}

// inode is what the names of a file have in common.
type inode struct{ dev, ino uint64 }

type madeDir struct {
	path string
	info fs.FileInfo
}

// pathMax bounds the length of paths below the directory, in bytes.
const pathMax = 4096

// copyTree copies what is in a directory into another, which is empty. Files with several names stay
// one file, and holes in files stay holes. The error is ErrNoRoom if the file system is too full.
func (s *Store) copyTree(ctx context.Context, from, to string, was, is owner) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close()
	c := &copying{ctx: ctx, room: s.room, from: root, to: to, was: was, is: is, links: map[inode]string{}}
	err = c.tree(".")
	for i := len(c.dirs) - 1; i >= 0 && err == nil; i-- {
		err = c.dress(c.dirs[i].path, c.dirs[i].info)
	}
	return err
}

// tree copies a file, or a directory and what is in it.
func (c *copying) tree(path string) error {
	if len(path) > pathMax {
		return &fs.PathError{Op: "copy", Path: path[:pathMax], Err: syscall.ENAMETOOLONG}
	}
	info, err := c.from.Lstat(path)
	if err != nil {
		return err
	}
	target := filepath.Join(c.to, path)
	if !info.IsDir() {
		return c.leaf(path, target, info)
	}
	if _, err := c.one(path, target, info); err != nil {
		return err
	}
	c.dirs = append(c.dirs, madeDir{target, info})
	names, err := c.list(path)
	for _, name := range names {
		if err := c.tree(filepath.Join(path, name)); err != nil {
			return err
		}
	}
	return err
}

// leaf copies what is no directory. A socket is nothing without its process, and devices are not for
// trajectories.
func (c *copying) leaf(path, target string, info fs.FileInfo) error {
	if info.Mode()&(fs.ModeSocket|fs.ModeDevice|fs.ModeIrregular) != 0 {
		return c.mayTake(0)
	}
	st := info.Sys().(*syscall.Stat_t)
	id := inode{st.Dev, st.Ino}
	if first := c.links[id]; first != "" && st.Nlink > 1 {
		return os.Link(first, target)
	}
	of, err := c.one(path, target, info)
	if err == nil {
		err = c.dress(target, of)
	}
	if err == nil && st.Nlink > 1 {
		c.links[id] = target
	}
	return err
}

// list returns the names in a directory, in order.
func (c *copying) list(path string) ([]string, error) {
	d, err := c.from.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// mayTake is an error if the copy should end, or if so many bytes are not free.
func (c *copying) mayTake(bytes int64) error {
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	free, err := c.room()
	if err == nil && (free == 0 || free < uint64(bytes)) {
		err = fmt.Errorf("%w: %d MiB are free above what the agent leaves free", ErrNoRoom, free>>20)
	}
	return err
}

// one makes a file as another, without its owner and its time. It returns what the copy is of.
func (c *copying) one(from, to string, info fs.FileInfo) (fs.FileInfo, error) {
	if err := c.mayTake(0); err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir() && from == ".":
		return info, nil
	case mode.IsDir():
		return info, os.Mkdir(to, dirMode)
	case mode.IsRegular():
		return c.file(from, to)
	case mode.Type() == fs.ModeSymlink:
		target, err := c.from.Readlink(from)
		if err != nil {
			return nil, err
		}
		return info, os.Symlink(target, to)
	case mode.Type() == fs.ModeNamedPipe:
		return info, unix.Mkfifo(to, uint32(mode.Perm()))
	}
	return nil, fmt.Errorf("%s: %w", from, errExchanged)
}

// errExchanged says that a file became something else while its directory was copied.
var errExchanged = errors.New("it was exchanged while it was copied")

// file shares the blocks of a file where the file system can, and copies them where not.
func (c *copying) file(from, to string) (fs.FileInfo, error) {
	in, err := c.from.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a pipe by now, without a writer
	if err != nil {
		return nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", from, errExchanged)
	}
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		err = c.data(in, out, info.Size())
	}
	return info, errors.Join(err, out.Close())
}

// data copies what is not a hole.
func (c *copying) data(in, out *os.File, size int64) error {
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			return fmt.Errorf("find the data of %s: %w", in.Name(), err)
		}
		end, err := unix.Seek(int(in.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("find the holes of %s: %w", in.Name(), err)
		}
		if err := c.extent(in, out, begin, min(end, size)); err != nil {
			return err
		}
		at = end
	}
	return out.Truncate(size)
}

// extent copies the bytes from begin to end.
func (c *copying) extent(in, out *os.File, begin, end int64) error {
	_, err := in.Seek(begin, io.SeekStart)
	if err == nil {
		_, err = out.Seek(begin, io.SeekStart)
	}
	for begin < end && err == nil {
		step := min(copyStep, end-begin)
		if err = c.mayTake(step); err == nil {
			_, err = io.CopyN(out, in, step)
		}
		begin += step
	}
	return err
}

// dress gives a copy the owner, the permissions and the time of what it is a copy of.
func (c *copying) dress(path string, info fs.FileInfo) error {
	st := info.Sys().(*syscall.Stat_t)
	uid, gid := st.Uid, st.Gid
	if uid == c.was.UID {
		uid = c.is.UID
	}
	if gid == c.was.GID {
		gid = c.is.GID
	}
	if err := os.Lchown(path, int(uid), int(gid)); err != nil || info.Mode().Type() == fs.ModeSymlink {
		return err
	}
	return errors.Join(os.Chmod(path, info.Mode()), os.Chtimes(path, info.ModTime(), info.ModTime()))
}
