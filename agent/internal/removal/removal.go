package removal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// All is os.RemoveAll, also for directories that their owner may not change.
func All(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) || os.Geteuid() == 0 {
		return err
	}
	above, openErr := os.OpenRoot(filepath.Dir(path))
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	defer above.Close()
	return errors.Join(openUp(above, filepath.Base(path)), os.RemoveAll(path))
}

// openUp lets the owner change every directory of a tree in a root, out of which no link leads. What
// is the matter with one is said by the removal.
func openUp(above *os.Root, name string) error {
	return fs.WalkDir(above.FS(), name, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		_ = above.Chmod(path, 0o700)
		return nil
	})
}
