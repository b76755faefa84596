package server

import (
	"strings"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
	"rota/internal/telemetry"
)

// nodeMetrics are what nodes of each pool have.
var nodeMetrics = part{
	[]*telemetry.Def{
		telemetry.Nodes, telemetry.NodesReserved, telemetry.Cores, telemetry.CoresAllocated,
		telemetry.Memory, telemetry.MemoryReserved, telemetry.PoolHalted,
	},
	func(st *state.State, _ int64, emit emitter) {
		totals := map[state.PoolID]*poolTotals{}
		st.Nodes(0, func(n *state.Node) bool {
			t := totals[n.Pool]
			if t == nil {
				t = &poolTotals{}
				totals[n.Pool] = t
			}
			t.add(n)
			return true
		})
		st.Pools(func(p *state.Pool) bool {
			t := totals[p.ID]
			if t == nil {
				t = &poolTotals{}
			}
			emit(telemetry.Nodes.Value(float64(t.up), p.Name, "up"))
			emit(telemetry.Nodes.Value(float64(t.draining), p.Name, "draining"))
			emit(telemetry.Nodes.Value(float64(t.down), p.Name, "down"))
			emit(telemetry.NodesReserved.Value(float64(t.reserved), p.Name))
			emit(telemetry.Cores.Value(float64(t.cores), p.Name))
			emit(telemetry.CoresAllocated.Value(float64(t.coresUsed), p.Name))
			emit(telemetry.Memory.Value(float64(t.memory), p.Name))
			emit(telemetry.MemoryReserved.Value(float64(t.memoryUsed), p.Name))
			emit(telemetry.PoolHalted.Value(telemetry.One(p.Halted != ""), p.Name))
			return true
		})
	},
}

// poolTotals are sums over the nodes of a pool; those after reserved, of nodes that are up.
type poolTotals struct {
	up, draining, down, reserved int
	cores, coresUsed             int
	memory, memoryUsed           uint64
}

func (t *poolTotals) add(n *state.Node) {
	if n.ReservedFor != 0 {
		t.reserved++
	}
	switch {
	case n.State != state.NodeUp:
		t.down++
		return
	case n.Draining:
		t.draining++
	default:
		t.up++
	}
	cores := 0
	for _, numa := range n.NUMA {
		cores += numa.Len()
	}
	t.cores += cores
	t.coresUsed += cores - n.Free.Len()
	t.memory += n.Memory
	t.memoryUsed += n.Memory - n.FreeMemory
}

// engineMetrics are the models in GPU memory and the engines that serve them.
var engineMetrics = part{
	[]*telemetry.Def{telemetry.Residents, telemetry.ResidentSize, telemetry.Engines},
	func(st *state.State, _ int64, emit emitter) {
		models, bytes := 0, uint64(0)
		st.Residencies(func(r *state.Residency) bool {
			models += len(r.Models)
			for _, m := range r.Models {
				bytes += m.Bytes * uint64(m.Chunk.Units)
			}
			return true
		})
		emit(telemetry.Residents.Value(float64(models)))
		emit(telemetry.ResidentSize.Value(float64(bytes)))
		var engines [state.EngineFailed + 1]int
		st.AllNodeEngines(func(r *state.NodeEngines) bool {
			for _, e := range r.Instances {
				engines[e.State]++
			}
			return true
		})
		for s := state.EngineWaiting; s <= state.EngineFailed; s++ {
			emit(telemetry.Engines.Value(float64(engines[s]), word(rotav1.EngineState(s), "ENGINE_STATE_")))
		}
	},
}

// word is the value of an enumeration of the API as a label.
func word(value interface{ String() string }, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}
