package simulated

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrOutOfMemory means that a simulated GPU has less memory left than was asked for.
var ErrOutOfMemory = errors.New("simulated GPU: CUDA out of memory")

// account is who has how much memory of simulated GPUs: a folder with a file for each process
// and GPU. A file counts for as long as its process holds a lock on it, so a process that dies
// gives its memory back, as on a real GPU.
type account struct {
	dir             string
	gpus            []int
	bytes, capacity uint64
	held            []*os.File
}

// Take takes the memory, all of it or none.
func (a *account) Take() error {
	if a.dir == "" || a.held != nil {
		return nil
	}
	lock, err := lockFile(filepath.Join(a.dir, "lock"), unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, gpu := range a.gpus {
		used, err := Used(a.dir, gpu)
		if err != nil {
			return err
		}
		if used+a.bytes > a.capacity {
			return fmt.Errorf("%w: GPU %d has %d bytes in use of %d, and %d were asked for", ErrOutOfMemory, gpu, used, a.capacity, a.bytes)
		}
	}
	for _, gpu := range a.gpus {
		f, err := lockFile(filepath.Join(a.dir, fmt.Sprintf("gpu-%d.%d", gpu, os.Getpid())), unix.LOCK_EX)
		if err == nil {
			_, err = f.WriteString(strconv.FormatUint(a.bytes, 10))
		}
		if err != nil {
			return err
		}
		a.held = append(a.held, f)
	}
	return nil
}

// Give gives it back.
func (a *account) Give() {
	for _, f := range a.held {
		_ = os.Remove(f.Name())
		_ = f.Close()
	}
	a.held = nil
}

// Held reports whether it has the memory, which it always has if none is counted.
func (a *account) Held() bool { return a.dir == "" || a.held != nil }

func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("simulated GPU: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("simulated GPU: %w", err)
	}
	return f, nil
}

// Used returns how many bytes of a simulated GPU processes have, by the account in a folder.
func Used(dir string, gpu int) (sum uint64, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("gpu-%d.*", gpu)))
	if err != nil {
		return 0, fmt.Errorf("simulated GPU: %w", err)
	}
	for _, path := range paths {
		bytes, err := held(path)
		if err != nil {
			return 0, err
		}
		sum += bytes
	}
	return sum, nil
}

// held is what the process of a file has; 0 if it has died, or gave it back.
func held(path string) (uint64, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("simulated GPU: %w", err)
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return 0, nil // its process has died
	}
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil || len(text) == 0 { // it is being written, after its memory was found free
		return 0, nil
	}
	bytes, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("simulated GPU: %s: %w", path, err)
	}
	return bytes, nil
}
