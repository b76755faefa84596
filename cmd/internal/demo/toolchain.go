package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoGo: there is no Go toolchain to run as the workload.
var ErrNoGo = errors.New("the demo builds and tests Go packages, but there is no go in PATH: install Go from https://go.dev/dl or your distribution")

// toolchain is the Go that the commands run, with a build cache for each of the
// two ways of running them.
type toolchain struct {
	dir string
	bin string // folder of the go command
}

func findToolchain(dir string) (*toolchain, error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return nil, ErrNoGo
	}
	return &toolchain{dir: dir, bin: filepath.Dir(path)}, nil
}

// env is the environment of a command, with the build cache of the given name.
func (t *toolchain) env(cache string) map[string]string {
	return map[string]string{
		"PATH":        t.bin + ":/usr/local/bin:/usr/bin:/bin",
		"HOME":        filepath.Join(t.dir, "home"),
		"GOCACHE":     filepath.Join(t.dir, cache),
		"GOENV":       "off",
		"GOFLAGS":     "",
		"GOPROXY":     "off",
		"GOTOOLCHAIN": "local",
		"GOWORK":      "off",
	}
}

// warm fills one build cache with all that the commands need and copies it.
func (t *toolchain) warm(ctx context.Context, caches ...string) error {
	work := filepath.Join(t.dir, "home")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{{"build"}, {"test", "-count=1", "-run", "^$"}, {"vet"}} {
		cmd := exec.CommandContext(ctx, filepath.Join(t.bin, "go"), append(args, packages...)...)
		cmd.Dir, cmd.Env = work, envList(t.env(caches[0]))
		if out, err := cmd.CombinedOutput(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("warm the build cache: go %s: %w\n%s", args[0], err, tail(out, 2000))
		}
	}
	first := os.DirFS(filepath.Join(t.dir, caches[0]))
	for _, cache := range caches[1:] {
		if err := os.CopyFS(filepath.Join(t.dir, cache), first); err != nil {
			return fmt.Errorf("copy the build cache: %w", err)
		}
	}
	return nil
}

// suiteSource is the test suite whose cores are elastic.
//
//go:embed suite/suite_test.go
var suiteSource []byte

// suite is the program that buildSuite makes of it.
func (t *toolchain) suite() string { return filepath.Join(t.dir, "suite.test") }

func (t *toolchain) buildSuite(ctx context.Context, cache string) error {
	source := filepath.Join(t.dir, "suite_test.go")
	if err := os.WriteFile(source, suiteSource, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(t.bin, "go"), "test", "-c", "-o", t.suite(), source)
	cmd.Dir, cmd.Env = t.dir, envList(t.env(cache))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the test suite: %w\n%s", err, tail(out, 2000))
	}
	return nil
}

func envList(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}

func tail(b []byte, n int) string {
	return strings.TrimSpace(string(b[max(0, len(b)-n):]))
}
