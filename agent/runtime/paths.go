package runtime

import "path/filepath"

// WorkDir is the working directory of an attempt whose Spec names none, in a
// supervisor's directory.
func WorkDir(dir string, key Key) string {
	return filepath.Join(dir, workName, key.String())
}
