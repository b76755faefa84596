package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"rota/agent/plan"
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
	if s.TTY != nil {
		if err := s.TTY.validate(); err != nil {
			return err
		}
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

// parseKey is the inverse of Key.String.
func parseKey(s string) (k plan.Key, ok bool) {
	n, err := fmt.Sscanf(s, "%d.%d.%d", &k.Action, &k.Attempt, &k.Incarnation)
	return k, err == nil && n == 3 && k.String() == s
}
