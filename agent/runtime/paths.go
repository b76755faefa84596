package runtime

import (
	"path/filepath"

	"rota/agent/plan"
)

// WorkDir is the working directory of an attempt whose Spec names none, in a
// supervisor's directory.
func WorkDir(dir string, key plan.Key) string {
	return filepath.Join(dir, workName, key.String())
}
