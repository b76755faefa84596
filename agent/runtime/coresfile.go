package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"rota/agent/runtime/container/initcall"
)

// coresVariable names the file of an attempt's CPUs in its environment.
const coresVariable = "ROTA_CORES_FILE"

const coresFile = "cores"

// coresFiles are files that say which CPUs attempts have that may get others while they
// run, as ROTA_CPUS does: "0,1,5" and a line end. Each has a folder of its own, in which a
// change replaces the file, so that a reader never sees half of one, and a program can wait
// for changes with inotify on the folder.
//
// Those of attempts in a sandbox are in a folder of it that its commands can read.
type coresFiles struct{ attemptDirs }

func newCoresFiles(root *os.Root, log hclog.Logger) (*coresFiles, error) {
	dirs, err := newAttemptDirs(root, coresName, log)
	if err == nil {
		err = leaveNoCores(root)
	}
	if err != nil {
		return nil, fmt.Errorf("make the folder of files of cores: %w", err)
	}
	return &coresFiles{dirs}, nil
}

// leaveNoCores removes what earlier supervisors left in the folders of sandboxes.
func leaveNoCores(root *os.Root) (err error) {
	left, _ := fs.Glob(root.FS(), path.Join(SandboxesName, "*", coresName, "*"))
	for _, dir := range left {
		err = errors.Join(err, root.RemoveAll(dir))
	}
	return err
}

// dirOf is the folder of an attempt, in the data directory; empty: its sandbox has none for it.
func (c *coresFiles) dirOf(spec *Spec) string {
	if spec.Sandbox == nil {
		return c.of(spec.Key)
	}
	dir, err := filepath.Rel(c.root.Name(), initcall.CoresDir(spec.Sandbox.SocketDir))
	if err != nil || !filepath.IsLocal(dir) {
		return ""
	}
	if _, err := c.root.Stat(dir); err != nil {
		return "" // it is of an earlier release
	}
	return filepath.Join(dir, spec.Key.String())
}

// make makes the file of an attempt in a folder.
func (c *coresFiles) make(dir string, cpus []int) error {
	err := c.root.Mkdir(dir, 0o755)
	if err == nil {
		err = c.put(dir, cpus)
	}
	if err != nil {
		return fmt.Errorf("make the file that says which cores there are: %w", err)
	}
	return nil
}

// put replaces what the file of an attempt says.
func (c *coresFiles) put(dir string, cpus []int) error {
	at := filepath.Join(dir, coresFile)
	next := at + ".next"
	_ = c.root.Remove(next) // left by a change that failed
	if err := c.root.WriteFile(next, []byte(IDList(cpus)+"\n"), 0o644); err != nil {
		return err
	}
	return c.root.Rename(next, at)
}

// change is put for an attempt that has its new CPUs already: what it cannot be told it has
// all the same.
func (c *coresFiles) change(a *attempt) {
	if err := c.put(a.coresDir, a.cpus); err != nil {
		k := a.spec.Key
		c.log.Warn("an attempt cannot be told which cores it has now", "action", k.Action, "attempt", k.Attempt, "error", err)
	}
}
