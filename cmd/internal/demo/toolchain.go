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

// toolchain is the Go that the commands run.
type toolchain struct {
	dir   string
	bin   string // folder of the go command
	cache string // the user's build cache
}

func findToolchain(ctx context.Context, dir string) (*toolchain, error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return nil, ErrNoGo
	}
	cache, err := exec.CommandContext(ctx, path, "env", "GOCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("find the build cache: go env GOCACHE: %w", err)
	}
	return &toolchain{dir: dir, bin: filepath.Dir(path), cache: strings.TrimSpace(string(cache))}, nil
}

// env is the environment of a command. It builds as the Makefile does, so that much of
// what it needs is in the build cache.
func (t *toolchain) env() map[string]string {
	return map[string]string{
		"PATH":        t.bin + ":/usr/local/bin:/usr/bin:/bin",
		"HOME":        filepath.Join(t.dir, "home"),
		"GOCACHE":     t.cache,
		"CGO_ENABLED": "0",
		"GOENV":       "off",
		"GOFLAGS":     "-trimpath",
		"GOPROXY":     "off",
		"GOTOOLCHAIN": "local",
		"GOWORK":      "off",
	}
}

// warm fills the build cache with all that the commands need, so that neither way of
// running them does it for the other.
func (t *toolchain) warm(ctx context.Context) error {
	work := filepath.Join(t.dir, "home")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{{"build"}, {"test", "-count=1", "-run", "^$"}, {"vet"}} {
		cmd := exec.CommandContext(ctx, filepath.Join(t.bin, "go"), append(args, packages...)...)
		cmd.Dir, cmd.Env = work, envList(t.env())
		if out, err := cmd.CombinedOutput(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("warm the build cache: go %s: %w\n%s", args[0], err, tail(out, 2000))
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

func (t *toolchain) buildSuite(ctx context.Context) error {
	source := filepath.Join(t.dir, "suite_test.go")
	if err := os.WriteFile(source, suiteSource, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(t.bin, "go"), "test", "-c", "-o", t.suite(), source)
	cmd.Dir, cmd.Env = t.dir, envList(t.env())
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
