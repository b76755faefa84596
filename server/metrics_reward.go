package server

import (
	"time"

	"rota/fsm/state"
	"rota/internal/telemetry"
	"rota/server/rpc"
)

var replicaStateNames = []string{"", "starting", "ready", "draining"}

// rewardMetrics are what reward functions have and cost. Their names are labels: there are at most
// state.RewardsMax of them.
var rewardMetrics = part{
	[]*telemetry.Def{
		telemetry.RewardReplicas, telemetry.RewardWanted, telemetry.RewardDemand, telemetry.RewardCores,
		telemetry.RewardGPUs, telemetry.RewardCalls, telemetry.RewardFailed,
	},
	func(st *state.State, _ int64, emit emitter) {
		st.Rewards("", func(r *state.Reward) bool {
			counts := make([]int, len(replicaStateNames))
			for _, p := range st.ReplicasOf(r.Name) {
				counts[p.State]++
			}
			for i, n := range counts[1:] {
				emit(telemetry.RewardReplicas.Value(float64(n), r.Name, replicaStateNames[i+1]))
			}
			emit(telemetry.RewardWanted.Value(float64(r.Wanted), r.Name))
			emit(telemetry.RewardDemand.Value(float64(r.Demand()), r.Name))
			cores, gpus := st.Held(r, st.Meta().Now)
			emit(telemetry.RewardCores.Value(time.Duration(cores).Seconds(), r.Name))
			emit(telemetry.RewardGPUs.Value(time.Duration(gpus).Seconds(), r.Name))
			emit(telemetry.RewardCalls.Value(float64(r.Calls), r.Name))
			emit(telemetry.RewardFailed.Value(float64(r.FailedCalls), r.Name))
			return true
		})
	},
}

// namespaceMetrics are what the actions of namespaces have used. There are at most
// state.NamespacesMax of them.
var namespaceMetrics = part{
	[]*telemetry.Def{telemetry.NamespaceCores, telemetry.NamespaceGPUs, telemetry.NamespaceCPU, telemetry.NamespaceMemory},
	func(st *state.State, _ int64, emit emitter) {
		st.Namespaces(func(n *state.Namespace) bool {
			if u := st.UseNow(n.ID); u != nil {
				emit(telemetry.NamespaceCores.Value(float64(u.CoreUS)/1e6, n.Name))
				emit(telemetry.NamespaceGPUs.Value(float64(u.GPUUS)/1e6, n.Name))
				emit(telemetry.NamespaceCPU.Value(float64(u.CPUUS)/1e6, n.Name))
				emit(telemetry.NamespaceMemory.Value(rpc.MemoryByteSeconds(u), n.Name))
			}
			return true
		})
	},
}
