package cli

import (
	"reflect"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

func TestParseGPUs(t *testing.T) {
	for text, want := range map[string][]uint32{"3": {3}, "0,4-6": {0, 4, 5, 6}, "63": {63}} {
		if got, err := parseGPUs(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "64", "-1", "2-1", "a", "1,,2", "0-99"} {
		if got, err := parseGPUs(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestGPUsOutOfUseAreShown(t *testing.T) {
	n := &rotav1.Node{
		Gpus: &rotav1.GpuInventory{Count: 6}, FreeGpus: []uint32{0, 3},
		HeldChunks: []*rotav1.HeldChunk{{Chunk: &rotav1.GpuChunk{First: 4, Gpus: 1}}},
		UnhealthyGpus: []*rotav1.UnhealthyGpu{
			{Gpu: 1, Sick: "XID 79"}, {Gpu: 2, Disabled: true, DisabledReason: "fan"}, {Gpu: 3, Sick: "ECC", Trusted: true},
			{Gpu: 4, Sick: "ECC", Disabled: true},
		},
	}
	if got, want := chunkMap(n), ".xx.A#"; got != want {
		t.Errorf("drawn as %q, want %q", got, want)
	}
	if got, want := unhealthyText(n), "1: XID 79; 2: disabled: fan; 3: ECC (used all the same: an operator enabled it); 4: disabled, ECC"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
