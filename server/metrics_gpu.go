package server

import (
	"rota/fsm/state"
	"rota/internal/telemetry"
)

// gpuMetrics are of each class of GPUs in each pool.
var gpuMetrics = part{
	[]*telemetry.Def{telemetry.GPUs, telemetry.GPUsUsed, telemetry.GPUsOutOfUse, telemetry.GPUsWaiting},
	func(st *state.State, _ int64, emit emitter) {
		type totals struct{ count, held, out int }
		all := map[state.Queue]*totals{}
		st.Nodes(0, func(n *state.Node) bool {
			if n.State != state.NodeUp || n.GPUs.Count == 0 {
				return true
			}
			t := all[n.GPUQueue()]
			if t == nil {
				t = &totals{}
				all[n.GPUQueue()] = t
			}
			t.count += int(n.GPUs.Count)
			t.held += heldGPUs(st, n)
			t.out += n.OutOfUse().Len()
			return true
		})
		st.Pools(func(p *state.Pool) bool {
			st.GPUClasses(func(c *state.GPUClass) bool {
				at := state.QueueOfGPUs(p.ID, c.ID)
				t, waiting := all[at], st.Waiting(at)
				if t == nil && waiting == 0 {
					return true
				}
				if t == nil {
					t = &totals{}
				}
				emit(telemetry.GPUs.Value(float64(t.count), p.Name, c.Name))
				emit(telemetry.GPUsUsed.Value(float64(t.held), p.Name, c.Name))
				emit(telemetry.GPUsOutOfUse.Value(float64(t.out), p.Name, c.Name))
				emit(telemetry.GPUsWaiting.Value(float64(waiting), p.Name, c.Name))
				return true
			})
			return true
		})
	},
}

// heldGPUs counts the GPUs of a node that are neither free nor idle for being out of use.
func heldGPUs(st *state.State, n *state.Node) int {
	held := n.InUse() &^ n.GPUs.Free
	if n.OutOfUse() != 0 {
		st.Attempts(n.ID, func(t *state.Attempt) bool { held |= t.Chunk.GPUs(); return true })
		held |= n.Withheld
	}
	return held.Len()
}
