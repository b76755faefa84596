package sim

import (
	"fmt"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Key is the fencing token of an attempt.
type Key struct {
	Action      uint64
	Attempt     uint32
	Incarnation uint64
}

// Assignment is one attempt that a node should know.
type Assignment struct {
	Key   Key
	Stop  bool
	Cores state.CoreSet
	Spec  []byte
	// GPUs that it holds, and what making its model resident there takes.
	GPUs  state.GPUSet
	SetUp int64
}

// Desired is what a node should be doing, as of an index. Fenced is the last
// that an incarnation hears.
type Desired struct {
	Index       uint64
	Fenced      bool
	Assignments []Assignment
}

// DesiredOf is what a server sends to an incarnation of a node.
func DesiredOf(s *state.State, node string, incarnation uint64) Desired {
	d := Desired{Index: s.Meta().Applied}
	n := s.NodeByName(node)
	if n == nil || n.Incarnation != incarnation || n.State != state.NodeUp {
		d.Fenced = true
		return d
	}
	s.Attempts(n.ID, func(t *state.Attempt) bool {
		d.Assignments = append(d.Assignments, Assignment{
			Key:   Key{uint64(t.Action), t.Number, t.Incarnation},
			Stop:  t.Stop,
			Cores: t.Cores,
			Spec:  s.Action(t.Action).Spec,
			GPUs:  t.Chunk.GPUs(),
			SetUp: t.SetUpNS,
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
	// Watch streams desired states from minIndex on, in order, until end is called
	// by the server's side; it returns what ends it from the agent's.
	Watch(server int, node string, incarnation, minIndex uint64, deliver func(Desired), end func()) (cancel func())
}

// Lease is the right to run attempts, by the node's own clock. agent/lease has
// the real one.
type Lease interface {
	// Begin starts anew without a deadline.
	Begin(duration, margin time.Duration)
	// End gives the lease up.
	End()
	// Extend counts a renewal that was sent at a time.
	Extend(sent int64)
	// Expired says that there was a lease and there is none now.
	Expired() bool
	// Held returns the deadline until which attempts may run, 0 if they may not.
	Held() int64
	// Patience is how long the supervisor gets to kill what must die.
	Patience() time.Duration
}

// Witness is told of every execution from outside: when its first process was
// there, and when its last was gone. Complete: it had done its work.
type Witness interface {
	Began(node string, k Key, cores state.CoreSet, gpus state.GPUSet)
	Ended(node string, k Key, complete bool)
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
	// Labels returns those of the machine, sorted by key, when it registers at a
	// time; nil for a machine that never has any.
	Labels func(at int64) []*logv1.Label
	// PPM is how much the machine's clock gains.
	PPM     int64
	Servers Servers
	Witness Witness
	Lease   func(now func() int64) Lease
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
	// StartAgain: a restarted agent starts what its journal holds.
	StartAgain bool
	// ForgetJournal: an attempt is started before it is in the journal, and the
	// journal is lost in a crash.
	ForgetJournal bool
	// KeepOld: what runs of an older incarnation is not killed.
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
	key      Key
	reported bool
	// boot is the boot of the machine in which it was accepted.
	boot int
}

func (j *journal) find(k Key) int {
	for i := range j.attempts {
		if j.attempts[i].key == k {
			return i
		}
	}
	return -1
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
func (n *Node) Idle() bool { return len(n.sup.running) == 0 && len(n.agent.attempts) == 0 }

// Incarnation returns the one that the agent works for, 0 before it is registered.
func (n *Node) Incarnation() uint64 { return n.agent.incarnation }

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
)

// registration is what the agent says of its machine.
func (n *Node) registration(incarnation uint64) *logv1.RegisterNode {
	c := &logv1.RegisterNode{
		Name: n.opts.Name, Incarnation: incarnation, JournalId: n.disk.id, Pool: n.opts.Pool, MemoryBytes: n.opts.Memory,
		Gpus: n.opts.GPUs, BandwidthBps: n.opts.Bandwidth,
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
