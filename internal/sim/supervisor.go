package sim

import (
	"slices"

	"rota/fsm/state"
)

const (
	microsecond int64 = 1_000
	millisecond int64 = 1_000_000
	second      int64 = 1_000_000_000
)

// exit is how an execution ended. Reasons have the values of rota.v1.EndReason.
type exit struct {
	key    Key
	reason state.EndReason
	code   int32
	ran    int64 // from start to end
}

// start is what the supervisor answers to an order to start.
type start uint8

const (
	startOK start = iota
	startDeadlinePassed
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
	ended    []exit
	deadline int64 // on the node's clock; 0: none yet
	boot     int   // counts boots of the machine
	// ready: it has killed what an earlier one left; waiting asked to be told.
	ready   bool
	waiting []func()
}

// execution is the processes of an attempt.
type execution struct {
	key    Key
	work   Work
	began  int64           // virtual time
	killed state.EndReason // why it was told to die; 0: it was not
	gone   bool
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
		s.end(x, state.EndSupervisorLost)
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

// start forks.
func (s *supervisor) start(key Key, cores state.CoreSet, gpus state.GPUSet, work Work) start {
	if s.deadline == 0 || s.n.clock.Now() >= s.deadline && !s.n.opts.Flaws.IgnoreLease {
		return startDeadlinePassed
	}
	x := &execution{key: key, work: work, began: s.n.opts.Loop.Now(), adopted: true}
	s.running = append(s.running, x)
	s.n.opts.Witness.Began(s.n.opts.Name, key, cores, gpus)
	s.n.opts.Loop.After(work.With(cores.Len()), func() { s.finish(x) })
	return startOK
}

// finish is the natural end of an execution.
func (s *supervisor) finish(x *execution) {
	if x.gone {
		return
	}
	adopted := x.adopted
	s.gone(x, true)
	if adopted {
		s.tell(exit{x.key, state.EndExited, x.work.ExitCode, s.n.opts.Loop.Now() - x.began})
	}
}

// end kills an execution for a reason, the first of which counts.
func (s *supervisor) end(x *execution, reason state.EndReason) {
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
			s.tell(exit{key: x.key, reason: x.killed})
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
func (s *supervisor) tell(e exit) {
	s.proc.After(50*microsecond, func() {
		s.ended = append(s.ended, e)
		s.n.agent.hear(func(a *agent) { a.exited(e) })
	})
}

// kill is the agent's order.
func (s *supervisor) kill(key Key, reason state.EndReason) {
	for _, x := range s.running {
		if x.key == key {
			s.end(x, reason)
		}
	}
}

// setDeadline arms the supervisor.
func (s *supervisor) setDeadline(at int64) {
	s.deadline = max(s.deadline, at)
	if !s.n.opts.Flaws.IgnoreLease {
		s.proc.After(s.deadline-s.n.clock.Now(), s.alarm)
	}
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
			s.end(x, state.EndNodeLost)
		}
	}
}

// forget drops exits that the agent has dealt with.
func (s *supervisor) forget(keys []Key) {
	s.ended = slices.DeleteFunc(s.ended, func(e exit) bool { return slices.Contains(keys, e.key) })
}
