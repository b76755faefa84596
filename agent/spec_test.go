package agent

import (
	"slices"
	"testing"

	"rota/agent/inventory"
	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
)

// TestGPUsOfACommand: a command sees its own GPUs and no others; ones that are
// simulated it does not see.
func TestGPUsOfACommand(t *testing.T) {
	real := &inventory.GPUs{Class: "H100", Count: 4, MemoryBytes: 1, UUIDs: []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"}}
	for _, c := range []struct {
		name  string
		gpus  *inventory.GPUs
		holds []uint32
		wants []string
	}{
		{"two", real, []uint32{2, 3}, []string{"CUDA_VISIBLE_DEVICES=GPU-c,GPU-d", "ROTA_GPUS=2,3"}},
		{"none of those there", real, nil, []string{"CUDA_VISIBLE_DEVICES=", "ROTA_GPUS="}},
		{"simulated", &inventory.GPUs{Class: "simulated-H100", Count: 4, MemoryBytes: 1}, []uint32{0, 1}, []string{"CUDA_VISIBLE_DEVICES=", "ROTA_GPUS=0,1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := specifier{node: "n", inv: &inventory.Inventory{NUMA: [][]int{{0}}, GPUs: c.gpus}}
			spec, err := s.spec(runtime.Key{Action: 1, Attempt: 1}, &rotav1.Assignment{
				Command: &rotav1.Command{Argv: []string{"judge", "--tp={{gpus}}", "-j{{cores}}"}}, Gpus: c.holds,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.wants {
				if !slices.Contains(spec.Env, want) {
					t.Errorf("environment %v lacks %q", spec.Env, want)
				}
			}
			if want := "--tp=" + string(rune('0'+len(c.holds))); spec.Argv[1] != want || spec.Argv[2] != "-j1" {
				t.Errorf("arguments %v, want %s", spec.Argv, want)
			}
		})
	}
}
