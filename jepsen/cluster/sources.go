package cluster

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// LookAtSources makes the cached result of a test that builds rota and runs it
// depend on all sources. "go test" compiles the test from other packages, and would
// take its last result to hold when only those of rota have changed; but it knows
// which files of the module a test has looked at.
func LookAtSources() error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for !exists(filepath.Join(root, "go.mod")) {
		up := filepath.Dir(root)
		if up == root {
			return fmt.Errorf("no go.mod in any folder above the working directory")
		}
		root = up
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "store" || d.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go" || filepath.Ext(path) == ".py" || d.Name() == "go.mod":
			_, err = os.Stat(path)
		}
		return err
	})
}
