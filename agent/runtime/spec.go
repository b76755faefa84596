package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// defaultPath is searched when an attempt's environment has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// validate refuses what cannot be sent or recorded. That a command cannot be
// run is no such thing; see ReasonStartFailed.
func (s *Spec) validate() error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return fmt.Errorf("%w: no command", ErrInvalidSpec)
	}
	if s.Timeout < 0 {
		return fmt.Errorf("%w: timeout %s is negative", ErrInvalidSpec, s.Timeout)
	}
	for _, list := range [][]string{s.Argv, s.Env, {s.Dir}} {
		for _, v := range list {
			if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
				return fmt.Errorf("%w: %q is not UTF-8 without NUL", ErrInvalidSpec, v)
			}
		}
	}
	return nil
}

// lookPath finds a command as execvp would with the attempt's own PATH.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	found := ""
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // what it means would depend on the working directory
		}
		file := filepath.Join(dir, name)
		st, err := os.Stat(file)
		if err != nil || st.IsDir() {
			continue
		}
		if st.Mode()&0o111 != 0 {
			return file, nil
		}
		found = file
	}
	if found != "" {
		return "", fmt.Errorf("command %q: %s is not executable", name, found)
	}
	return "", fmt.Errorf("command %q is not in PATH %s", name, path)
}

// makeDir returns the working directory of an attempt. The one of Spec.Dir is
// made if it is inside the data directory; without it the attempt gets one of
// its own, which own says and which is removed after the end. Paths are resolved
// by os.Root: an attempt may own parts of them, and its symbolic links must not
// lead a supervisor with more rights elsewhere.
func makeDir(root *os.Root, spec *Spec, user *userID) (dir string, own bool, err error) {
	rel := filepath.Join(workName, spec.Key.String())
	if spec.Dir != "" {
		if rel, err = filepath.Rel(root.Name(), filepath.Clean(spec.Dir)); err != nil || !filepath.IsLocal(rel) {
			return spec.Dir, false, checkDir(spec.Dir)
		}
	}
	at := ""
	for _, part := range strings.Split(rel, "/") {
		at = filepath.Join(at, part)
		if err := root.Mkdir(at, 0o755); errors.Is(err, os.ErrExist) {
			continue
		} else if err != nil {
			return "", false, fmt.Errorf("make working directory: %w", err)
		}
		if user != nil && at != workName {
			if err := root.Lchown(at, int(user.uid), int(user.gid)); err != nil {
				return "", false, fmt.Errorf("make working directory: %w", err)
			}
		}
	}
	dir = filepath.Join(root.Name(), rel)
	return dir, spec.Dir == "", checkDir(dir)
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
