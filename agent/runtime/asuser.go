package runtime

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// errNotGivenBack means that a thread still has the rights of an attempt's user.
var errNotGivenBack = errors.New("give back the rights of an attempt's user")

// as does something with the rights to files that the attempt's user has: the supervisor may reach
// more, and what a client names must not be reached with that.
func (o owner) as(do func() error) error {
	if !o.other() {
		return do()
	}
	done := make(chan error, 1)
	go func() {
		goruntime.LockOSThread()
		err := o.asOnThread(do)
		if !errors.Is(err, errNotGivenBack) {
			goruntime.UnlockOSThread() // otherwise the thread ends with this
		}
		done <- err
	}()
	return <-done
}

// other says whether the attempt's user is another than the supervisor's.
func (o owner) other() bool { return o.user != nil && os.Geteuid() == 0 }

// asOnThread is as for the calling thread, which must be locked. After errNotGivenBack it must do
// nothing more.
func (o owner) asOnThread(do func() error) error {
	if !o.other() {
		return do()
	}
	before, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("read the groups of the supervisor: %w", err)
	}
	var groups []int
	for _, g := range o.groups {
		groups = append(groups, int(g))
	}
	err = setFileUser(int(o.user.uid), int(o.user.gid), groups)
	if err != nil {
		err = fmt.Errorf("take the rights of user %d: %w", o.user.uid, err)
	} else {
		err = do()
	}
	if back := setFileUser(unix.Geteuid(), unix.Getegid(), before); back != nil {
		return errors.Join(err, fmt.Errorf("%w: %w", errNotGivenBack, back))
	}
	return err
}

// setFileUser sets the user and the groups of accesses to files of this thread.
func setFileUser(user, group int, groups []int) error {
	if err := unix.Setgroups(groups); err != nil {
		return err
	}
	for _, set := range []struct {
		call func(int) (int, error)
		id   int
	}{{unix.SetfsgidRetGid, group}, {unix.SetfsuidRetUid, user}} {
		if _, err := set.call(set.id); err != nil {
			return err
		}
		if now, err := set.call(-1); err != nil || now != set.id { // -1 changes nothing
			return errors.Join(fmt.Errorf("file system ID %d was refused", set.id), err)
		}
	}
	return nil
}
