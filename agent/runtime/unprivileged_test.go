package runtime_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rota/agent/runtime"
	"rota/internal/need"
)

// An agent without root, and here without a delegated cgroup, still runs
// attempts, and says what it cannot enforce.
func TestWithoutRootAffinityIsWhatIsLeft(t *testing.T) {
	need.Root(t) // to become somebody else
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	exe := copySelf(t, filepath.Join(dir, "exe"))
	cmd := exec.Command(exe, "helper-unprivileged", filepath.Join(dir, "data"))
	cmd.Env = append(os.Environ(), leftover+"_PARENT="+cgroupParent)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	want := "affinity\ncannot enforce memory limits\nuid 65534\n0\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant:\n%s", err, out, want)
	}
}

func copySelf(t *testing.T, to string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}

// unprivilegedMain is the agent of that test.
func unprivilegedMain(dir string) error {
	ctx := context.Background()
	o := options(dir, "")
	c, err := runtime.Dial(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close()
	d := c.Describe()
	fmt.Println(d.Mode)
	if strings.Contains(strings.Join(d.NotEnforced, ";"), "memory limits") {
		fmt.Println("cannot enforce memory limits")
	}
	spec := shell(key(1), "echo uid $(id -u); grep Cpus_allowed_list /proc/self/status | cut -f 2")
	spec.CPUs = []int{0}
	if err := c.Start(ctx, spec); err != nil {
		return err
	}
	e := <-c.Exits()
	fmt.Println(strings.TrimSpace(string(e.Stdout)))
	return c.Stop(ctx)
}
