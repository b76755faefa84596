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

// appraise gives all models a worth, as feature level 3 does.
func appraise(s *state.State, nodes int) {
	m := *s.Meta()
	m.Level = levelExploring
	s.SetMeta(m)
	for i := range nodes {
		r := &state.Residency{Node: state.NodeID(i + 1)}
		for k, m := range s.ModelsOn(r.Node) {
			m.Uses = uint32(k%state.UsesMax + 1)
			r.Models = append(r.Models, m.Valued(uint64(i), int64(k+1)*1e9))
		}
		s.PutResidency(r)
	}
}

// BenchmarkGPUPassWithWorths is BenchmarkGPUPass where evictions are weighed, for a model that is
// resident nowhere: it looks at every chunk.
func BenchmarkGPUPassWithWorths(b *testing.B) {
	for _, nodes := range []int{5, 256} {
		b.Run(fmt.Sprintf("nodes=%d/actions=128", nodes), func(b *testing.B) {
			s, i := gpuWorld(nodes, 128, false)
			appraise(s, nodes)
			first := *s.Action(1)
			needs, demand := *first.Needs, *first.GPUs()
			demand.Model, needs.GPUs = "absent", &demand
			first.Needs = &needs
			s.PutAction(&first)
			b.ReportAllocs()
			for b.Loop() {
				if d, ok := exploring(s, i).Next(); !ok || d.Start == nil || len(d.GPUs.Evict) == 0 {
					b.Fatal("nothing is evicted")
				}
			}
		})
	}
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
