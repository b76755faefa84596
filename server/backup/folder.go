package backup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Folder keeps the newest backups of one cluster. One process at a time writes to it.
type Folder struct {
	dir    string
	retain int
	lock   *os.File
}

const (
	lockName = "lock"
	suffix   = ".backup"
)

// ErrTaken says that another process has the folder.
var ErrTaken = errors.New("another process writes backups to the folder")

// Take takes a folder, for a process that keeps so many backups in it. The kernel lets the
// folder go when the process ends, however it does. It removes what an earlier process
// left unfinished. ErrTaken: try again later.
func Take(dir string, retain int) (*Folder, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrTaken, dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	f := &Folder{dir: dir, retain: retain, lock: lock}
	list, err := os.ReadDir(dir)
	for _, item := range list {
		if name := item.Name(); strings.HasPrefix(name, ".") && strings.Contains(name, suffix+"-") && strings.HasSuffix(name, unfinished) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close lets the folder go.
func (f *Folder) Close() error { return f.lock.Close() }

// Kept is a backup in a folder, by its name.
type Kept struct {
	Path string
	Time time.Time
}

// Name returns the path of a backup of a time, which is also the order of names.
func (f *Folder) Name(at time.Time) string {
	return filepath.Join(f.dir, "rota-"+at.UTC().Format(stamp)+suffix)
}

const stamp = "20060102T150405.000000000Z"

// List returns the backups in the order of SortByAge. Other files are left out.
func (f *Folder) List(now time.Time) (out []Kept, err error) {
	list, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	for _, item := range list {
		if at, ok := TimeOf(item.Name()); ok {
			out = append(out, Kept{filepath.Join(f.dir, item.Name()), at})
		}
	}
	SortByAge(out, now)
	return out, nil
}

// SortByAge sorts backups, the oldest first. A backup that is dated after now was made while the
// clock was wrong. It comes before all others: if it counted as the newest, no backup would be due
// until its time, and each new one would be removed in its place.
func SortByAge(list []Kept, now time.Time) {
	slices.SortFunc(list, func(a, b Kept) int {
		if ahead := a.Time.After(now); ahead != b.Time.After(now) {
			if ahead {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Path, b.Path))
	})
}

// Newest returns the newest of sorted backups that was not made while the clock was wrong.
func Newest(sorted []Kept, now time.Time) (newest Kept, ok bool) {
	if len(sorted) == 0 || sorted[len(sorted)-1].Time.After(now) {
		return Kept{}, false
	}
	return sorted[len(sorted)-1], true
}

// TimeOf returns the time that the name of a backup in a folder says; ok is false for other names.
func TimeOf(name string) (at time.Time, ok bool) {
	text, ours := strings.CutPrefix(strings.TrimSuffix(name, suffix), "rota-")
	at, err := time.Parse(stamp, text)
	return at, ours && err == nil && strings.HasSuffix(name, suffix)
}

// Prune removes the oldest backups beyond those that are kept, and returns how many there
// are then.
func (f *Folder) Prune(now time.Time) (int, error) {
	list, err := f.List(now)
	for len(list) > f.retain && err == nil {
		err = os.Remove(list[0].Path)
		list = list[1:]
	}
	if err == nil {
		err = syncDir(f.dir)
	}
	return len(list), err
}
