package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
)

func gib(text string) (uint64, error) {
	if text != "80GiB" {
		return 0, errors.New("not a size")
	}
	return 80 << 30, nil
}

func TestParseSimulated(t *testing.T) {
	g, err := ParseSimulated("2xH100:80GiB", gib)
	if err != nil || g.Class != "simulated-H100" || g.Count != 2 || g.MemoryBytes != 80<<30 || !g.Simulated() {
		t.Errorf("%+v, %v", g, err)
	}
	for _, bad := range []string{"", "H100", "2xH100", "0xH100:80GiB", "65xH100:80GiB", "2xH 100:80GiB", "2xH100:lots"} {
		if g, err := ParseSimulated(bad, gib); !errors.Is(err, ErrBadGPUs) {
			t.Errorf("%q: %+v, %v", bad, g, err)
		}
	}
}

func TestGPUsThatAreAskedFor(t *testing.T) {
	if g, err := readGPUs(Options{GPUs: GPUsNone}); g != nil || err != nil {
		t.Errorf("none: %+v, %v", g, err)
	}
	if _, err := readGPUs(Options{GPUs: "some"}); !errors.Is(err, ErrBadGPUs) {
		t.Errorf("some: %v", err)
	}
	declared := &GPUs{Class: "simulated-H100", Count: 1, MemoryBytes: 1}
	if g, err := readGPUs(Options{GPUs: GPUsAll, SimulatedGPUs: declared}); g != declared || err != nil {
		t.Errorf("simulated: %+v, %v", g, err)
	}
}

// TestDeviceFilesOfGPUs: all of them or none, in the order of the GPUs.
func TestDeviceFilesOfGPUs(t *testing.T) {
	find := func(path string) (Device, error) {
		var minor uint32
		if _, err := fmt.Sscanf(path, "/dev/nvidia%d", &minor); err != nil || minor > 4 {
			return Device{}, fs.ErrNotExist
		}
		return Device{195, minor}, nil
	}
	if got := gpuFiles([]int{3, 0}, find); !slices.Equal(got, []Device{{195, 3}, {195, 0}}) {
		t.Errorf("%v", got)
	}
	if got := gpuFiles([]int{3, 7}, find); got != nil {
		t.Errorf("one is missing: %v", got)
	}
	if d, err := deviceAt("/dev/null"); err != nil || d != (Device{1, 3}) {
		t.Errorf("%v, %v", d, err)
	}
	for _, path := range []string{"/dev", "/dev/there-is-none"} {
		if d, err := deviceAt(path); err == nil {
			t.Errorf("%s is %v", path, d)
		}
	}
}
