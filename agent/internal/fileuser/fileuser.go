package fileuser

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrNotGivenBack means that a thread still has the rights of another user.
var ErrNotGivenBack = errors.New("give back the rights of another user")

// ID is a user, its group, and its supplementary groups.
type ID struct {
	User, Group int
	Groups      []int
}

// Do calls do with the user's rights to files, on a thread of its own. The kernel keeps the user of
// accesses to files for each thread. A thread that cannot be given back as it was ends with its goroutine.
func (id ID) Do(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := id.DoOnThread(do)
		if !errors.Is(err, ErrNotGivenBack) {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// DoOnThread is Do on the calling thread, which must be locked. After ErrNotGivenBack the thread must
// do nothing more.
func (id ID) DoOnThread(do func() error) error {
	before, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("read the groups of this process: %w", err)
	}
	if err = id.set(); err != nil {
		err = fmt.Errorf("take the rights of user %d: %w", id.User, err)
	} else {
		err = do()
	}
	if back := (ID{unix.Geteuid(), unix.Getegid(), before}).set(); back != nil {
		return errors.Join(err, fmt.Errorf("%w: %w", ErrNotGivenBack, back))
	}
	return err
}

// set makes this the user of accesses to files of this thread.
func (id ID) set() error {
	if err := unix.Setgroups(id.Groups); err != nil {
		return err
	}
	for _, set := range []struct {
		call func(int) (int, error)
		id   int
	}{{unix.SetfsgidRetGid, id.Group}, {unix.SetfsuidRetUid, id.User}} {
		if _, err := set.call(set.id); err != nil {
			return err
		}
		if now, err := set.call(-1); err != nil || now != set.id { // -1 changes nothing
			return errors.Join(fmt.Errorf("file system ID %d was refused", set.id), err)
		}
	}
	return nil
}
