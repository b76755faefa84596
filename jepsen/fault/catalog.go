package fault

import (
	"fmt"
	"strings"
)

// All returns every fault.
func All() []Fault {
	return []Fault{
		{"kill-leader", "kill -9 of the leader", Briefly, killLeader},
		{"kill-server", "kill -9 of any server", Briefly, killServer},
		{"kill-all-servers", "kill -9 of all servers at once", Briefly, killAllServers},
		{"kill-agent", "kill -9 of an agent", Briefly, killAgent},
		{"kill-supervisor", "kill -9 of an agent's supervisor", Briefly, killSupervisor},
		{"kill-node", "kill -9 of an agent and its supervisor together", Briefly, killNode},
		{"kill-engine", "kill -9 of an engine that serves a model", AtOnce, killEngine},
		{"kill-gateway", "kill -9 of a gateway", Briefly, killGateway},
		{"kill-worker", "kill -9 of an engine that generates for trajectories", Briefly, killWorker},
		{"crash-point", "a server or an agent dies inside a window narrower than an fsync", AtOnce, crashPoint},

		{"pause-leader", "the leader stands still for longer than every lease", PastLease, pauseLeader},
		{"pause-server", "any server stands still for longer than every lease", PastLease, pauseServer},
		{"pause-agent", "an agent stands still for longer than its lease", PastLease, pauseAgent},
		{"pause-supervisor", "a supervisor stands still for longer than the lease", PastLease, pauseSupervisor},
		{"pause-children", "what an agent runs stands still for longer than the lease", PastLease, pauseChildren},

		{"halves", "servers and agents are split, one side has a majority", PastLease, halves},
		{"leader-alone", "the leader is cut off from everybody", PastLease, leaderAlone},
		{"bridge", "two groups of servers have one server in common", PastLease, bridge},
		{"ring", "every server sees a majority, and none sees all", PastLease, ring},
		{"leader-deaf", "servers do not reach the leader, which reaches them", PastLease, leaderDeaf},
		{"leader-mute", "the leader does not reach servers, which reach it", PastLease, leaderMute},
		{"agent-cut", "an agent is cut off from all servers until it is lost", PastLease, agentCut},
		{"agent-deaf", "servers do not reach an agent, which reaches them", PastLease, agentDeaf},
		{"agent-mute", "an agent does not reach servers, which reach it", PastLease, agentMute},
		{"agent-cut-leader-killed", "the leader dies while an agent is cut off", PastLease, agentCutLeaderKilled},

		{"loss", "packets between members are lost", PastLease, loss},
		{"delay", "packets between members are late", PastLease, delay},
		{"resets", "connections between members break", Briefly, resets},

		{"clock-drift", "clocks of agents are slow and those of servers fast", PastLease, drift},
		{"clock-jump-server", "the clock of the leader jumps ahead, within the margin", Briefly, serverJump},
		{"clock-jump-agent", "the clock of an agent jumps ahead by more than its lease", Briefly, agentJump},

		{"power-loss", "all servers lose power, and with it what was not fsynced", Briefly, powerLoss},
		{"torn-power-loss", "all servers lose power in the middle of writes", Briefly, tornPowerLoss},
		{"lying-fsync", "an fsync lies once, and then that server loses power", Briefly, lyingFsync},
		{"failing-write", "a write of a server fails with EIO", AtOnce, failingWrite},
		{"failing-fsync", "an fsync of a server fails once, and then succeeds", AtOnce, failingFsync},
		{"hanging-disk", "the leader's disk hangs", PastLease, hangingDisk},
		{"full-disk", "a server's disk is full", Briefly, fullDisk},

		{"bit-flip", "one bit of one server's files flips while it is down", Briefly, bitFlip},
		{"bit-flip-log", "one bit of one server's log flips", Briefly, bitFlipLog},
		{"bit-flip-meta", "one bit of the meta pages of one server's log flips", Briefly, bitFlipMeta},
		{"bit-flip-mark", "one bit of one server's high-water mark flips", Briefly, bitFlipMark},
		{"bit-flip-snapshot", "one bit of one server's snapshots flips", Briefly, bitFlipSnapshot},
		{"truncation", "a file of one server is cut short while it is down", Briefly, truncation},

		{"wipe-while-cut", "a server loses its disk while another is cut off, and the leader dies", Briefly, wipeWhileCut},

		{"full-tails", "2,000 actions with full output end on one node while all servers are dead", AtOnce, fullTails},
		{"abuse", "a client, an agent and a command on each node do all the harm that they can", ForMeasuring, abuse},

		{"transfer", "leadership is handed over", AtOnce, transfer},
		{"churn", "the leader loses its vote to a new server, and gets it back", Briefly, churn},
		{"rolling-restart", "all members are restarted with another build", AtOnce, rollingRestart},
		{"wrong-gossip-key", "an agent with another gossip key tries to join", Briefly, wrongKey},
	}
}

// Named returns the fault of a name.
func Named(name string) (Fault, error) {
	var all []string
	for _, f := range All() {
		if f.Name == name {
			return f, nil
		}
		all = append(all, f.Name)
	}
	return Fault{}, fmt.Errorf("there is no fault %q; there are %s", name, strings.Join(all, ", "))
}
