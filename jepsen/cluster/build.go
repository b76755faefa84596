package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildOptions say how to build a binary.
type BuildOptions struct {
	// Package is rota/cmd/rota if empty.
	Package string
	// Name of the file, that of the package if empty.
	Name string
	Tags []string
	// Overlay is a file for go build -overlay, which replaces sources.
	Overlay string
	LDFlags string
	// Race builds with the race detector, which needs a C compiler. Other binaries are
	// static, and every user may run them.
	Race bool
}

// Build builds a binary from the sources of this module into a folder and
// returns its path. Where Isolate has cut the network off, the modules must have
// been downloaded before.
func Build(ctx context.Context, dir string, o BuildOptions) (string, error) {
	if o.Package == "" {
		o.Package = "rota/cmd/rota"
	}
	if o.Name == "" {
		o.Name = filepath.Base(o.Package)
	}
	binary := filepath.Join(dir, o.Name)
	args := []string{"build", "-trimpath", "-o", binary, "-tags", strings.Join(o.Tags, ",")}
	if o.Overlay != "" {
		args = append(args, "-overlay", o.Overlay)
	}
	if o.LDFlags != "" {
		args = append(args, "-ldflags", o.LDFlags)
	}
	if o.Race {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, o.Package)...)
	if !o.Race { // as `make build` does: one set of flags, so that each package is compiled once
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s (go mod download fetches what it needs): %w\n%s", o.Package, err, bytes.TrimSpace(out))
	}
	return binary, os.Chmod(binary, 0o755)
}
