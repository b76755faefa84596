package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"rota/agent/plan"
)

// attemptDirs are folders of one kind, one for each attempt that needs one. Attempts of
// another user than the supervisor's can read theirs, and change nothing in it.
type attemptDirs struct {
	root *os.Root // the data directory
	name string   // of the folder that they are in
	log  hclog.Logger
}

// newAttemptDirs also removes what earlier supervisors left. The folder itself stays: a disk that is
// full may have no room to make it again.
func newAttemptDirs(root *os.Root, name string, log hclog.Logger) (attemptDirs, error) {
	d := attemptDirs{root, name, log}
	err := root.Mkdir(name, 0o711)
	if !errors.Is(err, os.ErrExist) {
		return d, err
	}
	left, err := fs.ReadDir(root.FS(), name)
	for _, e := range left {
		err = errors.Join(err, root.RemoveAll(filepath.Join(name, e.Name())))
	}
	return d, err
}

// of is the folder of an attempt, in the data directory.
func (d attemptDirs) of(k plan.Key) string { return filepath.Join(d.name, k.String()) }

// add makes the folder of an attempt, and returns its path.
func (d attemptDirs) add(k plan.Key) (path string, err error) {
	return filepath.Join(d.root.Name(), d.of(k)), d.root.Mkdir(d.of(k), 0o755)
}

func (d attemptDirs) remove(k plan.Key) { d.removeDir(d.of(k)) }

func (d attemptDirs) removeDir(dir string) {
	if err := d.root.RemoveAll(dir); err != nil {
		d.log.Warn("a folder of an attempt cannot be removed", "folder", dir, "error", err)
	}
}
