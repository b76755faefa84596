package runtime_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/need"
)

// kernelOnGPU multiplies two matrices on the GPU, and says 2048.
const kernelOnGPU = `import torch
x = torch.ones(2048, 2048, device="cuda")
print(int((x @ x)[7, 7]))`

// TestAHiddenGPU cannot be opened, by the name of its file or by another, and CUDA finds none,
// whatever a command says to CUDA. An attempt from which it is not hidden computes on it.
func TestAHiddenGPU(t *testing.T) {
	python := need.Torch(t)
	need.Cgroup(t)
	var st unix.Stat_t
	if err := unix.Stat("/dev/nvidia0", &st); err != nil {
		t.Fatal(err)
	}
	gpu := runtime.Device{Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}
	forEachMode(t, func(t *testing.T, mode string) {
		o := options(t.TempDir(), mode)
		o.HideDevices = true
		c := dial(t, o)
		if !c.Describe().HidesDevices {
			t.Skipf("mode %s cannot hide devices on this machine", mode)
		}
		env := []string{"PATH=/usr/bin:/bin", "HOME=/root", "CUDA_VISIBLE_DEVICES=0"}
		hidden := runtime.Spec{Key: key(1), Env: append([]string{leftover + "=" + parentOf()}, env...), HiddenDevices: []runtime.Device{gpu}}
		hidden.Argv = []string{python, "-c", `import ctypes, os
def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR))
        return True
    except OSError as err:
        return err.errno
def made(path):
    try:
        os.mknod(path, 0o600 | 0o020000, os.stat("/dev/nvidia0").st_rdev)
    except OSError as err:
        return err.errno
    return opens(path)
count = ctypes.c_int()
cuda = ctypes.CDLL("libcuda.so.1")
print(opens("/dev/nvidia0"), made("other"), opens("/dev/nvidiactl"), cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value)`}
		e := runOne(t, c, hidden)
		if got := strings.Fields(string(e.Stdout)); len(got) != 4 || got[0] != "1" || got[1] != "1" || got[2] != "True" || got[3] == "1" || e.Reason != plan.ReasonExited {
			t.Errorf("%+v: %s %s", e, e.Stdout, e.Stderr)
		}
		t.Logf("hidden: %s", e.Stdout)
		shown := runtime.Spec{Key: key(2), Argv: []string{python, "-c", kernelOnGPU}, Env: hidden.Env}
		if e := runOne(t, c, shown); strings.TrimSpace(string(e.Stdout)) != "2048" {
			t.Errorf("%+v: %s %s", e, e.Stdout, e.Stderr)
		}
	})
}
