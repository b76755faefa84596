package turns

// Model is one of the three that the paper evaluates with.
type Model struct {
	Name string
	// TrainGPUs and RolloutGPUs are those of a job (Table 1).
	TrainGPUs, RolloutGPUs int64
	// CycleNS is a step of the job alone, and the others are its operations on the
	// training group (Table 2).
	CycleNS, LogProbNS, UpdateNS, SyncNS int64
}

// gpusPerNode is that of the nodes of the paper's cluster, which has 2,048 GPUs.
const gpusPerNode = 8

const (
	ms      = 1_000_000
	second  = 1000 * ms
	hour    = 3600 * second
	million = 1_000_000
)

// Models are those of Tables 1 and 2. GPUs are the product of the parallel sizes: of
// training DP x CP x PP, which expert parallelism shares, and of rollout DP x TP.
var Models = []Model{
	{"7b", 2 * 4 * 1, 1 * 2, 289_030 * ms, 9_660 * ms, 38_080 * ms, 9_760 * ms},
	{"30b", 8 * 8 * 1, 4 * 2, 284_800 * ms, 19_620 * ms, 56_350 * ms, 7_570 * ms},
	{"235b", 1 * 8 * 12, 4 * 8, 589_710 * ms, 20_110 * ms, 82_390 * ms, 8_890 * ms},
}

// Nodes returns how many nodes the training takes.
func (m *Model) Nodes() int64 { return m.TrainGPUs / gpusPerNode }

// GPUs returns how many the job takes alone.
func (m *Model) GPUs() int64 { return m.TrainGPUs + m.RolloutGPUs }

// HeldNS returns for how long a step holds the training group.
func (m *Model) HeldNS() int64 { return m.LogProbNS + m.UpdateNS + m.SyncNS }

// RolloutNS returns how long the rollout takes.
func (m *Model) RolloutNS() int64 { return m.CycleNS - m.SyncNS }
