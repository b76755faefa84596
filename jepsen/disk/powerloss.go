package disk

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Loss is what a power loss had to decide about.
type Loss struct {
	// Changes are the writes and truncations that no fsync had made durable.
	Changes int
	// Files are the paths of the files that they are of, relative to the mount point.
	Files []string
	// Names are the steps that no fsync of a folder had made durable, and
	// NamesKept how many of them survived.
	Names, NamesKept int
}

func (l Loss) String() string {
	return fmt.Sprintf("%d un-synced changes of files, %d of names of which %d survived", l.Changes, l.Names, l.NamesKept)
}

// loss renders what a power loss leaves of a volume into another folder.
type loss struct {
	*volume
	rand *rand.Rand // nil: nothing survives that was not synced
	Loss
	rendered map[*inode]string // files that have a name already
}

// powerLoss ends the volume and puts what survives in place of its folder.
func (v *volume) powerLoss(r *rand.Rand) (Loss, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dead = true
	l := &loss{volume: v, rand: r, rendered: make(map[*inode]string), Loss: Loss{Names: len(v.pending)}}
	if r != nil {
		l.NamesKept = r.IntN(len(v.pending) + 1)
	}
	for _, step := range v.pending[:l.NamesKept] {
		step.persist()
	}
	after := v.root + ".after"
	if err := os.RemoveAll(after); err != nil {
		return l.Loss, err
	}
	if err := l.folder(v.top, v.root, after); err != nil {
		return l.Loss, fmt.Errorf("render what survives: %w", err)
	}
	v.close()
	if err := os.RemoveAll(v.root); err != nil {
		return l.Loss, err
	}
	return l.Loss, os.Rename(after, v.root)
}

// folder renders a folder; attributes come from a path that has them.
func (l *loss) folder(dir *inode, like, path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(dir.durable)) {
		if err := l.entry(dir.durable[name], path+"/"+name); err != nil {
			return err
		}
	}
	return attributes(like, path)
}

func (l *loss) entry(n *inode, path string) error {
	switch n.kind() {
	case syscall.S_IFDIR:
		// A folder that was removed has no attributes any more: the root's do.
		like := l.path(n)
		if n.parent.live[n.name] != n {
			like = l.root
		}
		return l.folder(n, like, path)
	case syscall.S_IFREG:
		if first, ok := l.rendered[n]; ok {
			return os.Link(first, path)
		}
		l.rendered[n] = path
		return l.file(n, path)
	}
	// A socket or a symbolic link; if its name is gone, so is what it was.
	if n.links == 0 {
		return nil
	}
	return os.Link(l.path(n), path)
}

func (l *loss) file(n *inode, path string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if changes := len(n.content.pending); changes > 0 {
		l.Changes += changes
		l.Files = append(l.Files, strings.TrimPrefix(l.path(n), l.root+"/"))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	size, differ := n.content.remains(l.rand)
	if _, err := io.Copy(f, io.NewSectionReader(n.file, 0, n.content.live)); err != nil {
		return err
	}
	for s, image := range differ {
		if image == nil {
			image = make([]byte, sector)
		}
		if _, err := f.WriteAt(image, s*sector); err != nil {
			return err
		}
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	return attributes(fmt.Sprintf("/proc/self/fd/%d", n.file.Fd()), path)
}

// attributes gives a new file or folder the owner and the mode of another.
func attributes(like, path string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(path, info.Mode())
}
