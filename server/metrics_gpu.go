package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"rota/fsm/state"
)

// gpuMetrics are gauges for each class of GPUs in each pool, read from the state
// when asked for.
type gpuMetrics struct{ s *Server }

var (
	gpuCount   = gpuDesc("rota_gpus", "GPUs of nodes that are up.")
	gpuHeld    = gpuDesc("rota_gpus_held", "GPUs of nodes that are up that actions hold.")
	gpuOut     = gpuDesc("rota_gpus_out_of_use", "GPUs of nodes that are up that are sick or disabled.")
	gpuWaiting = gpuDesc("rota_gpu_waiting_actions", "Actions that wait for GPUs.")
)

func gpuDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"pool", "class"}, nil)
}

// Describe implements prometheus.Collector.
func (gpuMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{gpuCount, gpuHeld, gpuOut, gpuWaiting} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m gpuMetrics) Collect(out chan<- prometheus.Metric) {
	var all []prometheus.Metric
	m.s.machine.View(func(st *state.State) {
		count, held, out := map[state.Queue]uint32{}, map[state.Queue]uint32{}, map[state.Queue]int{}
		st.Nodes(0, func(n *state.Node) bool {
			if n.State == state.NodeUp && n.GPUs.Count > 0 {
				count[n.GPUQueue()] += n.GPUs.Count
				held[n.GPUQueue()] += heldGPUs(st, n)
				out[n.GPUQueue()] += n.OutOfUse().Len()
			}
			return true
		})
		st.Pools(func(p *state.Pool) bool {
			st.GPUClasses(func(c *state.GPUClass) bool {
				at := state.QueueOfGPUs(p.ID, c.ID)
				gauge := func(d *prometheus.Desc, v int) {
					all = append(all, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), p.Name, c.Name))
				}
				if count[at] > 0 || st.Waiting(at) > 0 {
					gauge(gpuCount, int(count[at]))
					gauge(gpuHeld, int(held[at]))
					gauge(gpuOut, out[at])
					gauge(gpuWaiting, st.Waiting(at))
				}
				return true
			})
			return true
		})
	})
	for _, metric := range all {
		out <- metric
	}
}

// heldGPUs counts the GPUs of a node that are neither free nor idle for being out of use.
func heldGPUs(st *state.State, n *state.Node) uint32 {
	held := n.InUse() &^ n.GPUs.Free
	if n.OutOfUse() != 0 {
		st.Attempts(n.ID, func(t *state.Attempt) bool { held |= t.Chunk.GPUs(); return true })
		held |= n.Withheld
	}
	return uint32(held.Len())
}
