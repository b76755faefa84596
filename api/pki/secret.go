package pki

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrExposed: others than the owner could read a key, or replace it.
var ErrExposed = errors.New("other users can read or change this key")

// ReadSecret reads a file that holds a key. It is refused with ErrExposed, and the command
// that mends it, if anybody but its owner may read or write it; a group may read a file of
// root's, which is how a service that is not root is given its key. Who read the key before
// it was mended still has it.
func ReadSecret(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	allowed, mended := keyModes(info)
	if info.Mode().Perm()&^allowed != 0 {
		return nil, fmt.Errorf("%s: %w (mode %04o): run `chmod %o %s`, and replace the key if they should not have it",
			path, ErrExposed, info.Mode().Perm(), mended, path)
	}
	return io.ReadAll(file)
}

// keyModes returns the widest mode that the file of a key may have, and the one to give it.
func keyModes(info fs.FileInfo) (allowed, mended fs.FileMode) {
	switch {
	case !tellsOwner:
		return fs.ModePerm, 0o600
	case !ownedByRoot(info):
		return 0o600, 0o600
	case os.Geteuid() == 0:
		return 0o640, 0o600
	}
	return 0o640, 0o640 // with 600 this process could not read it
}
