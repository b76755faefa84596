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
	Race    bool
	// Static: nothing is linked dynamically, and every user may run it.
	Static bool
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
	args := []string{"build", "-o", binary, "-tags", strings.Join(o.Tags, ",")}
	if o.Overlay != "" {
		args = append(args, "-overlay", o.Overlay)
	}
	if o.LDFlags != "" {
		args = append(args, "-ldflags", o.LDFlags)
	}
	if o.Race {
		args = append(args, "-race")
	}
	if o.Static {
		args = append(args, "-trimpath", "-ldflags", "-s -w")
	}
	build := exec.CommandContext(ctx, "go", append(args, o.Package)...)
	if o.Static {
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s (go mod download fetches what it needs): %w\n%s", o.Package, err, bytes.TrimSpace(out))
	}
	if o.Static {
		return binary, os.Chmod(binary, 0o755)
	}
	return binary, nil
}
