package runtime

import (
	"os"

	"golang.org/x/sys/unix"
)

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
