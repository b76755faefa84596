package need

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// requireEnv lists the needs that a machine must meet.
const requireEnv = "ROTA_REQUIRE"

// Root needs the user ID 0.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		lack(t, "root", "it does not run as root")
	}
}

// Cgroup needs root and cgroups, v1 or v2, that can be created with the cpuset
// and the memory controller.
func Cgroup(t testing.TB) {
	t.Helper()
	Root(t)
	for _, controller := range []string{"cpuset", "memory"} {
		if err := tryCgroup(controller); err != nil {
			lack(t, "cgroup", err.Error())
			return
		}
	}
}

// Netns needs root and network namespaces that can be connected with virtual
// Ethernet pairs by the ip command.
func Netns(t testing.TB) {
	t.Helper()
	Root(t)
	cmd := exec.Command("ip", "link", "add", "rota-need0", "type", "veth", "peer", "name", "rota-need1")
	// The namespace, and the pair in it, vanish with the command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		lack(t, "netns", fmt.Sprintf("no virtual Ethernet pair in a network namespace: %v %s",
			err, strings.TrimSpace(string(out))))
	}
}

// FUSE needs root and file systems that are served by processes.
func FUSE(t testing.TB) {
	t.Helper()
	Root(t)
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		lack(t, "fuse", err.Error())
		return
	}
	_ = f.Close()
}

// Tool needs programs in PATH. ROTA_REQUIRE names all of them as "tool".
func Tool(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			lack(t, "tool", name+" is not installed")
			return
		}
	}
}

// Prometheus needs prometheus and promtool, as Debian's package prometheus has them.
func Prometheus(t testing.TB) {
	t.Helper()
	for _, name := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(name); err != nil {
			lack(t, "prometheus", name+" is not installed")
			return
		}
	}
}

// Redis needs redis-server, redis-cli, redis-benchmark and a Python with the module redis,
// whose path it returns.
func Redis(t testing.TB) (python string) {
	t.Helper()
	for _, name := range []string{"redis-server", "redis-cli", "redis-benchmark"} {
		if _, err := exec.LookPath(name); err != nil {
			lack(t, "redis", name+" is not installed")
			return ""
		}
	}
	// The distribution's module belongs to the distribution's Python, which another may hide.
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import redis").Run() == nil {
			return python
		}
	}
	lack(t, "redis", "no Python here has the module redis")
	return ""
}

// Containerd needs root, cgroups, containerd, ctr, runc and a busybox without libraries.
func Containerd(t testing.TB) {
	t.Helper()
	Cgroup(t)
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			lack(t, "containerd", name+" is not installed")
			return
		}
	}
}

// NodePackages needs node, npm, and the packages that a folder with a package-lock.json names, which
// npm downloads. It returns a copy of the folder with the packages in it. ROTA_REQUIRE names all of
// that as "node".
func NodePackages(t testing.TB, dir string) string {
	t.Helper()
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			lack(t, "node", name+" is not installed")
			return ""
		}
	}
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatalf("copy %s: %v", dir, err)
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	install.Dir = to
	if out, err := install.CombinedOutput(); err != nil {
		lack(t, "node", fmt.Sprintf("npm ci: %v: %s", err, strings.TrimSpace(string(out))))
		return ""
	}
	return to
}

// GPU needs a GPU whose driver is installed: its device files, nvidia-smi and its libraries. There
// is none on most machines that have all else, so "all" does not require it.
func GPU(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		lack(t, gpuNeed, "no driver of GPUs: "+err.Error())
		return
	}
	if out, err := exec.Command("nvidia-smi", "--list-gpus").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "GPU 0:") {
		lack(t, gpuNeed, fmt.Sprintf("nvidia-smi lists none: %v %s", err, strings.TrimSpace(string(out))))
	}
}

// Torch needs a GPU, and a Python whose torch sees it. It returns the path of that Python.
func Torch(t testing.TB) (python string) {
	t.Helper()
	GPU(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		lack(t, gpuNeed, "python3 is not installed")
		return ""
	}
	if out, err := exec.Command(python, "-c", "import torch; torch.zeros(1, device='cuda')").CombinedOutput(); err != nil {
		lack(t, gpuNeed, "torch does not see a GPU: "+strings.TrimSpace(string(out)))
		return ""
	}
	return python
}

const gpuNeed = "gpu"

// lack skips the test, or fails it where the need is required.
func lack(t testing.TB, need, why string) {
	t.Helper()
	required := strings.Split(os.Getenv(requireEnv), ",")
	if slices.Contains(required, need) || slices.Contains(required, "all") && need != gpuNeed {
		t.Fatalf("%s requires %q, but %s", requireEnv, need, why)
	}
	t.Skipf("needs %s: %s", need, why)
}

// tryCgroup creates and removes a cgroup where the controller is.
func tryCgroup(controller string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	root, err := controllerRoot(string(mounts), controller, os.ReadFile)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(root, "rota-need-")
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// controllerRoot finds the mount that holds the controller: its own v1
// hierarchy, or the unified one.
func controllerRoot(mountinfo, controller string, readFile func(string) ([]byte, error)) (string, error) {
	for line := range strings.Lines(mountinfo) {
		// 31 23 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		mount := fields[4]
		if kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), controller) {
			return mount, nil
		}
		if kind[0] == "cgroup2" {
			has, err := readFile(filepath.Join(mount, "cgroup.controllers"))
			if err == nil && slices.Contains(strings.Fields(string(has)), controller) {
				return mount, nil
			}
		}
	}
	return "", errors.New("no cgroup hierarchy with the " + controller + " controller is mounted")
}
