package kvfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/internal/mountinfo"
	"rota/agent/tier"
)

const (
	// fsName is what the kernel lists as source of the mounts, and filesKind as type of the upper one.
	fsName    = "rota-kv"
	filesKind = "fuse." + fsName
	floorKind = "tmpfs"
	// requestBytes is the most that one read or write carries.
	requestBytes = 1 << 20
	// remountEvery is how often a directory that was unmounted by others is mounted again.
	remountEvery = 5 * time.Second
	// statMax is how long a mount of another process may take to answer.
	statMax = 5 * time.Second
)

var (
	// ErrNoFUSE means that this machine or this user cannot mount FUSE file systems.
	ErrNoFUSE = errors.New("cannot serve a directory: it needs root and /dev/fuse (kernel module fuse)")
	// ErrDir means that the directory is not one to serve the cache at.
	ErrDir = errors.New("cannot serve the cache there")
)

// Options say what is served where.
type Options struct {
	Store *tier.Store
	// Dir is the mount point. It is created, for the user of this process only, if it does not
	// exist. Otherwise its owner and mode say who may read and write the files.
	Dir string
	// Program has the command GuardCommand, which calls Guard; empty: nothing takes the mount away
	// if this process is killed, and the directory fails until the next Mount.
	Program string
	Logger  hclog.Logger // nil: none
}

// Dir is a directory that serves a store.
type Dir struct {
	options Options
	path    string
	fs      *filesystem
	guard   *guard        // nil: none
	ended   chan struct{} // closed when the mount that is served has ended
	mounted atomic.Bool
}

// Mount serves a store at a directory. It takes a mount away that an earlier process has left, and
// fails with ErrDir if another process serves the directory or it cannot be used, and with ErrNoFUSE.
func Mount(o Options) (*Dir, error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	path, err := resolve(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDir, o.Dir, err)
	}
	d := &Dir{options: o, path: path}
	if err := d.mount(); err != nil {
		return nil, err
	}
	return d, nil
}

// resolve makes a path absolute, and resolves links in it but for the last element: a dead mount
// there could not be looked at.
func resolve(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if abs == "/" {
		return "", errors.New("it is the root directory")
	}
	if err := os.MkdirAll(filepath.Dir(abs), 0o755); err != nil {
		return "", err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	return filepath.Join(parent, filepath.Base(abs)), err
}

// mount mounts the directory and begins to serve it.
func (d *Dir) mount() error {
	d.guard.end()
	d.guard = nil
	if err := clearStale(d.path); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDir, d.path, err)
	}
	st, err := d.prepare()
	if err == nil {
		err = mountFloor(d.path, st)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDir, d.path, err)
	}
	if err := d.mountFiles(st); err != nil {
		return errors.Join(err, unmount(d.path))
	}
	if d.options.Program == "" {
		return nil
	}
	if d.guard, err = startGuard(d.options.Program, d.path); err != nil {
		d.options.Logger.Warn("if the agent is killed, the directory of the KV cache will fail until the next one has begun", "directory", d.path, "error", err)
	}
	return nil
}

// mountFloor mounts an empty directory that nobody can write, with the same owner and mode. It is
// what is seen when the files are gone: an engine that runs as root would otherwise fill the file
// system below with pages that nobody counts.
func mountFloor(path string, st unix.Stat_t) error {
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	options := fmt.Sprintf("size=4k,mode=%o,uid=%d,gid=%d", st.Mode&0o777, st.Uid, st.Gid)
	if err := unix.Mount(fsName, path, floorKind, flags, options); err != nil {
		return fmt.Errorf("%w: mount an empty directory: %w", ErrNoFUSE, err)
	}
	return nil
}

// mountFiles mounts the files and begins to serve them.
func (d *Dir) mountFiles(st unix.Stat_t) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: open /dev/fuse: %w", ErrNoFUSE, err)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d,max_read=%d,allow_other,default_permissions",
		fd, unix.S_IFDIR, os.Geteuid(), os.Getegid(), requestBytes)
	if err := unix.Mount(fsName, d.path, filesKind, flags, options); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("%w: mount on %s: %w", ErrNoFUSE, d.path, err)
	}
	d.fs = newFilesystem(d.options, st)
	served := d.fsOptions()
	server, err := fuse.NewServer(fusefs.NewNodeFS(&root{fs: d.fs}, served), fmt.Sprintf("/dev/fd/%d", fd), &served.MountOptions)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrNoFUSE, err), unmount(d.path))
	}
	ended := make(chan struct{})
	d.ended = ended
	d.mounted.Store(true)
	go func() {
		defer close(ended)
		defer d.mounted.Store(false)
		server.Serve()
		server.Wait()
	}()
	return nil
}

