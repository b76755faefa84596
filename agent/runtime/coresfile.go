package runtime

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"rota/agent/plan"
)

// coresVariable names the file of an attempt's CPUs in its environment.
const coresVariable = "ROTA_CORES_FILE"

const coresFile = "cores"

// coresFiles are files that say which CPUs attempts have that may get others while they
// run, as ROTA_CPUS does: "0,1,5" and a line end. Each has a folder of its own, in which a
// change replaces the file, so that a reader never sees half of one, and a program can wait
// for changes with inotify on the folder.
type coresFiles struct{ attemptDirs }

func newCoresFiles(root *os.Root, log hclog.Logger) (*coresFiles, error) {
	dirs, err := newAttemptDirs(root, coresName, log)
	if err != nil {
		return nil, fmt.Errorf("make the folder of files of cores: %w", err)
	}
	return &coresFiles{dirs}, nil
}

// make makes the file of an attempt, and returns the folder in which it is.
func (c *coresFiles) make(k plan.Key, cpus []int) (dir string, err error) {
	if dir, err = c.add(k); err == nil {
		err = c.put(k, cpus)
	}
	if err != nil {
		return "", fmt.Errorf("make the file that says which cores there are: %w", err)
	}
	return dir, nil
}

// put replaces what the file of an attempt says.
func (c *coresFiles) put(k plan.Key, cpus []int) error {
	at := filepath.Join(c.of(k), coresFile)
	next := at + ".next"
	_ = c.root.Remove(next) // left by a change that failed
	if err := c.root.WriteFile(next, []byte(IDList(cpus)+"\n"), 0o644); err != nil {
		return err
	}
	return c.root.Rename(next, at)
}

// change is put for an attempt that has its new CPUs already: what it cannot be told it has
// all the same.
func (c *coresFiles) change(k plan.Key, cpus []int) {
	if err := c.put(k, cpus); err != nil {
		c.log.Warn("an attempt cannot be told which cores it has now", "action", k.Action, "attempt", k.Attempt, "error", err)
	}
}
