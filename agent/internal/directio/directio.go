package directio

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// PageBytes is what buffers, offsets and sizes of direct I/O are multiples of.
const PageBytes = 4096

// Padded is the size of a buffer for n bytes: whole pages, at least one.
func Padded[T int | int64 | uint64](n T) T { return max(n+PageBytes-1, PageBytes) &^ (PageBytes - 1) }

// Open opens a file that only its owner can read.
func Open(path string, flags int) (*os.File, error) { return os.OpenFile(path, flags, 0o600) }

// Supported tells whether the file system of a folder takes direct I/O, by writing a page
// into a file that it removes again. It fails if the page cannot be had.
func Supported(dir string, open func(path string, flags int) (*os.File, error)) (bool, error) {
	path := filepath.Join(dir, "probe")
	defer os.Remove(path)
	page, err := unix.Mmap(-1, 0, PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Munmap(page) }()
	f, err := open(path, os.O_RDWR|os.O_CREATE|unix.O_DIRECT)
	if err != nil {
		return false, nil // without it, the reason comes with the first file
	}
	defer f.Close()
	_, err = f.WriteAt(page, 0)
	return !errors.Is(err, unix.EINVAL), nil
}
