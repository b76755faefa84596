package inventory

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// GPUsAuto declares the GPUs that NVML finds, none where it finds nothing or is
	// not part of the build.
	GPUsAuto = "auto"
	// GPUsAll declares them too, and fails where there are none.
	GPUsAll = "all"
	// GPUsNone declares none.
	GPUsNone = "none"

	// gpusMax is how many GPUs of a node the cluster can tell apart.
	gpusMax = 64
	// simulated begins the class of GPUs that do not exist, so that it is seen
	// wherever they are.
	simulated = "simulated-"
)

// Errors of the inventory of GPUs.
var (
	ErrNoNVML   = errors.New("inventory: this binary was built without NVML; build it with CGO_ENABLED=1 go build -tags nvml ./cmd/rota, or declare no GPUs with --gpus none")
	ErrNoGPUs   = errors.New("inventory: the machine has no GPUs that NVML knows of")
	ErrBadGPUs  = errors.New("inventory: not GPUs")
	errNoDriver = errors.New("inventory: NVML is not installed")
)

// GPUs are those of a node, all alike.
type GPUs struct {
	// Class is a name of the hardware, such as "H100".
	Class       string
	Count       int
	MemoryBytes uint64 // of each
	// UUIDs are the names that the driver knows them by, in order; empty of one that it
	// cannot open, none if they are simulated.
	UUIDs []string
	// Devices are the numbers of their device files, in order; zero of one that the driver cannot
	// open, none if they are simulated, or if this machine has no such files.
	Devices []Device
}

// Device is a character device, by its numbers.
type Device struct{ Major, Minor uint32 }

// noNumber stands for the number of a GPU that is lost.
const noNumber = -1

// gpuFiles finds the device files of GPUs by the numbers that the driver has for them. If one is
// missing, there are none.
func gpuFiles(numbers []int, find func(path string) (Device, error)) []Device {
	var devices []Device
	for _, number := range numbers {
		if number == noNumber {
			devices = append(devices, Device{})
			continue
		}
		d, err := find(fmt.Sprintf("/dev/nvidia%d", number))
		if err != nil {
			return nil
		}
		devices = append(devices, d)
	}
	return devices
}

// deviceAt reads the numbers of a device file.
func deviceAt(path string) (Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Device{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return Device{}, fmt.Errorf("%s is no character device", path)
	}
	return Device{unix.Major(st.Rdev), unix.Minor(st.Rdev)}, nil
}

// Simulated reports whether the GPUs do not exist.
func (g *GPUs) Simulated() bool { return strings.HasPrefix(g.Class, simulated) }

var simulatedRE = regexp.MustCompile(`^([0-9]+)x([A-Za-z0-9._-]+):(.+)$`)

// ParseSimulated reads "2xH100:80GiB"; size reads what follows the colon.
func ParseSimulated(s string, size func(string) (uint64, error)) (*GPUs, error) {
	m := simulatedRE.FindStringSubmatch(s)
	if m == nil {
		return nil, fmt.Errorf("%w: %q is not like 2xH100:80GiB", ErrBadGPUs, s)
	}
	count, err := strconv.Atoi(m[1])
	if err != nil || count < 1 || count > gpusMax {
		return nil, fmt.Errorf("%w: a node has 1 to %d GPUs, not %s", ErrBadGPUs, gpusMax, m[1])
	}
	memory, err := size(m[3])
	if err != nil || memory == 0 {
		return nil, fmt.Errorf("%w: %q is not the memory of a GPU", ErrBadGPUs, m[3])
	}
	return &GPUs{Class: simulated + strings.TrimPrefix(m[2], simulated), Count: count, MemoryBytes: memory}, nil
}

// readGPUs returns what is to be declared, nil for none.
func readGPUs(o Options) (*GPUs, error) {
	switch {
	case o.SimulatedGPUs != nil:
		return o.SimulatedGPUs, nil
	case o.GPUs == GPUsNone:
		return nil, nil
	case o.GPUs != GPUsAll && o.GPUs != GPUsAuto && o.GPUs != "":
		return nil, fmt.Errorf("%w: %q is not %s, %s or %s", ErrBadGPUs, o.GPUs, GPUsAuto, GPUsAll, GPUsNone)
	}
	gpus, err := ask(driverMax, nvmlGPUs)
	if o.GPUs != GPUsAll && (errors.Is(err, ErrNoNVML) || errors.Is(err, errNoDriver) || errors.Is(err, ErrNoGPUs)) {
		return nil, nil
	}
	return gpus, err
}
