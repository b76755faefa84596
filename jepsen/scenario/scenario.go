package scenario

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"rota/jepsen/check"
	"rota/jepsen/cluster"
	"rota/jepsen/fault"
	"rota/jepsen/workload"
)

// Scenario is a cluster, a load and the faults that it has to stand.
type Scenario struct {
	Name  string
	About string // one line
	// CI: it is one of those that every change has to pass.
	CI bool

	Servers, Agents, Standbys int
	// Gateways and Generators are those of the workload agentloop, which rests without them.
	Gateways, Generators int
	// Cores of each agent, 0: 2. More than the machine has are only counted.
	Cores int
	// Disks of servers are faulty ones; Proxy: servers are reached through one.
	Disks, Proxy bool
	// Snapshots is the number of entries between two, 0: rota's own.
	Snapshots uint64
	// Compact drops the log behind a snapshot, so that a server which was away for
	// long is sent a snapshot. The whole history cannot be replayed then.
	Compact bool
	// DiskHang is how long a disk may hang before its server gives up, 0: rota's own.
	DiskHang time.Duration

	// Faults are those of a round, by name. Each round has another order.
	Faults []string
	// Count is how many faults there are, 0: one round, and as many more as there
	// is time for.
	Count int
	// Pause is the time between the end of a fault, when everybody is back, and the
	// next fault; 0: a second.
	Pause time.Duration
	// Long: much of the work outlasts a lease.
	Long bool
	// Load multiplies the rates of all workloads, 0: 2.
	Load float64
	// Quiet is how long there is load before the first fault, to compare with; 0: as
	// long as it takes to warm up.
	Quiet time.Duration
	// Ordinary: the load is of actions that are all alike, and reads. How long they take
	// is compared with the quiet time. Heartbeats are rota's own, as in production.
	Ordinary bool
	// Lease of nodes, 0: short.
	Lease time.Duration
	// ProcessesMax of an attempt, 0: rota's own.
	ProcessesMax int
	// Limits of the checkers.
	Limits check.Limits
}

// Leases of scenarios are short, so that many end in a short run.
const (
	lease     = 2500 * time.Millisecond
	margin    = 500 * time.Millisecond
	heartbeat = 500 * time.Millisecond
)

// ledgerSlot is short, so that cycles of jobs are.
const ledgerSlot = 100 * time.Millisecond

// longPerCent is how much of the work that is, where much of it is.
const longPerCent = 12

// What agents have. The GPUs do not exist.
const (
	coresPerAgent = 2
	gpusPerAgent  = 8
	gpusOfAgent   = "8xH100:80GiB"
	// gpuMemoryBytes is what each of them has.
	gpuMemoryBytes = 80 << 30
)

// Names of pools: agents are in one, so that what is submitted to the default
// pool waits for ever.
const (
	agentPool = "jepsen"
	heldPool  = "default"
)

// trailingSnapshots is how many times the entries between two snapshots a
// compacted log keeps: a server refuses less.
const trailingSnapshots = 3

func (s *Scenario) cluster() cluster.Config {
	c := cluster.Config{
		Servers: s.Servers, Agents: s.Agents, Standbys: s.Standbys, Gateways: s.Gateways, Generators: s.Generators, Cores: cmp.Or(s.Cores, coresPerAgent),
		Lease: s.lease(), Margin: margin, Heartbeat: heartbeat,
		SnapshotThreshold: s.Snapshots, KeepLog: !s.Compact, Faults: true,
		AgentArgs: []string{"--pool", agentPool, "--simulated-gpus", gpusOfAgent},
		// Nothing of a run is dropped before the checkers have seen it.
		ServerArgs: []string{"--retention", "1h", "--ledger-slot", ledgerSlot.String()},
	}
	if s.Ordinary {
		c.Heartbeat = 0
	}
	if s.Compact {
		c.TrailingLogs = trailingSnapshots * s.Snapshots
	}
	if s.ProcessesMax != 0 {
		c.AgentArgs = append(c.AgentArgs, "--processes-max", strconv.Itoa(s.ProcessesMax))
	}
	if s.DiskHang != 0 {
		c.ServerArgs = append(c.ServerArgs, "--disk-hang-limit", s.DiskHang.String())
	}
	return c
}

// faults of a round.
func (s *Scenario) faults() (all []fault.Fault, err error) {
	for _, name := range s.Faults {
		f, err := fault.Named(name)
		if err != nil {
			return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

func (s *Scenario) pause() time.Duration { return cmp.Or(s.Pause, time.Second) }

func (s *Scenario) lease() time.Duration { return cmp.Or(s.Lease, lease) }

func (s *Scenario) load() float64 { return cmp.Or(s.Load, 2) }

// workloads are what puts load on the cluster.
func (s *Scenario) workloads() []workload.Workload {
	if !s.Ordinary {
		return workload.All()
	}
	return []workload.Workload{workload.Ordinary(), workload.Named("reads"), workload.Named("watches"), workload.Named("observers")}
}

// Named returns the scenario of a name.
func Named(name string) (Scenario, bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return Scenario{}, false
}
