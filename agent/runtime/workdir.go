package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"rota/agent/internal/removal"
)

// workDirs makes the working directories of attempts, inside the data directory.
type workDirs struct {
	root  *os.Root // the data directory
	dir   string   // that holds one for each attempt
	log   hclog.Logger
	tasks sync.WaitGroup // removals
}

// workMode of an attempt's own directory: other attempts may have other users.
const workMode = 0o700

// newWorkDirs also removes what attempts of earlier supervisors left.
func newWorkDirs(root *os.Root, log hclog.Logger) (*workDirs, error) {
	w := &workDirs{root: root, dir: filepath.Join(root.Name(), workName), log: log}
	if err := root.Mkdir(workName, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make working directories: %w", err)
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return nil, fmt.Errorf("remove old working directories: %w", err)
	}
	for _, e := range entries {
		if _, isKey := parseKey(e.Name()); isKey || strings.HasPrefix(e.Name(), sparePrefix) {
			w.remove(filepath.Join(w.dir, e.Name()))
		}
	}
	return w, nil
}

// get returns the working directory of an attempt, and the attempt's own directory if it
// has one, which is to be given back after the end. An absolute Spec.Dir has to exist:
// nothing that a client names is made or looked at with the rights of a supervisor, which may be more. A
// relative one is below the directory of the attempt's trajectory, or below the attempt's
// own, and is made there.
func (w *workDirs) get(spec *Spec, o owner) (dir, own string, err error) {
	if filepath.IsAbs(spec.Dir) {
		dir = filepath.Clean(spec.Dir)
		if inOneOf(dir, []string{o.home}) {
			return dir, "", checkDir(dir)
		}
		return dir, "", o.as(func() error { return checkDir(dir) })
	}
	if spec.Dir != "" && !filepath.IsLocal(spec.Dir) {
		return "", "", fmt.Errorf("working directory %q is not below that of the trajectory or the attempt: give a path without .., or an absolute one that exists", spec.Dir)
	}
	dir = o.home
	if dir == "" {
		own = filepath.Join(w.dir, spec.Key.String())
		if err := makeOwned(own, o.user); err != nil {
			return "", "", fmt.Errorf("make working directory: %w", err)
		}
		dir = own
	}
	if err := makeBelow(dir, spec.Dir, o); err != nil {
		if own != "" {
			w.remove(own)
		}
		return "", "", fmt.Errorf("make working directory %s: %w", spec.Dir, err)
	}
	return filepath.Join(dir, spec.Dir), own, nil
}

// makeBelow makes the directories of a local path, with the rights of the attempt's user. The user may
// have put links there: none is followed out of the directory. What it exchanges meanwhile gets no other
// owner, as nothing is given to it by name. Where the user may pass through a directory and not read it,
// the rest of the path must be there.
func makeBelow(dir, path string, o owner) error {
	if path == "" {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return o.as(func() error {
		at := ""
		for _, part := range strings.Split(filepath.Clean(path), "/") {
			at = filepath.Join(at, part)
			err := root.Mkdir(at, workMode)
			switch {
			case err == nil, errors.Is(err, os.ErrExist):
			case errors.Is(err, os.ErrPermission) && checkDir(filepath.Join(dir, path)) == nil:
				return nil // os.Root opens the directories on the way to read them
			default:
				return err
			}
		}
		return nil
	})
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

// remove deletes in the background: a large directory takes its time, and the
// end of its attempt must not wait for it.
func (w *workDirs) remove(dir string) {
	w.tasks.Go(func() {
		if err := removal.All(dir); err != nil {
			w.log.Warn("working directory cannot be removed", "error", err)
		}
	})
}

// close waits for what is being removed.
func (w *workDirs) close() {
	w.tasks.Wait()
	w.root.Close()
}
