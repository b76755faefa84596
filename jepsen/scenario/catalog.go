package scenario

import (
	"maps"
	"slices"
	"time"

	"rota/jepsen/check"
)

// All returns every scenario: those of CI, which together have every kind of
// fault, and those with one kind of fault many times. Records grow with a run,
// and what checks them is not linear: what should happen hundreds of times
// happens in several runs, of which each also has a fresh cluster.
func All() []Scenario {
	all := []Scenario{
		{Name: "kills", CI: true, About: "members die, one by one and all at once",
			Faults: []string{"kill-leader", "kill-server", "kill-all-servers", "kill-agent", "kill-supervisor", "kill-node", "kill-engine", "crash-point"}},
		{Name: "pauses", CI: true, About: "members and what they run stand still for longer than every lease",
			Faults: []string{"pause-leader", "pause-server", "pause-agent", "pause-supervisor", "pause-children"}},
		{Name: "partitions", CI: true, About: "the network is cut, in halves, around a bridge, in a ring and in one direction", Servers: 5, Agents: 2,
			Faults: []string{"halves", "leader-alone", "bridge", "ring", "leader-deaf", "leader-mute"}},
		{Name: "network", CI: true, About: "packets are lost, late and cut off", Proxy: true,
			Faults: []string{"loss", "delay", "resets"}},
		{Name: "disk", CI: true, About: "disks lose power, lie, fail, hang and fill up", Disks: true, DiskHang: 2 * time.Second,
			Faults: []string{"power-loss", "torn-power-loss", "lying-fsync", "failing-write", "failing-fsync", "hanging-disk", "full-disk"}},
		{Name: "rot", CI: true, About: "files of a minority of the servers rot, or are gone", Snapshots: 500,
			Faults: []string{"bit-flip", "bit-flip-log", "bit-flip-meta", "bit-flip-mark", "bit-flip-snapshot", "truncation", "wipe-while-cut"}},
		{Name: "snapshots", CI: true, About: "servers that lost what the others have dropped are sent snapshots", Snapshots: 20, Compact: true,
			Faults: []string{"bit-flip-log", "truncation", "bit-flip-snapshot"},
			Limits: check.Limits{Skip: map[string]string{"replay": noBeginning, "members": noBeginning}}},
		{Name: "members", CI: true, About: "voters come and go, leadership moves, all are upgraded, strangers knock", Standbys: 1,
			Faults: []string{"transfer", "churn", "rolling-restart", "wrong-gossip-key"}},
		{Name: "agents", CI: true, About: "agents are lost for longer than their lease, and clocks are wrong",
			Faults: []string{"agent-cut", "agent-deaf", "agent-mute", "agent-cut-leader-killed", "clock-drift", "clock-jump-server", "clock-jump-agent"}},

		{Name: "resources", CI: true, About: "wide nodes, GPUs and quotas while leaders and agents are lost", Cores: 8, Agents: 2,
			Faults: []string{"kill-leader", "kill-agent", "leader-alone", "agent-cut-leader-killed", "kill-all-servers"}},

		{Name: "gateways", CI: true, About: "gateways, workers, agents and the leader die while agent loops generate", Agents: 2, Gateways: 2, Generators: 3, Load: 1,
			Faults: []string{"kill-gateway", "kill-worker", "kill-leader", "kill-worker", "kill-agent", "kill-gateway"},
			Limits: check.Limits{OpsPerSecondMin: 100}},

		{Name: "abuse", CI: true, About: "a hostile client, a hostile agent and a hostile command on each node, beside an ordinary load",
			Ordinary: true, Load: 0.5, Quiet: 3 * time.Second, ProcessesMax: 256, Faults: []string{"abuse"},
			Limits: ordinaryLimits(40, "latency", "judged by abuse-latency: it needs a quiet machine")},
		{Name: "full-tails", CI: true, About: "2,000 actions with full output end on one node while no server can be reached", Agents: 1,
			Ordinary: true, Load: 0.3, Lease: time.Minute, Faults: []string{"full-tails"}, Limits: ordinaryLimits(1)},
		// With one node only, so that a machine of two cores has those that the node offers:
		// what several nodes take from each other there says nothing of rota.
		{Name: "abuse-latency", About: "the same, on a quiet machine with one node: how much longer do ordinary actions take?", Agents: 1,
			Ordinary: true, Load: 0.5, Quiet: 30 * time.Second, ProcessesMax: 256, Faults: []string{"abuse"}, Limits: ordinaryLimits(40)},
		{Name: "wiped-disks", About: "a server loses its disk while another is cut off and the leader dies, 10 times", Snapshots: 500,
			Faults: []string{"wipe-while-cut"}, Count: 10},
		{Name: "leader-kill", About: "the leader dies, once or as often as --count says", Faults: []string{"kill-leader"}},
		{Name: "leader-kills", About: "the leader dies 100 times: how long does a failover take?",
			Faults: []string{"kill-leader"}, Count: 100},
		{Name: "power-losses", About: "all servers lose power 25 times, every other time in the middle of writes", Disks: true,
			Faults: []string{"power-loss", "torn-power-loss"}, Count: 25, Limits: check.Limits{OpsPerSecondMin: 100}},
		{Name: "lying-fsyncs", About: "an fsync lies before a power loss, 25 times", Disks: true,
			Faults: []string{"lying-fsync"}, Count: 25},
		{Name: "bit-flips", About: "one bit flips anywhere in one server's files, 25 times", Snapshots: 500,
			Faults: []string{"bit-flip"}, Count: 25},
		{Name: "agent-partitions", About: "an agent is cut off for longer than its lease 27 times, every third time the leader dies meanwhile",
			Faults: []string{"agent-cut", "agent-cut", "agent-cut-leader-killed"}, Count: 27, Long: true, Load: 1, Limits: check.Limits{OpsPerSecondMin: 100}},
		{Name: "deposed-leaders", About: "a leader is replaced while it cannot know, and comes back, 12 times",
			Faults: []string{"pause-leader", "leader-alone", "leader-deaf", "leader-mute"}, Count: 12},
		{Name: "pause-agents", About: "an agent stands still for longer than its lease, 12 times",
			Faults: []string{"pause-agent"}, Count: 12, Long: true},
		{Name: "crash-points", About: "members die inside windows that are narrower than an fsync, 50 times",
			Faults: []string{"crash-point"}, Count: 50},
	}
	for i := range all {
		all[i].setDefaults()
	}
	return all
}

