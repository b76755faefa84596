package bench

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/agent/runtime/container"
	"rota/agent/runtime/container/imagefile"
	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// sandbox is an open sandbox, of rota or not.
type sandbox struct {
	// run runs a command that does nothing, to its end.
	run   func(context.Context) error
	close func(context.Context) error
}

// sandboxWay is a way of having sandboxes.
type sandboxWay struct {
	name string
	open func(ctx context.Context, name string) (*sandbox, error)
	// place opens a trajectory and runs nothing in it; nil: it is none of rota.
	place func(ctx context.Context, name string) (*sandbox, error)
	// closed waits until what was closed has left the machine; nil: it has.
	closed func(context.Context) error
}

const (
	wayContainer = "container"
	wayDirectory = "directory"
	wayDocker    = "docker"
	wayCtr       = "ctr"
)

// sandboxImage is what the image is called everywhere.
const sandboxImage = "rota.bench/sandbox:1"

// sandboxIdle is what keeps a container open that runs nothing.
var sandboxIdle = []string{"sleep", "86400"}

// rotaWay opens trajectories of a cluster, with an image or without one. The first command waits for the
// container, so it belongs to the opening.
func rotaWay(api *client.Client, c *container.Containerd, image string) *sandboxWay {
	w := &sandboxWay{name: wayDirectory}
	spec := &rotav1.TrajectorySpec{}
	if image != "" {
		spec.Container = &rotav1.Container{Image: image}
		w.name = wayContainer
		w.closed = func(ctx context.Context) error { return noSandboxes(ctx, c) }
	}
	w.place = func(ctx context.Context, name string) (*sandbox, error) {
		opened, err := api.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{Name: name, Spec: spec})
		if err != nil {
			return nil, err
		}
		return &sandbox{
			run: func(ctx context.Context) error {
				_, err := runAction(ctx, api, &rotav1.ActionSpec{
					TrajectoryId: opened.Id, Command: &rotav1.Command{Argv: []string{noop}}, Resources: &rotav1.Resources{Cores: proto.Uint32(1)},
				})
				return err
			},
			close: func(ctx context.Context) error { _, err := api.CloseTrajectory(ctx, opened.Id); return err },
		}, nil
	}
	w.open = func(ctx context.Context, name string) (*sandbox, error) {
		s, err := w.place(ctx, name)
		if err != nil {
			return nil, err
		}
		return s, s.run(ctx)
	}
	return w
}

// noSandboxes waits until the agent has removed all its containers.
func noSandboxes(ctx context.Context, c *container.Containerd) error {
	for {
		ids, err := c.Sandboxes(ctx)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := backoff.Sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%d sandboxes are left: %w", len(ids), err)
		}
	}
}

// dockerWay opens containers of a Docker through its API, changes their cores before each command,
// and runs the command by exec. It asks for the exit code, as the command line of Docker does.
func dockerWay(d *docker) *sandboxWay {
	return &sandboxWay{name: wayDocker, open: func(ctx context.Context, name string) (*sandbox, error) {
		id, err := d.runContainer(ctx, name, sandboxImage, sandboxIdle)
		if err != nil {
			return nil, err
		}
		cores := 1
		return &sandbox{
			run: func(ctx context.Context) error {
				cores = 3 - cores // Docker writes nothing if the number stays
				if err := d.setCores(ctx, id, cores); err != nil {
					return err
				}
				return d.exec(ctx, id, []string{noop})
			},
			close: func(ctx context.Context) error { return d.remove(ctx, id) },
		}, nil
	}}
}

// ctrWay opens containers of a containerd by its program ctr.
func ctrWay(program, address string) *sandboxWay {
	ctr := func(ctx context.Context, args ...string) error {
		cmd := exec.CommandContext(ctx, program, append([]string{"--address", address, "--namespace", ctrNamespace}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
		}
		return nil
	}
	return &sandboxWay{name: wayCtr, open: func(ctx context.Context, name string) (*sandbox, error) {
		err := ctr(ctx, append([]string{"run", "--detach", sandboxImage, name}, sandboxIdle...)...)
		return &sandbox{close: func(ctx context.Context) error {
			return errors.Join(ctr(ctx, "task", "delete", "--force", name), ctr(ctx, "container", "delete", name))
		}}, err
	}}
}

// ctrNamespace is the namespace of containerd that ctr uses.
const ctrNamespace = "rota-bench"

// importCtr gives ctr the image, and returns what removes it again.
func importCtr(ctx context.Context, program, address, archive string) (remove func(), err error) {
	ctr := func(ctx context.Context, args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, program, append([]string{"--address", address, "--namespace", ctrNamespace}, args...)...).CombinedOutput()
	}
	if out, err := ctr(ctx, "images", "import", archive); err != nil {
		return nil, fmt.Errorf("ctr images import: %w: %s", err, bytes.TrimSpace(out))
	}
	return func() {
		// The namespace stays as long as its snapshots do. It does no harm.
		_, _ = ctr(context.WithoutCancel(ctx), "images", "remove", "--sync", sandboxImage)
		_, _ = ctr(context.WithoutCancel(ctx), "namespaces", "remove", ctrNamespace)
	}, nil
}

// ErrNoBusybox: there is nothing to make an image of.
var ErrNoBusybox = errors.New("the image is made of busybox, which is not installed: install busybox-static")

// writeSandboxImage writes an archive of an image with busybox in it, and returns its path.
func writeSandboxImage(dir string) (string, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", ErrNoBusybox
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, name := range []string{"bin/", "tmp/", "etc/", "root/"} {
		err = errors.Join(err, imagefile.File(w, &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, nil))
	}
	err = errors.Join(err, imagefile.File(w, &tar.Header{Name: "bin/busybox", Mode: 0o755}, program))
	for _, name := range []string{"sh", "true", "sleep", "gzip", "head", "cat"} {
		err = errors.Join(err, imagefile.File(w, &tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox"}, nil))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return "", err
	}
	archive, err := os.Create(filepath.Join(dir, "image.tar"))
	if err != nil {
		return "", err
	}
	err = imagefile.Write(archive, sandboxImage, layer.Bytes(), imagefile.Config{Env: []string{"PATH=/bin"}})
	return archive.Name(), errors.Join(err, archive.Close())
}
