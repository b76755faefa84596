package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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
//
// Linking takes seconds, and many tests build the same rota. So what was linked is kept
// in the user's cache, where go build finds it up to date until a source changes. The
// binary in the folder is a copy: another build does not replace it.
func Build(ctx context.Context, dir string, o BuildOptions) (string, error) {
	if o.Package == "" {
		o.Package = "rota/cmd/rota"
	}
	if o.Name == "" {
		o.Name = filepath.Base(o.Package)
	}
	binary := filepath.Join(dir, o.Name)
	cache, err := os.UserCacheDir()
	if err != nil || o.Overlay != "" { // changed sources are built once
		err = o.link(ctx, binary)
	} else {
		err = o.linkAndKeep(ctx, filepath.Join(cache, "rota-builds"), binary)
	}
	if err != nil {
		return "", err
	}
	return binary, os.Chmod(binary, 0o755)
}

// linkAndKeep brings the binary in the cache up to date and copies it.
func (o BuildOptions) linkAndKeep(ctx context.Context, cache, binary string) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	options := sha256.Sum256(fmt.Appendf(nil, "%#v", o))
	kept := filepath.Join(cache, fmt.Sprintf("%s-%x", o.Name, options[:8]))
	lock, err := os.Create(kept + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if err := o.link(ctx, kept); err != nil {
		return err
	}
	return copyFile(kept, binary)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// link builds a binary as `make build` does: one set of flags, so that each package is
// compiled once, and no symbols for debuggers, which would take longer to link.
func (o BuildOptions) link(ctx context.Context, binary string) error {
	args := []string{"build", "-trimpath", "-o", binary, "-tags", strings.Join(o.Tags, ","), "-ldflags", strings.TrimSpace("-s -w " + o.LDFlags)}
	if o.Overlay != "" {
		args = append(args, "-overlay", o.Overlay)
	}
	if o.Race {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, o.Package)...)
	if !o.Race {
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s (go mod download fetches what it needs): %w\n%s", o.Package, err, bytes.TrimSpace(out))
	}
	return nil
}