// noBeginning is why what needs the whole log is left out.
const noBeginning = "the log does not go back to its beginning"

// noGateways is why what only agent loops show is left out.
const noGateways = "the scenario has no gateways"

// notOrdinary is why what only some workloads use is left out.
const notOrdinary = "no part of the ordinary load uses it"

// ordinaryLimits leave out what the ordinary load does not use, and the checkers that
// are named, each before its reason.
func ordinaryLimits(opsPerSecondMin float64, more ...string) check.Limits {
	l := check.Limits{OpsPerSecondMin: opsPerSecondMin, Skip: map[string]string{}}
	for _, checker := range []string{"files", "quotas", "windows", "gpus", "turns", "widths", "engines", "samples", "rewards"} {
		l.Skip[checker] = notOrdinary
	}
	for pair := range slices.Chunk(more, 2) {
		l.Skip[pair[0]] = pair[1]
	}
	return l
}

// only are checkers of one fault.
var only = map[string]string{"abuse": "abuse", "latency": "abuse", "ends": "full-tails"}

// skipOthers leaves out checkers of faults that a scenario does not have.
func (s *Scenario) skipOthers() {
	skip := maps.Clone(s.Limits.Skip)
	if skip == nil {
		skip = make(map[string]string)
	}
	if s.Gateways == 0 {
		skip["tokens"], skip["versions"] = noGateways, noGateways
	}
	for checker, fault := range only {
		if !slices.Contains(s.Faults, fault) {
			skip[checker] = "only for the fault " + fault
		}
	}
	s.Limits.Skip = skip
}

// opsPerSecondMin is how many calls have to be answered in each second of
// faults, on any machine; two cores answer 500 to 1,000.
const opsPerSecondMin = 200

func (s *Scenario) setDefaults() {
	if s.Servers == 0 {
		s.Servers = 3
	}
	if s.Agents == 0 {
		s.Agents = 3
	}
	s.skipOthers()
	if s.Limits.OpsPerSecondMin == 0 {
		s.Limits.OpsPerSecondMin = opsPerSecondMin
	}
}
