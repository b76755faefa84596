package sim

import (
	"slices"
	"time"

	"rota/agent/plan"
	"rota/fsm/state"
)

const (
	microsecond int64 = 1_000
	millisecond int64 = 1_000_000
	second      int64 = 1_000_000_000
	hour              = 3600 * second
)

// supervisor is the parent of every execution. It kills them all at the
// deadline that it was told last, on its own.
type supervisor struct {
	n    *Node
	proc *Process
	// running are the executions of the machine, also those that a dead
	// supervisor has left.
	running []*execution
	// ended are the exits that nobody has confirmed; they are on disk.
	ended []plan.Exit
	// connection counts those of agents. Only orders of the newest one are heard.
	connection int
	deadline   int64 // on the node's clock; 0: none yet
	boot       int   // counts boots of the machine
	// ready: it has killed what an earlier one left; waiting asked to be told.
	ready   bool
	waiting []func()
}

// execution is the processes of an attempt.
type execution struct {
	key   plan.Key
	work  Work
	cores state.CoreSet
	began int64 // virtual time
	// left is how long it would go on from since on, with its cores; changes counts those of
	// its cores, so that an end that was foreseen before is known.
	left, since int64
	changes     int
	killed      plan.Reason // why it was told to die; 0: it was not
	gone        bool
	frozen      bool
	// adopted is false while the supervisor that started it is dead.
	adopted bool
}

func newSupervisor(n *Node) *supervisor {
	return &supervisor{n: n, proc: NewProcess(n.opts.Loop, n.clock)}
}

// launch starts a supervisor. Before it answers anybody it kills what an
// earlier one has left.
func (s *supervisor) launch() {
	s.proc.Start()
	s.deadline, s.ready, s.waiting = 0, false, nil
	s.proc.After(s.n.delay(luckSupervisor, 5*millisecond, 100*millisecond), s.sweep)
}

func (s *supervisor) sweep() {
	for _, x := range s.running {
		s.end(x, plan.ReasonSupervisorLost)
	}
	if len(s.running) > 0 {
		s.proc.After(5*millisecond, s.sweep)
		return
	}
	s.ready = true
	for _, fn := range s.waiting {
		fn()
	}
	s.waiting = nil
}

// whenReady calls fn as soon as the supervisor answers.
func (s *supervisor) whenReady(fn func()) {
	if s.ready {
		s.proc.After(50*microsecond, fn)
		return
	}
	s.waiting = append(s.waiting, fn)
}

// crash kills the supervisor. The kernel kills the main process of each
// execution, but not what that one started.
func (s *supervisor) crash() {
	if !s.proc.Alive() {
		return
	}
	s.proc.Kill()
	for _, x := range s.running {
		x.adopted = false
		if !x.work.Children {
			s.die(x, 2*millisecond)
		}
	}
	s.n.agent.lostSupervisor()
}

// reset is what a reboot of the machine does.
func (s *supervisor) reset() {
	s.proc.Kill()
	for len(s.running) > 0 {
		s.gone(s.running[0], false)
	}
	s.boot++
}

// attach makes a new connection the only one, and says what the supervisor runs and
// has run. What was asked over an earlier one and has not arrived yet never will.
func (s *supervisor) attach() (connection int, runs []plan.Running, ends []plan.Exit) {
	s.connection++
	for _, x := range s.running {
		x.adopted = true
	}
	runs, ends = s.list()
	return s.connection, runs, ends
}

func (s *supervisor) list() (runs []plan.Running, ends []plan.Exit) {
	for _, x := range s.running {
		r := plan.Running{Key: x.key, Frozen: x.frozen}
		if s.n.opts.Resizes {
			r.CPUs = cpusOf(x.cores)
		}
		runs = append(runs, r)
	}
	return runs, slices.Clone(s.ended)
}

// start forks.
func (s *supervisor) start(step plan.Start) plan.Answer {
	key, as := step.Key, step.Work.(Assigned)
	runs, ends := s.list()
	switch {
	case s.deadline == 0 || s.n.clock.Now() >= s.deadline:
		return plan.Disarmed
	case slices.ContainsFunc(runs, func(r plan.Running) bool { return r.Key == key }), slices.ContainsFunc(ends, func(e plan.Exit) bool { return e.Key == key }):
		return plan.Unknown // it is known already, so it is not started
	}
	work := s.n.opts.Work(as.Spec)
	work.Run += as.SetUp
	x := &execution{key: key, work: work, cores: as.Cores, began: s.n.opts.Loop.Now(), adopted: true}
	if s.n.opts.Resizes {
		x.cores = coresOf(step.CPUs)
	}
	s.running = append(s.running, x)
	s.n.opts.Witness.Began(s.n.opts.Name, key, x.cores, as.GPUs)
	x.left = work.With(x.cores.Len())
	s.goOn(x)
	return plan.OK
}

// goOn has an execution end when it has done what it has left.
func (s *supervisor) goOn(x *execution) {
	changes := x.changes
	x.since = s.n.opts.Loop.Now()
	s.n.opts.Loop.After(x.left, func() {
		if changes == x.changes {
			s.finish(x)
		}
	})
}

