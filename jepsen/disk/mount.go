package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// FS is a mounted disk.
type FS struct {
	server     *fuse.Server
	mountpoint string
	faults     faults
	volume     atomic.Pointer[volume]
	losing     sync.Mutex // one power loss at a time
}

// Mount mounts a disk over the folder backing, which must exist and which only
// the disk changes from then on. It needs root and /dev/fuse. The calling
// process must not use the mount point.
func Mount(backing, mountpoint string) (*FS, error) {
	backing, mountpoint, err := apart(backing, mountpoint)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	v, err := openVolume(backing, 0)
	if err != nil {
		return nil, fmt.Errorf("disk: read %s: %w", backing, err)
	}
	f := &FS{mountpoint: mountpoint}
	f.faults.fail, f.faults.hang = make(map[Op]int), make(map[Op]*hang)
	f.volume.Store(v)
	if f.server, err = fs.Mount(mountpoint, &node{fs: f}, options()); err != nil {
		v.close()
		return nil, fmt.Errorf("disk: mount on %s: %w; it needs root and /dev/fuse", mountpoint, err)
	}
	return f, nil
}

// apart makes both paths absolute and refuses one inside the other.
func apart(backing, mountpoint string) (string, string, error) {
	var err error
	for _, path := range []*string{&backing, &mountpoint} {
		if *path, err = filepath.Abs(*path); err == nil {
			*path, err = filepath.EvalSymlinks(*path)
		}
		if err != nil {
			return "", "", err
		}
	}
	if strings.HasPrefix(mountpoint+"/", backing+"/") || strings.HasPrefix(backing+"/", mountpoint+"/") {
		return "", "", fmt.Errorf("the folder %s and the mount point %s must lie apart", backing, mountpoint)
	}
	return backing, mountpoint, nil
}

// options turn every cache of the kernel off that a power loss would have to
// clear. Pages of open files stay, or they could not be mapped. The kernel must not
// drop them because the time of a file has changed, or because it is opened: it would
// drop those of a write that is under way, too, and fill them with what the write has
// not replaced yet.
func options() *fs.Options {
	var none time.Duration
	return &fs.Options{
		EntryTimeout: &none, AttrTimeout: &none, NegativeTimeout: &none,
		NullPermissions: true,
		MountOptions: fuse.MountOptions{
			FsName: "rota-disk", Name: "rota-disk",
			DirectMountStrict:  true,
			AllowOther:         true,
			Options:            []string{"default_permissions"},
			DisableXAttrs:      true,
			DisableReadDirPlus: true,
			MaxWrite:           1 << 20,

			ExplicitDataCacheControl: true,
		},
	}
}

// PowerLoss leaves in the folder what a power loss would, as the comment of the
// package says; with tear, a random part of what was not synced, by the seed.
// The processes that use the disk should be dead: whatever they have open
// answers EIO from then on. The disk is usable at once.
func (f *FS) PowerLoss(seed uint64, tear bool) (Loss, error) {
	f.losing.Lock()
	defer f.losing.Unlock()
	var r *rand.Rand
	if tear {
		r = rand.New(rand.NewPCG(seed, 0))
	}
	v := f.volume.Load()
	lost, err := v.powerLoss(r)
	if err != nil {
		return lost, fmt.Errorf("disk: power loss: %w", err)
	}
	next, err := openVolume(v.root, v.last)
	if err != nil {
		return lost, fmt.Errorf("disk: power loss: %w", err)
	}
	f.volume.Store(next)
	f.faults.mu.Lock()
	f.faults.counts.PowerLosses++
	f.faults.mu.Unlock()
	return lost, nil
}

// Close heals and unmounts the disk, also for processes that still use it:
// whatever they have open fails from then on.
func (f *FS) Close() error {
	f.Heal()
	// Forced, because copies of the mount in other namespaces keep it alive.
	err := unix.Unmount(f.mountpoint, unix.MNT_FORCE|unix.MNT_DETACH)
	if err == nil {
		f.server.Wait()
	}
	v := f.volume.Load()
	closed := v.change(func() error {
		v.dead = true
		v.close()
		return nil
	})
	if err = errors.Join(err, closed); err != nil {
		return fmt.Errorf("disk: close %s: %w", f.mountpoint, err)
	}
	return nil
}

// Backing is the folder below.
func (f *FS) Backing() string { return f.volume.Load().root }
