package containertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	leases "github.com/containerd/containerd/api/services/leases/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"rota/agent/runtime/container/imagefile"
)

// Daemon is a containerd in a temporary folder.
type Daemon struct {
	Address string

	t   testing.TB
	dir string
	cmd *exec.Cmd
}

// Start starts a containerd, and ends it with the test, which has asked need.Containerd.
func Start(t testing.TB) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "rota-containerd-")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Address: filepath.Join(dir, "c.sock"), t: t, dir: dir}
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]
[debug]
  level = "warn"
[grpc]
  address = %q
`, filepath.Join(dir, "root"), filepath.Join(dir, "state"), d.Address)
	if err := os.WriteFile(d.path("config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.end)
	d.Run()
	return d
}

func (d *Daemon) path(name string) string { return filepath.Join(d.dir, name) }

// Run starts the daemon, which does not run, and waits until it answers.
func (d *Daemon) Run() {
	d.t.Helper()
	log, err := os.OpenFile(d.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command("containerd", "--config", d.path("config.toml"))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	Wait(d.t, "containerd listens", func() bool {
		conn, err := net.Dial("unix", d.Address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// Kill kills the daemon. The processes that watch containers go on.
func (d *Daemon) Kill() {
	d.t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	_ = d.cmd.Wait()
}

// Ingested is how many bytes the daemon has of blobs that are not whole.
func (d *Daemon) Ingested() (bytes int64) {
	d.t.Helper()
	files, err := filepath.Glob(d.path("root/io.containerd.content.v1.content/ingest/*/data"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			bytes += st.Size()
		}
	}
	return bytes
}

// Leases are those of a namespace.
func (d *Daemon) Leases(namespace string) []*leases.Lease {
	d.t.Helper()
	conn, err := grpc.NewClient("unix://"+d.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "containerd-namespace", namespace), time.Minute)
	defer cancel()
	resp, err := leases.NewLeasesClient(conn).List(ctx, &leases.ListRequest{})
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.GetLeases()
}

func (d *Daemon) end() {
	if d.cmd != nil && d.cmd.Process != nil {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		_ = d.cmd.Wait()
	}
	if d.t.Failed() {
		b, _ := os.ReadFile(d.path("log"))
		d.t.Logf("containerd said:\n%s", b[max(0, len(b)-1024):])
	}
	err := os.RemoveAll(d.dir)
	for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); err = os.RemoveAll(d.dir) {
		time.Sleep(100 * time.Millisecond) // a shim that ends still removes files of its own
	}
	if err != nil {
		d.t.Errorf("something is left of containerd: %v", err)
	}
}

// RemoveCgroups removes the parent of the cgroups of sandboxes, which is empty once they are removed.
func RemoveCgroups(t testing.TB, parent string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(dirs, filepath.Join("/sys/fs/cgroup", parent)) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a cgroup is left: %s: %v", dir, err)
		}
	}
}

// Wait waits until something is so.
func Wait(t testing.TB, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("not so after minutes: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Init builds rota-init, without libraries.
func Init(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rota-init")
	cmd := exec.Command("go", "build", "-o", path, "rota/cmd/rota-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build rota-init: %v\n%s", err, out)
	}
	return path
}

// ImageName is what the archive of Archive calls its image.
const ImageName = "example.org/rota/busybox:1"

// Archive writes an archive of the OCI image layout with one image: busybox, the users root and
// "worker" (1000), and /work as the working directory.
func Archive(t testing.TB) string {
	t.Helper()
	return writeLayout(t, Layer(t))
}

// Layer is that of the image of Archive, not compressed.
func Layer(t testing.TB) []byte { return LayerWith(t, nil) }

// LayerWith is Layer with one more file, /filler.
func LayerWith(t testing.TB, filler []byte) []byte {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"bin/", "etc/", "tmp/", "var/", "var/tmp/", "run/", "root/", "work/"} {
		mode := int64(0o755)
		if dir == "tmp/" || dir == "work/" || dir == "var/tmp/" {
			mode = 0o1777
		}
		add(t, w, &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}, nil)
	}
	add(t, w, &tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for _, name := range []string{"sh", "cat", "id", "sleep", "touch", "ls", "ps", "wget", "nc", "mount", "mknod", "unshare", "hostname", "echo", "true", "pwd", "grep", "dd", "kill", "head", "chroot", "stat", "env"} {
		add(t, w, &tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox"}, nil)
	}
	add(t, w, &tar.Header{Name: "filler", Mode: 0o644}, filler)
	// A device of the image, which nothing in a container may open.
	add(t, w, &tar.Header{Typeflag: tar.TypeChar, Name: "zero", Mode: 0o666, Devmajor: 1, Devminor: 5}, nil)
	add(t, w, &tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\nworker:x:1000:1000::/work:/bin/sh\n"))
	add(t, w, &tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nworker:x:1000:\ntools:x:2000:worker\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return layer.Bytes()
}

func add(t testing.TB, w *tar.Writer, h *tar.Header, body []byte) {
	t.Helper()
	if err := imagefile.File(w, h, body); err != nil {
		t.Fatal(err)
	}
}

// writeLayout writes an archive of an image with one layer.
func writeLayout(t testing.TB, layer []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "busybox.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = imagefile.Write(f, ImageName, layer, imagefile.Config{Env: []string{"PATH=/bin", "FROM_IMAGE=yes"}, WorkingDir: "/work"})
	if err != nil {
		t.Fatal(err)
	}
	return path
}
