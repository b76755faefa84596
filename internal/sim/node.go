package sim

import (
	"fmt"
	"slices"

	"rota/agent/plan"
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Assigned is what an attempt has to be started with.
type Assigned struct {
	Cores state.CoreSet
	Spec  []byte
	// GPUs that it holds, and what making its model resident there takes.
	GPUs  state.GPUSet
	SetUp int64
}

// DesiredOf is what a server sends to an incarnation of a node.
func DesiredOf(s *state.State, node string, incarnation uint64) plan.Desired {
	d := plan.Desired{Incarnation: incarnation, Index: s.Meta().Applied}
	n := s.NodeByName(node)
	if n == nil || n.Incarnation != incarnation || n.State != state.NodeUp {
		d.Fenced = true
		return d
	}
	s.Attempts(n.ID, func(t *state.Attempt) bool {
		var cpus plan.CPUs
		if n.Resizes && t.Ice <= state.IceWanted { // what is frozen has none, or not all yet
			cpus = cpusOf(t.Cores)
		}
		if t.Shares {
			cpus = cpusOf(n.Shared)
		}
		freeze := uint32(0)
		if t.Ice != state.IceNone {
			freeze = t.Pause
		}
		d.Assignments = append(d.Assignments, plan.Assignment{
			Key:  plan.Key{Action: uint64(t.Action), Attempt: t.Number, Incarnation: t.Incarnation},
			Stop: t.Stop, CPUs: cpus, Shares: t.Shares, Freeze: freeze,
			Work: Assigned{Cores: t.Cores, Spec: s.Action(t.Action).Spec, GPUs: t.Chunk.GPUs(), SetUp: t.SetUpNS},
		})
		return true
	})
	return d
}

// Registration is the answer to RegisterNode. Durations are nanoseconds.
type Registration struct {
	Incarnation, Index uint64
	Lease, Margin      int64
}

// Servers is the cluster as an agent sees it. An answer may come late, twice or
// never; ok false means an error. Answers are called in the world's loop: it is
// the agent who defers them while it is paused.
type Servers interface {
	// Count is how many servers there are; they are numbered from 0.
	Count() int
	Register(server int, c *logv1.RegisterNode, answer func(r Registration, ok bool))
	Renew(server int, node string, incarnation uint64, answer func(fenced, ok bool))
	Report(server int, c *logv1.ReportAttempts, answer func(index uint64, ok bool))
	ReportFrozen(server int, c *logv1.ReportFrozen, answer func(ok bool))
	// Watch streams desired states from minIndex on, in order, until end is called
	// by the server's side; it returns what ends it from the agent's.
	Watch(server int, node string, incarnation, minIndex uint64, deliver func(plan.Desired), end func()) (cancel func())
}

// Witness is told of every execution from outside: when its first process was
// there, when it got other cores, and when its last process was gone. Complete: it had done its work.
type Witness interface {
	Began(node string, k plan.Key, cores state.CoreSet, gpus state.GPUSet)
	Resized(node string, k plan.Key, cores state.CoreSet)
	// Shares: the agent was told that it is to share cores with others, or to have its own.
	Shares(k plan.Key, shares bool)
	// Froze: its processes were stopped, or went on.
	Froze(node string, k plan.Key, frozen bool)
	Ended(node string, k plan.Key, complete bool)
}

// Work is what an execution does. Durations are nanoseconds.
type Work struct {
	// Run is how long it takes, Stop how long it takes to die when it is killed.
	Run, Stop int64
	// Parallel is the part of Run, in parts per million, that is shared by the
	// cores.
	Parallel int64
	ExitCode int32
	// Children outlive a supervisor that is killed; only its successor finds them.
	Children bool
	// Throttled and RetryAfter, in nanoseconds, are those of plan.Exit.
	Throttled  bool
	RetryAfter int64
	// Usage is what it says that it used of quotas.
	Usage []plan.QuotaUse
}

// With returns how long the work takes with so many cores (Amdahl's law).
func (w Work) With(cores int) int64 {
	parallel := w.Run / 1_000_000 * w.Parallel
	return w.Run - parallel + parallel/int64(max(1, cores))
}

// NodeOptions describe one machine with an agent.
type NodeOptions struct {
	Loop  *Loop
	Draws Draws
	// Luck is the name of the node's draws; it uses a few numbers from there on.
	Luck uint64
	Name string
	Pool string
	// NUMA has the number of cores of each NUMA node.
	NUMA   []int
	Memory uint64
	// GPUs of the machine, nil for none, and the bandwidth of its network.
	GPUs      *logv1.GpuInventory
	Bandwidth uint64
	// Resizes: the machine can change the cores of what runs.
	Resizes bool
	// ShareAfterNS is the age from which attempts on it may share cores; 0: they do not.
	ShareAfterNS int64
	// CacheBytes is the size of its cache for KV caches.
	CacheBytes uint64
	// Containers: the machine runs containers.
	Containers bool
	// Labels returns those of the machine, sorted by key, when it registers at a
	// time; nil for a machine that never has any.
	Labels func(at int64) []*logv1.Label
	// PPM is how much the machine's clock gains.
	PPM     int64
	Servers Servers
	Witness Witness
	Work    func(spec []byte) Work
	// Trace is called with what happens, nil for nobody.
	Trace func(format string, args ...any)
	// Flaws are planted bugs, to see whether a test finds them.
	Flaws Flaws
}

// Flaws make an agent break the protocol.
type Flaws struct {
	// IgnoreLease: neither the agent nor its supervisor kills at the deadline.
	IgnoreLease bool
	// StartAgain: a restarted agent does not look into its journal, and so starts
	// again what it holds.
	StartAgain bool
	// ForgetJournal: an attempt is started before it is in the journal, and the
	// journal is lost in a crash.
	ForgetJournal bool
	// KeepOld: what must die because a session has ended is believed dead, and goes on.
	KeepOld bool
}

// Node is a machine: an agent, its supervisor and what they run.
type Node struct {
	opts  NodeOptions
	clock *Clock
	agent *agent
	sup   *supervisor
	disk  journal
	lost  int // sessions that ended
}

// journal is what survives a crash of the agent.
type journal struct {
	id          string
	incarnation uint64
	attempts    []journalEntry // in the order in which they were accepted
}

type journalEntry struct {
	key      plan.Key
	reported bool
	// boot is the boot of the machine in which it was accepted.
	boot int
}

// write does what a step of the plan says, in this boot of the machine.
func (j *journal) write(w plan.Journal, boot int) {
	if w.Incarnation != 0 {
		j.incarnation, j.attempts = w.Incarnation, nil
	}
	for i, e := range j.attempts {
		j.attempts[i].reported = e.reported || slices.Contains(w.Reported, e.key)
	}
	j.attempts = slices.DeleteFunc(j.attempts, func(e journalEntry) bool { return slices.Contains(w.Forget, e.key) })
	for _, k := range w.Accept {
		j.attempts = append(j.attempts, journalEntry{key: k, boot: boot})
	}
}

// NewNode returns a machine that is switched off.
func NewNode(o NodeOptions) *Node {
	if o.Trace == nil {
		o.Trace = func(string, ...any) {}
	}
	n := &Node{opts: o, clock: NewClock(o.Loop, o.PPM)}
	n.disk.id = "journal-" + o.Name
	n.sup = newSupervisor(n)
	n.agent = newAgent(n)
	return n
}

// Name returns the node's name.
func (n *Node) Name() string { return n.opts.Name }

// Boot starts the agent, and a supervisor if there is none.
func (n *Node) Boot() {
	if !n.agent.proc.Alive() {
		n.agent.boot()
	}
}

// AgentUp says whether the agent's process exists and is not paused.
func (n *Node) AgentUp() bool { return n.agent.proc.Runs() }

// SupervisorUp says whether the supervisor is there, not paused, and has killed
// what an earlier one left.
func (n *Node) SupervisorUp() bool { return n.sup.proc.Runs() && n.sup.ready }

// CrashAgent kills the agent's process. What it runs goes on.
func (n *Node) CrashAgent() {
	n.opts.Trace("%s: the agent is killed", n.opts.Name)
	n.agent.crash()
}

// CrashSupervisor kills the supervisor's process.
func (n *Node) CrashSupervisor() {
	n.opts.Trace("%s: the supervisor is killed", n.opts.Name)
	n.sup.crash()
}

// Reboot kills everything at once; Boot starts the machine again.
func (n *Node) Reboot() {
	n.opts.Trace("%s: the machine is reset", n.opts.Name)
	n.agent.crash()
	n.sup.reset()
}

// Replace resets the machine for another one that gets its name: Boot starts with
// an empty disk.
func (n *Node) Replace() {
	n.Reboot()
	n.opts.Trace("%s: the machine is another one", n.opts.Name)
	n.sup.ended = nil
	n.disk = journal{id: fmt.Sprintf("journal-%s-%d", n.opts.Name, n.sup.boot)}
}

// PauseAgent stops the agent's process until ResumeAgent.
func (n *Node) PauseAgent() {
	n.opts.Trace("%s: the agent is paused", n.opts.Name)
	n.agent.proc.Pause()
}

// ResumeAgent lets a paused agent go on.
func (n *Node) ResumeAgent() {
	n.opts.Trace("%s: the agent goes on", n.opts.Name)
	n.agent.proc.Resume()
}

// PauseSupervisor stops the supervisor's process until ResumeSupervisor.
func (n *Node) PauseSupervisor() {
	n.opts.Trace("%s: the supervisor is paused", n.opts.Name)
	n.sup.proc.Pause()
}

// ResumeSupervisor lets a paused supervisor go on.
func (n *Node) ResumeSupervisor() {
	n.opts.Trace("%s: the supervisor goes on", n.opts.Name)
	n.sup.proc.Resume()
}

// SessionsLost counts how often the agent lost its lease, or was told that its
// incarnation was given up.
func (n *Node) SessionsLost() int { return n.lost }

// Idle says that nothing runs here and nothing waits to be told.
func (n *Node) Idle() bool {
	return len(n.sup.running) == 0 && (n.agent.plan == nil || n.agent.plan.Idle())
}

// Incarnation returns the one that the agent works for, 0 before it is registered.
func (n *Node) Incarnation() uint64 {
	if n.agent.plan == nil {
		return 0
	}
	return n.agent.plan.Incarnation()
}

// delay draws a time in nanoseconds, most often near the lower end.
func (n *Node) delay(luck uint64, low, high int64) int64 {
	d := n.opts.Draws.Of(n.opts.Luck+luck, n.opts.Loop.now)
	return d.Skewed(low, high)
}

// Names of a node's draws, from NodeOptions.Luck on.
const (
	luckJournal = iota
	luckSupervisor
	luckDeath
	luckTorn
	luckResize
)

// registration is what the agent says of its machine.
func (n *Node) registration(incarnation uint64) *logv1.RegisterNode {
	c := &logv1.RegisterNode{
		Name: n.opts.Name, Incarnation: incarnation, JournalId: n.disk.id, Pool: n.opts.Pool, MemoryBytes: n.opts.Memory,
		Gpus: n.opts.GPUs, BandwidthBps: n.opts.Bandwidth, Resizes: n.opts.Resizes, CacheBytes: n.opts.CacheBytes,
		Containers: n.opts.Containers, ShareAfterNs: n.opts.ShareAfterNS,
	}
	if n.opts.Labels != nil {
		c.Labels = n.opts.Labels(n.opts.Loop.Now())
	}
	cpu := uint32(0)
	for _, cores := range n.opts.NUMA {
		numa := &logv1.NumaNode{}
		for range cores {
			numa.Cpus = append(numa.Cpus, cpu)
			cpu++
		}
		c.NumaNodes = append(c.NumaNodes, numa)
	}
	return c
}