// resize gives a running execution other cores, and reports whether it has them. One that shares cores is
// as fast as one that has them to itself.
func (s *supervisor) resize(step plan.Resize) (done bool) {
	i := slices.IndexFunc(s.running, func(x *execution) bool { return x.key == step.Key })
	if i < 0 || len(step.CPUs) == 0 {
		return false
	}
	x, cores := s.running[i], coresOf(step.CPUs)
	used := s.n.opts.Loop.Now() - x.since
	if x.frozen {
		used = 0
	}
	x.left = Rescaled(x.left-used, x.work.With(x.cores.Len()), x.work.With(cores.Len()))
	x.cores = cores
	x.changes++
	s.n.opts.Witness.Resized(s.n.opts.Name, step.Key, cores)
	if !x.frozen {
		s.goOn(x)
	}
	return true
}

// freeze stops a running execution where it is, or lets it go on.
func (s *supervisor) freeze(key plan.Key, frozen bool) {
	i := slices.IndexFunc(s.running, func(x *execution) bool { return x.key == key })
	if i < 0 || s.running[i].frozen == frozen {
		return
	}
	x := s.running[i]
	x.frozen = frozen
	s.n.opts.Witness.Froze(s.n.opts.Name, key, frozen)
	if !frozen {
		s.goOn(x)
		return
	}
	x.left = max(0, x.left-(s.n.opts.Loop.Now()-x.since))
	x.changes++
}

// Rescaled returns how long it takes with other resources to do what is left, if all of it
// took was before and takes is now.
func Rescaled(left, was, is int64) int64 {
	return int64(state.MulDiv(uint64(max(0, left)), uint64(is), uint64(max(1, was))))
}

func cpusOf(cores state.CoreSet) (cpus plan.CPUs) {
	for _, cpu := range cores.Slice() {
		cpus = append(cpus, int(cpu))
	}
	return cpus
}

func coresOf(cpus plan.CPUs) (cores state.CoreSet) {
	for _, cpu := range cpus {
		cores.Add(cpu)
	}
	return cores
}

// finish is the natural end of an execution.
func (s *supervisor) finish(x *execution) {
	if x.gone {
		return
	}
	adopted := x.adopted
	s.gone(x, true)
	if adopted {
		s.tell(plan.Exit{
			Key: x.key, Reason: plan.ReasonExited, ExitCode: int(x.work.ExitCode), Exec: time.Duration(s.n.opts.Loop.Now() - x.began),
			Throttled: x.work.Throttled, RetryAfter: time.Duration(x.work.RetryAfter), Usage: x.work.Usage,
		})
	}
}

// end kills an execution for a reason, the first of which counts.
func (s *supervisor) end(x *execution, reason plan.Reason) {
	if x.gone || x.killed != 0 {
		return
	}
	x.killed = reason
	s.die(x, s.n.delay(luckDeath, millisecond/2, 20*millisecond)+x.work.Stop)
}

func (s *supervisor) die(x *execution, after int64) {
	s.n.opts.Loop.After(after, func() {
		if x.gone {
			return
		}
		adopted := x.adopted
		s.gone(x, false)
		if adopted && x.killed != 0 {
			s.tell(plan.Exit{Key: x.key, Reason: x.killed, Exec: time.Duration(s.n.opts.Loop.Now() - x.began)})
		}
	})
}

// gone takes the last process of an execution away.
func (s *supervisor) gone(x *execution, complete bool) {
	x.gone = true
	i := slices.Index(s.running, x)
	s.running = slices.Delete(s.running, i, i+1)
	s.n.opts.Witness.Ended(s.n.opts.Name, x.key, complete)
}

// tell notes an exit and passes it on, when the supervisor gets to it.
func (s *supervisor) tell(e plan.Exit) {
	s.proc.After(50*microsecond, func() {
		s.ended = append(s.ended, e)
		s.n.agent.hear(func(a *agent) { a.exited(e) })
	})
}

// kill is the agent's order.
func (s *supervisor) kill(key plan.Key, reason plan.Reason) {
	for _, x := range s.running {
		if x.key == key {
			s.end(x, reason)
		}
	}
}

// setDeadline arms the supervisor.
func (s *supervisor) setDeadline(at int64) {
	s.deadline = max(s.deadline, at)
	s.proc.After(s.deadline-s.n.clock.Now(), s.alarm)
}

// alarm kills everything if the deadline has passed.
func (s *supervisor) alarm() {
	switch {
	case s.deadline == 0:
	case s.n.clock.Now() < s.deadline: // moved, or rounded
		if s.deadline-s.n.clock.Now() < millisecond {
			s.proc.After(millisecond, s.alarm)
		}
	default:
		for _, x := range s.running {
			s.end(x, plan.ReasonNodeLost)
		}
	}
}

// forget drops exits that the agent has dealt with.
func (s *supervisor) forget(keys []plan.Key) {
	s.ended = slices.DeleteFunc(s.ended, func(e plan.Exit) bool { return slices.Contains(keys, e.Key) })
}
