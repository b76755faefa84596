package runtime

import (
	"fmt"
	"path/filepath"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// deviceHider makes the kernel refuse to open devices inside a box, whatever the files of the devices
// are called and whoever opens them. All others stay as they are.
type deviceHider func(b *cgroupBox, hidden []Device) error

// holdsDevices says whether a hierarchy is that of the v1 devices controller, for modes that may use
// v1 controllers.
func holdsDevices(h *hierarchy, mode string) bool {
	return !h.v2 && h.has("devices") && mode != ModeCgroupV2
}

// findHider returns how devices can be hidden here; nil: not at all. v2 has no devices controller.
// There, a BPF program of the cgroup decides, which takes root.
func (c *cgroups) findHider() deviceHider {
	if c.holder("devices") != nil {
		return hideByController
	}
	if c.v2 == nil {
		return nil
	}
	fd, err := unix.Open(c.v2.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	detach, err := attachFilter(fd, nil)
	if err != nil || detach() != nil {
		return nil
	}
	return hideByProgram
}

func hideByController(b *cgroupBox, hidden []Device) error {
	path := filepath.Join(b.dir(b.all.holder("devices")), "devices.deny")
	for _, d := range hidden {
		if err := writeFile(path, fmt.Sprintf("c %d:%d rwm", d.Major, d.Minor)); err != nil {
			return err
		}
	}
	return nil
}

// hideByProgram attaches a program, which stays for as long as the cgroup.
func hideByProgram(b *cgroupBox, hidden []Device) error {
	_, err := attachFilter(b.cgroupFD, hidden)
	return err
}

func attachFilter(cgroupFD int, hidden []Device) (detach func() error, err error) {
	program, license, err := cgroup2.DeviceFilter(filterRules(hidden))
	if err != nil {
		return nil, err
	}
	return cgroup2.LoadAttachCgroupDeviceFilter(program, license, cgroupFD)
}

// filterRules allow everything but some devices. Of several rules, the last that fits counts.
func filterRules(hidden []Device) []specs.LinuxDeviceCgroup {
	all := int64(-1)
	rules := []specs.LinuxDeviceCgroup{{Allow: true, Type: "a", Major: &all, Minor: &all, Access: "rwm"}}
	for _, d := range hidden {
		major, minor := int64(d.Major), int64(d.Minor)
		rules = append(rules, specs.LinuxDeviceCgroup{Type: "c", Major: &major, Minor: &minor, Access: "rwm"})
	}
	return rules
}
