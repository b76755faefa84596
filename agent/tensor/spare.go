package tensor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

const spareName = "spare"

// spares are files of whole blocks that no state needs any more. The next blocks are written
// over them: a file system takes longer to find room for new files, and to free it, than to
// write over what a file has already. A manifest that named them is gone for good before a
// block becomes a spare, and none names them until they are whole again under another hash.
type spares struct {
	dir string

	mu    sync.Mutex
	made  int
	paths []string
}

// openSpares removes what another agent has left.
func openSpares(dir string) (*spares, error) {
	s := &spares{dir: filepath.Join(dir, spareName)}
	if err := os.RemoveAll(s.dir); err != nil {
		return nil, err
	}
	return s, os.Mkdir(s.dir, 0o700)
}

// take returns a file to write a block of n bytes over; empty if there is none.
func (s *spares) take(n uint64) string {
	if s == nil || n != BlockBytes {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.paths) == 0 {
		return ""
	}
	path := s.paths[len(s.paths)-1]
	s.paths = s.paths[:len(s.paths)-1]
	return path
}

// retire makes the file of a block of n bytes a spare, or removes it.
func (s *spares) retire(path string, n uint64) error {
	if s == nil || n != BlockBytes {
		return ignoreAbsent(os.Remove(path))
	}
	if file, err := os.Lstat(path); err != nil || file.Size() != BlockBytes || !file.Mode().IsRegular() {
		return ignoreAbsent(os.Remove(path)) // it was damaged
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	to := filepath.Join(s.dir, fmt.Sprint(s.made))
	if err := os.Rename(path, to); err != nil {
		return ignoreAbsent(err)
	}
	s.paths = append(s.paths, to)
	return nil
}

// trim removes spares until they have at most n bytes, and says how many it has removed.
func (s *spares) trim(n uint64) (removed int) {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	keep := min(len(s.paths), int(n/BlockBytes))
	extra := s.paths[keep:]
	s.paths = s.paths[:keep:keep]
	s.mu.Unlock()
	for _, path := range extra {
		_ = os.Remove(path) // what stays, the next Open removes
	}
	return len(extra)
}

func (s *spares) bytes() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(len(s.paths)) * BlockBytes
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
