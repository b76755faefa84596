package runtime

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
)

// workDirs makes the working directories of attempts, inside the data directory.
type workDirs struct {
	root  *os.Root // the data directory
	user  *userID
	log   hclog.Logger
	free  spares
	tasks sync.WaitGroup // removals
}

// workMode of an attempt's own directory.
const workMode = 0o755

// newWorkDirs also removes what attempts of earlier supervisors left.
func newWorkDirs(root *os.Root, user *userID, log hclog.Logger) (*workDirs, error) {
	w := &workDirs{root: root, user: user, log: log}
	w.free.dir = filepath.Join(root.Name(), workName)
	if err := root.Mkdir(workName, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make working directories: %w", err)
	}
	entries, err := os.ReadDir(w.free.dir)
	if err != nil {
		return nil, fmt.Errorf("remove old working directories: %w", err)
	}
	for _, e := range entries {
		if _, isKey := parseKey(e.Name()); isKey || isSpare(e.Name()) {
			w.remove(filepath.Join(w.free.dir, e.Name()))
		}
	}
	return w, nil
}

// get returns the working directory of an attempt: Spec.Dir, or one of its own
// to be given back after the end, which own says.
func (w *workDirs) get(spec *Spec) (dir string, own bool, err error) {
	if spec.Dir != "" {
		dir = filepath.Clean(spec.Dir)
		rel, err := filepath.Rel(w.root.Name(), dir)
		if err == nil && filepath.IsLocal(rel) {
			if err := w.makeAll(rel); err != nil {
				return "", false, fmt.Errorf("make working directory: %w", err)
			}
		}
		return dir, false, checkDir(dir)
	}
	dir = filepath.Join(w.free.dir, spec.Key.String())
	if old, ok := w.free.take(); ok && os.Rename(old, dir) == nil {
		return dir, true, nil
	}
	if err := w.make(filepath.Join(workName, spec.Key.String())); err != nil {
		return "", false, fmt.Errorf("make working directory: %w", err)
	}
	return dir, true, nil
}

// makeAll makes what is missing of a path. os.Root resolves it: an attempt may
// own parts of it, and its symbolic links must not lead a supervisor with more
// rights out of the data directory.
func (w *workDirs) makeAll(rel string) error {
	at := ""
	for _, part := range strings.Split(rel, "/") {
		at = filepath.Join(at, part)
		if err := w.make(at); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// make makes one directory that belongs to the attempts' user.
func (w *workDirs) make(rel string) error {
	if err := w.root.Mkdir(rel, workMode); err != nil || w.user == nil {
		return err
	}
	return w.root.Lchown(rel, int(w.user.uid), int(w.user.gid))
}

func checkDir(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	if !st.IsDir() {
		return fmt.Errorf("working directory: %s is not a directory", dir)
	}
	return nil
}

// put takes back an attempt's own directory. One that was left as it was given
// is used again.
func (w *workDirs) put(dir string) {
	if w.untouched(dir) {
		if spare, ok := w.free.room(); ok && os.Rename(dir, spare) == nil {
			w.free.put(spare)
			return
		}
	}
	w.remove(dir)
}

func (w *workDirs) untouched(dir string) bool {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Mode().Perm() != workMode || st.Mode()&(os.ModeSetgid|os.ModeSticky) != 0 {
		return false
	}
	_, err = f.Readdirnames(1)
	return err == io.EOF
}

// remove deletes in the background: a large directory takes its time, and the
// end of its attempt must not wait for it.
func (w *workDirs) remove(dir string) {
	w.tasks.Go(func() {
		if err := os.RemoveAll(dir); err != nil {
			w.log.Warn("working directory cannot be removed", "error", err)
		}
	})
}

// close waits for what is being removed.
func (w *workDirs) close() {
	w.tasks.Wait()
	w.root.Close()
}
