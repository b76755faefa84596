//go:build nvml

package inventory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// errBadDriver is fatal also where GPUs are optional: the node would offer none until the next start.
var errBadDriver = errors.New("inventory: NVML is installed and does not work; load the driver that fits it, or start the machine again after an upgrade, or declare no GPUs with --gpus none")

// nvmlGPUs asks the driver of this machine.
func nvmlGPUs() (*GPUs, error) { return gpusOf(nvml.New()) }

// gpusOf reads all GPUs, which must be alike. One that cannot be read keeps its number, without a UUID, so that
// the node stays what it is: its probe finds it lost.
func gpusOf(lib nvml.Interface) (*GPUs, error) {
	if r := lib.Init(); r != nvml.SUCCESS {
		return nil, cannotInit(lib, r)
	}
	defer lib.Shutdown()
	n, r := lib.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("inventory: count GPUs: %s", lib.ErrorString(r))
	}
	if n == 0 {
		return nil, ErrNoGPUs
	}
	if n > gpusMax {
		return nil, fmt.Errorf("%w: a node has at most %d GPUs, NVML finds %d", ErrBadGPUs, gpusMax, n)
	}
	all := &GPUs{Count: n, UUIDs: make([]string, n)}
	first := -1
	var lost error
	for i := range n {
		g, err := gpuAt(lib, i)
		if err != nil {
			lost = errors.Join(lost, err)
			continue
		}
		if first < 0 {
			first, all.Class, all.MemoryBytes = i, g.Class, g.MemoryBytes
		}
		if g.Class != all.Class || g.MemoryBytes != all.MemoryBytes {
			return nil, fmt.Errorf("%w: GPU %d is %s with %d bytes and GPU %d is %s with %d; the GPUs of a node must be alike: declare none with --gpus none",
				ErrBadGPUs, first, all.Class, all.MemoryBytes, i, g.Class, g.MemoryBytes)
		}
		all.UUIDs[i] = g.UUIDs[0]
	}
	if first < 0 {
		return nil, lost
	}
	all.Devices = gpuFiles(numbersOf(lib, all.UUIDs), deviceAt)
	return all, nil
}

// cannotInit is why NVML cannot be used. A machine without its library has no driver, and needs none
// without a device of NVIDIA, as with an image that has the library for others.
func cannotInit(lib nvml.Interface, r nvml.Return) error {
	if r == nvml.ERROR_LIBRARY_NOT_FOUND || r == nvml.ERROR_DRIVER_NOT_LOADED && !hasVendor(pciVendors, nvidiaVendor) {
		return fmt.Errorf("%w: %s", errNoDriver, lib.ErrorString(r))
	}
	return fmt.Errorf("%w: %s", errBadDriver, lib.ErrorString(r))
}

const (
	pciVendors   = "/sys/bus/pci/devices/*/vendor"
	nvidiaVendor = "0x10de"
)

// hasVendor reports whether one of the files that a pattern matches names a vendor of devices.
func hasVendor(pattern, vendor string) bool {
	paths, _ := filepath.Glob(pattern)
	return slices.ContainsFunc(paths, func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.TrimSpace(string(b)) == vendor
	})
}

// numbersOf returns the numbers that GPUs have in the names of their device files, which need not be
// their order; noNumber of one that is lost, which has no UUID. Nil if it is not known of one that works.
func numbersOf(lib nvml.Interface, uuids []string) []int {
	var numbers []int
	for i, uuid := range uuids {
		number := noNumber
		if uuid != "" {
			device, r := lib.DeviceGetHandleByIndex(i)
			if r != nvml.SUCCESS {
				return nil
			}
			if number, r = device.GetMinorNumber(); r != nvml.SUCCESS {
				return nil
			}
		}
		numbers = append(numbers, number)
	}
	return numbers
}

func gpuAt(lib nvml.Interface, i int) (*GPUs, error) {
	device, r := lib.DeviceGetHandleByIndex(i)
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("inventory: GPU %d: %s", i, lib.ErrorString(r))
	}
	name, r := device.GetName()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("inventory: name of GPU %d: %s", i, lib.ErrorString(r))
	}
	memory, r := device.GetMemoryInfo()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("inventory: memory of GPU %d: %s", i, lib.ErrorString(r))
	}
	uuid, r := device.GetUUID()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("inventory: UUID of GPU %d: %s", i, lib.ErrorString(r))
	}
	return &GPUs{Class: className(name), MemoryBytes: memory.Total, UUIDs: []string{uuid}}, nil
}

// className makes "NVIDIA H100 80GB HBM3" into "H100-80GB-HBM3".
func className(product string) string {
	return strings.ReplaceAll(strings.TrimPrefix(product, "NVIDIA "), " ", "-")
}

// nvmlMemory asks the driver how much memory of a GPU is in use, and how much it has.
func nvmlMemory(uuid string) (used, total uint64, err error) { return memoryOf(nvml.New(), uuid) }

func memoryOf(lib nvml.Interface, uuid string) (used, total uint64, err error) {
	err = withGPU(lib, uuid, "memory", func(device nvml.Device) nvml.Return {
		memory, r := device.GetMemoryInfo()
		used, total = memory.Used, memory.Total
		return r
	})
	return used, total, err
}

// nvmlUsers asks the driver which processes have memory of a GPU.
func nvmlUsers(uuid string) ([]GPUUser, error) { return usersOf(nvml.New(), uuid) }

func usersOf(lib nvml.Interface, uuid string) (users []GPUUser, err error) {
	err = withGPU(lib, uuid, "processes", func(device nvml.Device) nvml.Return {
		processes, r := device.GetComputeRunningProcesses()
		for _, p := range processes {
			u := GPUUser{PID: int(p.Pid), Bytes: p.UsedGpuMemory}
			if p.UsedGpuMemory == notAvailable {
				u.Bytes = 0
			}
			users = append(users, u)
		}
		return r
	})
	return users, err
}

// notAvailable is NVML_VALUE_NOT_AVAILABLE of 64 bits.
const notAvailable = ^uint64(0)

// withGPU asks something of a GPU.
func withGPU(lib nvml.Interface, uuid, what string, ask func(nvml.Device) nvml.Return) error {
	if r := lib.Init(); r != nvml.SUCCESS {
		return cannotInit(lib, r)
	}
	defer lib.Shutdown()
	device, r := lib.DeviceGetHandleByUUID(uuid)
	if r != nvml.SUCCESS {
		return fmt.Errorf("inventory: GPU %s: %s", uuid, lib.ErrorString(r))
	}
	if r := ask(device); r != nvml.SUCCESS {
		return fmt.Errorf("inventory: %s of GPU %s: %s", what, uuid, lib.ErrorString(r))
	}
	return nil
}
