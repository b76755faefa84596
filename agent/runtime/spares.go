package runtime

import (
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// sparePrefix begins the names of files that wait to be used again.
const sparePrefix = "spare."

// sparesMax is how many are kept.
const sparesMax = 256

// spares are names of files or directories that are used again instead of being
// deleted. ext4 passes over inodes that were deleted within the last seconds one
// by one: at some hundred attempts a second, making and deleting three files
// each was measured to take 1 ms of system time, most of what an attempt cost.
type spares struct {
	dir string

	mu    sync.Mutex
	names []string
	next  int
}

// take returns the path of one to rename to what is needed.
func (s *spares) take() (path string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.names) == 0 {
		return "", false
	}
	path = s.names[len(s.names)-1]
	s.names = s.names[:len(s.names)-1]
	return path, true
}

// room returns a path to move a file to, or false if there are enough.
func (s *spares) room() (path string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.names) >= sparesMax {
		return "", false
	}
	s.next++
	return filepath.Join(s.dir, sparePrefix+strconv.Itoa(s.next)), true
}

func (s *spares) put(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, path)
}

func isSpare(name string) bool { return strings.HasPrefix(name, sparePrefix) }
