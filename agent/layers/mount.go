package layers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"rota/agent/internal/mountinfo"
)

// mountOptionsMax is what the kernel takes: a page, with a zero at its end.
const mountOptionsMax = 4095

// mount mounts the layers of a directory over it, as the files of its owner.
func (s *Store) mount(h *home) error {
	own, err := s.ownerIn(h)
	if err != nil {
		return err
	}
	lower := make([]string, 0, len(h.Lower))
	for _, l := range h.Lower {
		path := s.files(l.Name)
		if l.owner != own {
			mapped, err := mapOwner(path, l.owner, own)
			if err != nil {
				return err
			}
			defer mapped.Close()
			path = fmt.Sprintf("/proc/self/fd/%d", mapped.Fd())
		}
		lower = append(lower, path)
	}
	if err := overlay(h.Path, strings.Join(lower, ":"), s.files(h.Upper), s.work(h.Upper)); err != nil {
		return fmt.Errorf("mount %d layers: %w", len(lower), err)
	}
	return nil
}

func overlay(at, lower, upper, work string) error {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on", lower, upper, work)
	if len(options) > mountOptionsMax {
		return fmt.Errorf("its options have %d bytes: give the agent a shorter data directory", len(options))
	}
	return unix.Mount("overlay", at, "overlay", unix.MS_NODEV|unix.MS_NOSUID, options)
}

// mapOwner opens a directory in which the files of one user are those of another. Those of root stay
// root's.
func mapOwner(path string, from, to owner) (*os.File, error) {
	users, err := userNamespace(from, to)
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	defer users.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open %s as a mount: %w", path, err)
	}
	tree := os.NewFile(uintptr(fd), path)
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map the owner of %s: %w", path, err), tree.Close())
	}
	return tree, nil
}

// userNamespace is one whose only users are the two that are mapped, and root. The process that it is
// made with waits for nothing but its end.
func userNamespace(from, to owner) (*os.File, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, Ptrace: true, Pdeathsig: syscall.SIGKILL,
		UidMappings: mappings(from.UID, to.UID), GidMappings: mappings(from.GID, to.GID),
	}
	return stopped(cmd)
}

func mappings(from, to uint32) []syscall.SysProcIDMap {
	out := []syscall.SysProcIDMap{{ContainerID: int(from), HostID: int(to), Size: 1}}
	if from != 0 && to != 0 {
		out = append(out, syscall.SysProcIDMap{ContainerID: 0, HostID: 0, Size: 1})
	}
	return out
}

// isMount reports whether something is mounted at a directory.
func isMount(path string) (bool, error) {
	var own, above unix.Stat_t
	if err := errors.Join(unix.Lstat(path, &own), unix.Lstat(filepath.Dir(path), &above)); err != nil {
		return false, err
	}
	return own.Dev != above.Dev, nil
}

// Shared reports whether what is mounted in a directory is seen in mount namespaces that were made
// before as slaves of this one.
func Shared(dir string) bool {
	mounts, err := mountinfo.Read()
	if err != nil {
		return false
	}
	at, shared := "", false
	for _, m := range mounts {
		point := strings.TrimSuffix(m.Point, "/")
		if len(point) >= len(at) && (dir == point || strings.HasPrefix(dir, point+"/")) {
			at, shared = point, m.Shared
		}
	}
	return shared
}

// unmount ends the mount at a directory, unless something uses it.
func unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	switch {
	case errors.Is(err, unix.EBUSY):
		return ErrInUse
	case errors.Is(err, unix.EINVAL):
		return nil // nothing is mounted there
	}
	return err
}

// Overlays reports whether snapshots share files. Otherwise they are copied.
func (s *Store) Overlays() bool {
	s.probing.Lock()
	defer s.probing.Unlock()
	return s.overlays
}

// mounts is Overlays for what is about to take or use a snapshot: what could not be told before is tried
// again. If the answer is not certain, why says what is in the way.
func (s *Store) mounts() (can bool, why error) {
	s.probing.Lock()
	defer s.probing.Unlock()
	if s.unknown != nil {
		if s.tryMounts(); s.overlays {
			s.log.Info("layers can be mounted now")
		}
	}
	return s.overlays, s.unknown
}

// tryMounts finds out whether layers can be mounted. A lack of something, such as room on the disk, says
// nothing about that: it would turn layers off for as long as the agent runs.
func (s *Store) tryMounts() {
	err := s.probe(filepath.Join(s.dir, "probe"))
	s.overlays, s.unknown = err == nil, nil
	if lacks(err) {
		s.unknown = err
	}
}

// lacks reports whether an error is about something that there may be enough of later.
func lacks(err error) bool {
	for _, passing := range []error{unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.ENOMEM} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

var errNotRoot = errors.New("layers are mounted by root only")

// probe is an error if this process cannot mount layers of other users on the file system of a
// directory, which it makes and removes.
func probe(dir string) error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	_ = unix.Unmount(filepath.Join(dir, "at"), unix.UMOUNT_NOFOLLOW)
	_ = os.RemoveAll(dir)
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{dir, at("lower"), at("upper"), at("work"), at("at")} {
		if err := os.Mkdir(d, dirMode); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Lchown(at("lower"), 1, 1), os.WriteFile(at("lower/file"), nil, 0o600)); err != nil {
		return err
	}
	mapped, err := mapOwner(at("lower"), owner{1, 1}, owner{2, 2})
	if err != nil {
		return err
	}
	defer mapped.Close()
	if err := overlay(at("at"), fmt.Sprintf("/proc/self/fd/%d", mapped.Fd()), at("upper"), at("work")); err != nil {
		return err
	}
	defer func() { _ = unix.Unmount(at("at"), unix.UMOUNT_NOFOLLOW) }()
	err = errors.Join(os.Rename(at("at/file"), at("at/other")), os.WriteFile(at("at/third"), nil, 0o600))
	if errors.Is(err, unix.EROFS) {
		// So the kernel mounts it without room for a directory of its own.
		err = errors.Join(err, unix.ENOSPC)
	}
	return err
}
