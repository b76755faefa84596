package cluster

import (
	"bytes"
	"context"
	"fmt"
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
	if out, err := exec.CommandContext(ctx, "go", append(args, o.Package)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s (go mod download fetches what it needs): %w\n%s", o.Package, err, bytes.TrimSpace(out))
	}
	return binary, nil
}