// fsOptions turn the caches of the kernel off: what a value is may change through other doors.
func (d *Dir) fsOptions() *fusefs.Options {
	var none time.Duration
	logger := log.New(d.options.Logger.StandardWriter(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}), "", 0)
	return &fusefs.Options{
		EntryTimeout: &none, AttrTimeout: &none, NegativeTimeout: &none, Logger: logger,
		MountOptions: fuse.MountOptions{
			FsName: fsName, Name: fsName, Logger: logger, MaxWrite: requestBytes,
			ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC, DisableXAttrs: true, DisableReadDirPlus: true,
		},
	}
}

// prepare makes the directory, or looks at the one that is there.
func (d *Dir) prepare() (st unix.Stat_t, err error) {
	if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return st, err
	}
	if err := unix.Lstat(d.path, &st); err != nil {
		return st, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return st, errors.New("it is not a directory")
	}
	if st.Mode&0o007 != 0 {
		return st, fmt.Errorf("every user of this machine may use it (mode %#o), and KV caches tell what prompts said; "+
			"give it to the user of the engine: chown USER %s && chmod 700 %s", st.Mode&0o777, d.path, d.path)
	}
	hidden, err := os.ReadDir(d.path)
	if len(hidden) > 0 {
		d.options.Logger.Warn("the directory of the KV cache has files of its own, which cannot be seen while the cache is mounted there; "+
			"stop the agent and move them away to free their space", "directory", d.path, "files", len(hidden))
	}
	return st, err
}

// clearStale takes mounts of earlier processes away. It fails if one lives, or does not answer.
func clearStale(path string) error {
	for {
		kind, err := mountedAt(path)
		if err != nil || kind == "" {
			return err
		}
		if kind == floorKind {
			if err := unmount(path); err != nil {
				return fmt.Errorf("unmount what an earlier agent has left: %w", err)
			}
			continue
		}
		if err := answers(path); err == nil {
			return errors.New("another agent serves a KV cache there; give each agent a directory of its own")
		} else if !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) {
			return fmt.Errorf("a KV cache is mounted there and does not answer: %w; unmount it with: umount -l %s", err, path)
		}
		if err := unmount(path); err != nil {
			return fmt.Errorf("unmount what an earlier agent has left: %w", err)
		}
	}
}

// answers looks at a mount that may hang.
func answers(path string) error {
	done := make(chan error, 1)
	go func() {
		var st unix.Stat_t
		done <- unix.Lstat(path, &st)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(statMax):
		return unix.ETIMEDOUT
	}
}

// mountedAt returns the type of the file system that is mounted on top at a path, if it is one of
// this package; otherwise it is empty.
func mountedAt(path string) (kind string, err error) {
	mounts, err := mountinfo.Read()
	if err != nil {
		return "", err
	}
	return lastMount(mounts, path), nil
}

func lastMount(mounts []mountinfo.Mount, path string) (kind string) {
	for _, m := range mounts {
		if m.Point != path {
			continue
		}
		if kind = m.Type; m.Source != fsName {
			kind = ""
		}
	}
	return kind
}

// unmount ends the connection too, so that no process waits for an answer.
func unmount(path string) error { return unix.Unmount(path, unix.MNT_FORCE|unix.MNT_DETACH) }

// Path is where the directory is.
func (d *Dir) Path() string { return d.path }

// Mounted says whether the files can be seen there now.
func (d *Dir) Mounted() bool { return d.mounted.Load() }

// Serve returns when the context ends. If somebody else unmounts the directory meanwhile, it mounts
// it again.
func (d *Dir) Serve(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ended:
		}
		d.fs.close()
		err := d.mount()
		if err == nil {
			d.options.Logger.Warn("the directory of the KV cache was unmounted, and is mounted again", "directory", d.path)
			continue
		}
		d.options.Logger.Error("the directory of the KV cache was unmounted; trying to mount it again", "directory", d.path, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(remountEvery):
		}
	}
}

// Close unmounts the directory, also for processes that have files of it open: they fail from then
// on. Serve must have returned.
func (d *Dir) Close() error {
	select {
	case <-d.ended:
	default:
		if err := unmount(d.path); err != nil {
			return fmt.Errorf("unmount %s: %w", d.path, err)
		}
		<-d.ended
	}
	d.fs.close()
	d.guard.end()
	if err := clearStale(d.path); err != nil {
		return fmt.Errorf("unmount %s: %w", d.path, err)
	}
	return nil
}
