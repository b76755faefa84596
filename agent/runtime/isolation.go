package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// isolation is what keeps attempts apart, beside what confines each.
type isolation struct {
	owners *owners
	cells  *cells // nil: none
	// missing says in words what is not done here.
	missing []string
}

var errNotRoot = errors.New("agent is not root")

// isolate decides what can be done on this machine. What was insisted on and cannot
// be had is an error; what is automatic is done without, which is said.
func (s *supervisor) isolate() error {
	uids, uidErr := s.opts.attemptUIDs()
	if uidErr == nil && uids.any() {
		uidErr = s.opts.mayOwn(uids)
	}
	var cellErr error
	switch {
	case s.opts.Namespaces == "":
		cellErr = s.opts.whyNot()
	case os.Geteuid() != 0:
		cellErr = errNotRoot
	default:
		s.isolation.cells, cellErr = newCells(s.devNull)
	}
	if err := s.opts.insist(uidErr, cellErr); err != nil {
		return err
	}
	if uidErr != nil {
		uids = uidRange{}
	}
	s.isolation.missing = s.opts.isolationMissing(uidErr, cellErr)
	return s.openOwners(uids)
}

func (s *supervisor) openOwners(uids uidRange) (err error) {
	tmps := ""
	if uids.any() || s.isolation.cells != nil {
		tmps = filepath.Join(s.opts.Dir, tmpName)
	}
	s.isolation.owners, err = newOwners(tmps, filepath.Join(s.opts.Dir, homesName), uids, s.user, s.log)
	return err
}

// whyNot says why nothing is asked for.
func (o SuperviseOptions) whyNot() error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	return errors.New("turned off")
}

// attemptUIDs returns the range that is asked for, or why there is none.
func (o SuperviseOptions) attemptUIDs() (uidRange, error) {
	switch {
	case o.AttemptUIDs == Auto && os.Geteuid() != 0:
		return uidRange{}, errNotRoot
	case o.AttemptUIDs == Auto:
		return parseUIDs(DefaultAttemptUIDs)
	case o.AttemptUIDs != "":
		return parseUIDs(o.AttemptUIDs)
	case o.User != "":
		return uidRange{}, errors.New("--run-as")
	}
	return uidRange{}, o.whyNot()
}

// mayOwn tries whether files can be given to the users of a range, which a user
// namespace may not have, and whether this process may become them.
func (o SuperviseOptions) mayOwn(uids uidRange) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	for name, bit := range map[string]uint{"SETUID": unix.CAP_SETUID, "SETGID": unix.CAP_SETGID, "KILL": unix.CAP_KILL} {
		if caps[0].Effective&(1<<bit) == 0 {
			return fmt.Errorf("agent lacks CAP_%s", name)
		}
	}
	f, err := o.fileToOwn()
	if err != nil {
		return err
	}
	defer f.Close()
	for _, uid := range []uint32{uids.first, uids.last} {
		if err := f.Chown(int(uid), int(uid)); err != nil {
			return fmt.Errorf("chown to %d: %w", uid, errors.Unwrap(err))
		}
	}
	return nil
}

// fileToOwn makes a file that is gone when it is closed. On a disk that is full it is one in memory:
// attempts must not share a user because there is no room to try.
func (o SuperviseOptions) fileToOwn() (*os.File, error) {
	f, err := os.CreateTemp(o.Dir, "owner-*")
	switch {
	case err == nil:
		os.Remove(f.Name())
		return f, nil
	case !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT):
		return nil, err
	}
	fd, err := unix.MemfdCreate("owner", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), "owner"), nil
}

// insist returns an error if something is missing that is not automatic.
func (o SuperviseOptions) insist(uids, namespaces error) error {
	if o.AttemptUIDs != "" && o.AttemptUIDs != Auto && uids != nil {
		return fmt.Errorf("%w: no attempt can have a user of its own: %w", ErrInvalidOptions, uids)
	}
	if o.Namespaces == On && namespaces != nil {
		return fmt.Errorf("%w: no attempt can have namespaces of its own: %w", ErrInvalidOptions, namespaces)
	}
	return nil
}

// isolationMissing says what attempts have in common, and why.
func (o SuperviseOptions) isolationMissing(uids, namespaces error) []string {
	switch {
	case uids != nil && namespaces != nil && uids.Error() == namespaces.Error():
		return []string{"shared uid, no namespaces: " + uids.Error()}
	case uids != nil && namespaces != nil:
		return []string{"shared uid: " + uids.Error(), "no namespaces: " + namespaces.Error()}
	case uids != nil:
		return []string{"shared uid: " + uids.Error()}
	case namespaces != nil:
		return []string{"no namespaces: " + namespaces.Error()}
	}
	return nil
}

func (i *isolation) close() {
	if i.cells != nil {
		i.cells.close()
	}
	if i.owners != nil {
		i.owners.close()
	}
}
