package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another process holds a lock.
var ErrLocked = errors.New("in use by another process")

// Replace puts data in place of the file at path, atomically and durably, and returns
// it open, positioned at its end. If that fails, nothing of the new file stays, unless it is in place
// and may not be durable.
func Replace(path string, data []byte) (*os.File, error) {
	f, err := replace(path, data, (*os.File).Sync)
	if err != nil {
		return nil, err
	}
	if err := SyncDir(filepath.Dir(path)); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReplaceSoon is Replace that does not wait for the disk. After a crash of the machine the file may be
// the old one, the new one, or damaged.
func ReplaceSoon(path string, data []byte) (*os.File, error) {
	return replace(path, data, func(*os.File) error { return nil })
}

func replace(path string, data []byte, sync func(*os.File) error) (_ *os.File, err error) {
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path + ".new") // on a full disk it takes what others need
			_ = f.Close()
		}
	}()
	if _, err := f.Write(data); err != nil {
		return nil, err
	}
	if err := sync(f); err != nil {
		return nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, err
	}
	return f, nil
}

// ReplaceJSON is Replace with a value as JSON, for a file that nobody appends to.
func ReplaceJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	f, err := Replace(path, data)
	if err != nil {
		return err
	}
	return f.Close()
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Lock takes a lock on the file at path, which the kernel gives back when the process
// dies. It fails with ErrLocked.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}

const (
	// reserveBytes are more than a journal grows by while no new work comes.
	reserveBytes = 1 << 20
	reserveAgain = 4 << 10
)

// Reserve sets space aside behind the end of a file that is appended to: a disk that an
// attempt has filled must not keep a journal from saying how attempts ended. It returns
// the size from which it is to be called again. A file system that cannot do it, and a
// disk that is full already, do without.
func Reserve(f *os.File, size int64) (again int64) {
	if unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, reserveBytes) != nil {
		return size + reserveAgain
	}
	return size + reserveBytes/2
}
