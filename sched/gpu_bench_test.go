package sched

import (
	"fmt"
	"testing"

	"rota/fsm/state"
)

// gpuWorld is nodes with eight free GPUs each, four models in the memory of each,
// and actions that wait.
func gpuWorld(nodes, actions int, elastic bool) (*state.State, state.Queue) {
	s := state.New()
	s.SetMeta(state.Meta{ClusterID: "bench", Settings: state.Settings{}.WithDefaults(), Level: state.LevelMin, Now: 1})
	s.PutPool(&state.Pool{ID: 1, Name: "default"})
	s.PutGPUClass(&state.GPUClass{ID: 1, Name: "H100"})
	for i := range nodes {
		id := state.NodeID(i + 1)
		cores := state.CoreRange(0, 64)
		s.PutNode(&state.Node{
			ID: id, Name: fmt.Sprint("n", i), Pool: 1, State: state.NodeUp, NUMA: []state.CoreSet{cores}, Free: cores,
			GPUs: state.GPUs{Class: 1, Count: 8, Memory: 80, Free: state.AllGPUs(8)},
		})
		r := &state.Residency{Node: id}
		for k := range uint32(4) {
			r.Models = append(r.Models, state.Resident{Model: fmt.Sprint("model-", (uint32(i)+k)%10), Chunk: state.Chunk{First: 2 * k, Units: 2}, Bytes: 80})
		}
		s.PutResidency(r)
	}
	for i := range actions {
		n := &state.Needs{GPUs: &state.GPUDemand{Class: 1, Degrees: []uint32{1, 2, 4, 8}, Memory: 80, Model: fmt.Sprint("model-", i%10), SetUpNS: 5e9}}
		if elastic {
			n.Profile = &state.Profile{SingleNS: int64(20+i%13) * 1e9, Serial: true, SerialPPM: 100_000}
		}
		s.PutAction(&state.Action{ID: state.ActionID(i + 1), Namespace: 1, Pool: 1, State: state.ActionQueued, CoresMin: 1, CoresMax: 1, Needs: n})
	}
	return s, state.QueueOfGPUs(1, 1)
}

// BenchmarkGPUPass is the decision of a pass: the plan of all that wait, and the
// first start.
func BenchmarkGPUPass(b *testing.B) {
	for _, nodes := range []int{5, 256} {
		for _, elastic := range []bool{false, true} {
			b.Run(fmt.Sprintf("nodes=%d/actions=128/elastic=%v", nodes, elastic), func(b *testing.B) {
				s, i := gpuWorld(nodes, 128, elastic)
				b.ReportAllocs()
				for b.Loop() {
					if d, ok := newGPUPass(s, i).Next(); !ok || d.Start == nil {
						b.Fatal("nothing starts")
					}
				}
			})
		}
	}
}
