package inventory

import (
	"errors"
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
