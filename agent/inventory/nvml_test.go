//go:build nvml

package inventory

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"rota/agent/gpuhealth"
)

// TestMachine reads a machine with eight GPUs that go-nvml has a mock of.
func TestMachine(t *testing.T) {
	lib := dgxa100.New()
	lib.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	lib.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	g, err := gpusOf(lib)
	if err != nil {
		t.Fatal(err)
	}
	if g.Class != "A100-SXM4-40GB" && g.Class != "Mock-NVIDIA-A100-SXM4-40GB" || g.Count != 8 || g.MemoryBytes != 40<<30 || g.Simulated() {
		t.Errorf("%+v", g)
	}
	if slices.Sort(g.UUIDs); len(slices.Compact(g.UUIDs)) != 8 {
		t.Errorf("UUIDs %v", g.UUIDs)
	}
}

// TestMixed: a node has GPUs of one kind.
func TestMixed(t *testing.T) {
	lib := &mock.Interface{
		InitFunc:           func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:       func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc: func() (int, nvml.Return) { return 2, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			return &mock.Device{
				GetNameFunc:       func() (string, nvml.Return) { return []string{"NVIDIA H100 80GB HBM3", "NVIDIA L4"}[i], nvml.SUCCESS },
				GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 80 << 30}, nvml.SUCCESS },
				GetUUIDFunc:       func() (string, nvml.Return) { return "GPU-0", nvml.SUCCESS },
			}, nvml.SUCCESS
		},
	}
	if g, err := gpusOf(lib); !errors.Is(err, ErrBadGPUs) {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestNoDriver: a machine without a driver has no GPUs, which is an error only for
// who insists.
func TestNoDriver(t *testing.T) {
	lib := &mock.Interface{
		InitFunc:        func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND },
		ErrorStringFunc: func(nvml.Return) string { return "library not found" },
	}
	if _, err := gpusOf(lib); !errors.Is(err, errNoDriver) {
		t.Error(err)
	}
	if notLoaded := cannotInit(lib, nvml.ERROR_DRIVER_NOT_LOADED); errors.Is(notLoaded, errNoDriver) == hasVendor(pciVendors, nvidiaVendor) {
		t.Errorf("whether there is a device of NVIDIA decides whether a driver that is not loaded is an error: %v", notLoaded)
	}
	for _, broken := range []nvml.Return{nvml.ERROR_LIB_RM_VERSION_MISMATCH, nvml.ERROR_UNKNOWN} {
		lib.InitFunc = func() nvml.Return { return broken }
		if _, err := gpusOf(lib); !errors.Is(err, errBadDriver) || errors.Is(err, errNoDriver) {
			t.Errorf("%v: a driver that does not work: %v", broken, err)
		}
	}
}

func TestVendorsOfDevices(t *testing.T) {
	dir := t.TempDir()
	for name, vendor := range map[string]string{"a": "0x1af4", "b": nvidiaVendor} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(vendor+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !hasVendor(filepath.Join(dir, "*"), nvidiaVendor) || hasVendor(filepath.Join(dir, "a"), nvidiaVendor) || hasVendor(filepath.Join(dir, "c"), nvidiaVendor) {
		t.Error("a device was not found, or one that is not there was")
	}
}

// TestALostGPUHidesOthers: the files of GPUs that work are known, also when the driver still opens one that is
// lost, and answers no question about it.
func TestALostGPUHidesOthers(t *testing.T) {
	number := func(n int, r nvml.Return) nvml.Device {
		return &mock.Device{GetMinorNumberFunc: func() (int, nvml.Return) { return n, r }}
	}
	devices := []nvml.Device{number(0, nvml.ERROR_GPU_IS_LOST), number(1, nvml.SUCCESS)}
	lib := &mock.Interface{DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) { return devices[i], nvml.SUCCESS }}
	if got := numbersOf(lib, []string{"", "GPU-1"}); !slices.Equal(got, []int{noNumber, 1}) {
		t.Errorf("a lost one: %v", got)
	}
	if got := numbersOf(lib, []string{"GPU-0", "GPU-1"}); got != nil {
		t.Errorf("one that works has no number: %v", got)
	}
}

// TestMemoryInUse asks for the GPU by its UUID.
func TestMemoryInUse(t *testing.T) {
	lib := &mock.Interface{
		InitFunc:        func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:    func() nvml.Return { return nvml.SUCCESS },
		ErrorStringFunc: func(nvml.Return) string { return "not found" },
		DeviceGetHandleByUUIDFunc: func(uuid string) (nvml.Device, nvml.Return) {
			if uuid != "GPU-1" {
				return nil, nvml.ERROR_NOT_FOUND
			}
			return &mock.Device{
				GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
					return nvml.Memory{Total: 80 << 30, Used: 3 << 30}, nvml.SUCCESS
				},
				GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
					return []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 3 << 30}, {Pid: 8, UsedGpuMemory: notAvailable}}, nvml.SUCCESS
				},
			}, nvml.SUCCESS
		},
	}
	if used, total, err := memoryOf(lib, "GPU-1"); err != nil || used != 3<<30 || total != 80<<30 {
		t.Error(used, total, err)
	}
	if _, _, err := memoryOf(lib, "GPU-2"); err == nil {
		t.Error("a GPU that is not there has memory")
	}
	if users, err := usersOf(lib, "GPU-1"); err != nil || !slices.Equal(users, []GPUUser{{7, 3 << 30}, {8, 0}}) {
		t.Errorf("%+v, %v", users, err)
	}
}

// TestALostGPUKeepsItsNumber: the node is what it was, and the probe says that the GPU is lost.
func TestALostGPUKeepsItsNumber(t *testing.T) {
	healthy := &mock.Device{
		GetNameFunc:        func() (string, nvml.Return) { return "NVIDIA L4", nvml.SUCCESS },
		GetMemoryInfoFunc:  func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 24 << 30}, nvml.SUCCESS },
		GetUUIDFunc:        func() (string, nvml.Return) { return "GPU-1", nvml.SUCCESS },
		GetMinorNumberFunc: func() (int, nvml.Return) { return 1, nvml.SUCCESS },
	}
	all := false
	lib := &mock.Interface{
		InitFunc:           func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:       func() nvml.Return { return nvml.SUCCESS },
		ErrorStringFunc:    func(nvml.Return) string { return "GPU is lost" },
		EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED },
		DeviceGetCountFunc: func() (int, nvml.Return) { return 2, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			if i == 0 || all {
				return nil, nvml.ERROR_GPU_IS_LOST
			}
			return healthy, nvml.SUCCESS
		},
		DeviceGetHandleByUUIDFunc: func(string) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_INVALID_ARGUMENT },
	}
	g, err := gpusOf(lib)
	if err != nil || g.Count != 2 || g.Class != "L4" || !slices.Equal(g.UUIDs, []string{"", "GPU-1"}) {
		t.Fatalf("%+v, %v", g, err)
	}
	p, err := probeOf(lib, g.UUIDs)
	if err != nil || !slices.Equal(p.Conditions(0), []gpuhealth.Condition{gpuhealth.Lost}) {
		t.Errorf("%v, %v", p, err)
	}
	all = true
	if g, err := gpusOf(lib); err == nil {
		t.Errorf("no GPU can be opened: %+v", g)
	}
}
