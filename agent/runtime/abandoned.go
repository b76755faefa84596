package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// claimTries, of a millisecond each, is how long a base may be looked at by a supervisor that removes
// what was abandoned.
const claimTries = 1000

// claim holds the lock of the base for as long as this process lives, so that others see that it is in
// use. It fails if the base was removed before the lock was held.
func (h *hierarchy) claim() error {
	f, err := lockedDir(h.base, unix.LOCK_SH)
	for i := 0; i < claimTries && errors.Is(err, unix.EWOULDBLOCK); i++ {
		time.Sleep(time.Millisecond)
		f, err = lockedDir(h.base, unix.LOCK_SH)
	}
	if err != nil {
		return fmt.Errorf("claim cgroup: %w", err)
	}
	held, err := f.Stat()
	if there, lost := os.Stat(h.base); err != nil || lost != nil || !os.SameFile(held, there) {
		f.Close()
		return fmt.Errorf("claim cgroup %s: it was removed meanwhile", h.base)
	}
	if h.claimed != nil { // of a base that could not be used
		h.claimed.Close()
	}
	h.claimed = f
	return nil
}

// lockedDir opens a directory and locks it. It does not wait for whoever has the lock.
func lockedDir(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return f, nil
}

// ours are all hierarchies with a base of this supervisor: those in use, and those that it was only moved in.
func (c *cgroups) ours() []*hierarchy {
	out := slices.Clone(c.hierarchies())
	for _, h := range c.moved {
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// removeAbandoned removes the empty cgroups of supervisors that were killed, and whose directory no
// other has taken over since. The kernel looks at all cpusets of a machine each time that one
// changes, so thousands of them slow all attempts down.
func (c *cgroups) removeAbandoned() {
	for _, h := range c.ours() {
		parent := filepath.Dir(h.base)
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			select {
			case <-c.boxes.quit:
				return
			default:
			}
			if base := filepath.Join(parent, e.Name()); base != h.base && exists(filepath.Join(base, supervisorCgroup)) {
				removeBaseOf(base)
			}
		}
	}
}

// removeBaseOf removes a base that no supervisor lives in. What still runs keeps its cgroups, for the
// next supervisor of that directory to end it.
func removeBaseOf(base string) {
	lock, err := lockedDir(base, unix.LOCK_EX)
	if err != nil {
		return
	}
	defer lock.Close()
	if len(readPIDs(filepath.Join(base, supervisorCgroup, "cgroup.procs"))) > 0 {
		return // of an earlier version, which has no lock
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = syscall.Rmdir(filepath.Join(base, e.Name()))
		}
	}
	_ = syscall.Rmdir(base)
}
