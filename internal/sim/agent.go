package sim

import (
	"slices"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Times of the agent on its own clock, as package agent has them.
const (
	registerTimeout = 5 * second
	reportTimeout   = 3 * second
	silenceMax      = 5 * second
	backoffMin      = 50 * millisecond
	backoffMax      = 2 * second
)

// agent is the process that works for the cluster. Its fields but proc are
// memory: gone when it dies.
type agent struct {
	n    *Node
	proc *Process

	memory
}

type memory struct {
	lease Lease
	terms Registration
	// incarnation that may run attempts; 0 before registration.
	incarnation uint64
	minIndex    uint64
	open        bool
	attempts    []*attempt // in the order in which they came to be known
	done        []Key      // what the journal may forget

	// session counts sessions, so that answers to an earlier one are known.
	session int
	server  int // asked next
	call    int // counts calls that have a time-out
	backoff int64
	stream  stream
	renewal int // counts renewals: the first answer to one counts
	failed  int // renewals in a row that were not answered

	// evicting is what to do when everything that is not of keep is dead.
	evicting func()
	keep     uint64

	begun     bool // sessions have
	connected bool // to the supervisor
	armed     bool // the supervisor knows a deadline

	accepting, reporting, tidying, waking bool
}

type stream struct {
	id     int
	heard  int64 // on the node's clock
	cancel func()
}

func newAgent(n *Node) *agent {
	return &agent{n: n, proc: NewProcess(n.opts.Loop, n.clock)}
}

func (a *agent) trace(format string, args ...any) {
	a.n.opts.Trace(a.n.opts.Name+": "+format, args...)
}

// hear passes something on to the agent's process, if there is one.
func (a *agent) hear(fn func(*agent)) {
	a.proc.After(50*microsecond, func() { fn(a) })
}

// boot starts the process: what the journal holds comes into the table, and the
// supervisor says what became of it.
func (a *agent) boot() {
	a.proc.Start()
	a.memory = memory{lease: a.n.opts.Lease(a.n.clock.Now)}
	disk := &a.n.disk
	a.trace("an agent starts, incarnation %d, %d attempts in its journal", disk.incarnation, len(disk.attempts))
	a.incarnation = disk.incarnation
	for _, e := range disk.attempts {
		t := &attempt{key: e.key, phase: phaseRunning, rebooted: e.boot != a.n.sup.boot}
		if e.reported {
			t.phase = phaseReported
		}
		a.attempts = append(a.attempts, t)
	}
	a.connect()
}

// crash kills the process. A write to the journal that is under way may be on
// the disk or not, see accept.
func (a *agent) crash() {
	if a.stream.cancel != nil {
		a.stream.cancel()
	}
	a.proc.Kill()
	a.memory = memory{}
}

// connect finds the supervisor or starts one, and adopts what it knows.
func (a *agent) connect() {
	s, life := a.n.sup, a.proc.life
	if !s.proc.Alive() {
		s.launch()
	}
	s.whenReady(func() {
		if life != a.proc.life {
			return // another agent by now
		}
		for _, x := range s.running {
			x.adopted = true
		}
		a.hear(func(a *agent) { a.adopted() })
	})
}

func (a *agent) adopted() {
	if a.connected {
		return
	}
	a.connected, a.armed = true, false
	a.adopt()
	a.pushDeadline()
	if !a.begun {
		a.begun = true
		a.begin()
	}
	a.wake()
}

// lostSupervisor is what the agent sees of a supervisor's death.
func (a *agent) lostSupervisor() {
	a.hear(func(a *agent) {
		a.connected, a.armed = false, false
		for _, t := range a.attempts {
			if t.phase == phaseStarting { // not answered: the next list tells
				t.phase = phaseRunning
			}
		}
		a.trace("lost the supervisor; starting another")
		a.connect()
	})
}

// begin is the start of sessions.
func (a *agent) begin() {
	if a.n.disk.incarnation == 0 {
		// The cluster will believe that nothing runs here, so nothing may.
		a.killAll(0, func() { a.register() })
		return
	}
	a.register()
}

// killAll kills what is not of the incarnation keep (0: everything) and calls
// then when it is dead.
func (a *agent) killAll(keep uint64, then func()) {
	a.open, a.keep, a.evicting = false, keep, then
	for _, t := range slices.Clone(a.attempts) {
		if keep == 0 || t.key.Incarnation != keep {
			a.stop(t, state.EndNodeLost)
		}
	}
	a.wake()
	a.watchFrozen(a.session)
}

// watchFrozen kills a supervisor that does not answer while something has to die.
func (a *agent) watchFrozen(session int) {
	patience := int64(a.lease.Patience())
	a.proc.After(2*patience, func() {
		if session != a.session || a.evicting == nil {
			return
		}
		if a.n.sup.proc.Paused() {
			a.trace("the supervisor does not answer while attempts have to die; killing it")
			a.n.sup.crash()
		}
		a.watchFrozen(session)
	})
}

// settleEviction goes on if everything that has to be dead is.
func (a *agent) settleEviction() {
	if a.evicting == nil {
		return
	}
	for _, t := range a.attempts {
		if t.phase.live() && (a.keep == 0 || t.key.Incarnation != a.keep) && !a.n.opts.Flaws.KeepOld {
			return
		}
	}
	then := a.evicting
	a.evicting = nil
	then()
}

// next goes on to another server after a failure and returns how long to wait.
func (a *agent) next() int64 {
	a.server = (a.server + 1) % a.n.opts.Servers.Count()
	a.backoff = min(backoffMax, max(backoffMin, 2*a.backoff))
	return a.backoff
}

// register repeats until the cluster answers.
func (a *agent) register() {
	a.session++
	session, call := a.session, a.deadline(registerTimeout, a.registerAgain)
	a.n.opts.Servers.Register(a.server, a.n.registration(a.n.disk.incarnation), func(r Registration, ok bool) {
		a.hear(func(a *agent) {
			switch {
			case session != a.session || !a.answered(call):
			case !ok:
				a.registerAgain()
			default:
				a.backoff = 0
				a.enter(r)
			}
		})
	})
}

func (a *agent) registerAgain() { a.proc.After(a.next(), a.register) }

// deadline gives a call a time-out; answered says whether its answer came in
// time, once.
func (a *agent) deadline(d int64, late func()) (call int) {
	a.call++
	call = a.call
	a.proc.After(d, func() {
		if a.answered(call) {
			late()
		}
	})
	return call
}

func (a *agent) answered(call int) bool {
	if call != a.call {
		return false
	}
	a.call++
	return true
}

// enter begins the incarnation that the cluster answered: everything older is
// dead and its journal forgotten before anything of it is started.
func (a *agent) enter(r Registration) {
	a.killAll(r.Incarnation, func() {
		if a.n.disk.incarnation == r.Incarnation {
			a.beginSession(r)
			return
		}
		a.proc.After(a.fsync(), func() {
			a.n.disk.incarnation, a.n.disk.attempts = r.Incarnation, nil
			a.beginSession(r)
		})
	})
}

func (a *agent) beginSession(r Registration) {
	a.trace("registered, incarnation %d at index %d", r.Incarnation, r.Index)
	a.terms, a.failed = r, 0
	a.lease.Begin(time.Duration(r.Lease), time.Duration(r.Margin))
	for _, t := range slices.Clone(a.attempts) {
		if t.key.Incarnation != r.Incarnation {
			a.drop(t)
		}
	}
	a.incarnation, a.minIndex, a.open = r.Incarnation, max(a.minIndex, r.Index), true
	a.renew()
	a.follow()
	a.wake()
}

// endSession is the loss of the lease: all is killed, then the node registers
// again.
func (a *agent) endSession(why string) {
	a.trace("killing everything that runs here: %s", why)
	a.n.lost++
	a.session++
	a.lease.End()
	if a.stream.cancel != nil {
		a.stream.cancel()
		a.stream.cancel = nil
	}
	if a.n.opts.Flaws.IgnoreLease {
		a.register()
		return
	}
	a.killAll(0, a.register)
}

// renew asks one server, and after a failure all of them at once.
func (a *agent) renew() {
	session := a.session
	a.renewal++
	renewal, sent := a.renewal, a.n.clock.Now()
	ask := func(server int) {
		a.n.opts.Servers.Renew(server, a.n.opts.Name, a.incarnation, func(fenced, ok bool) {
			a.hear(func(a *agent) {
				if session == a.session && renewal == a.renewal && ok {
					a.renewed(sent, fenced)
				}
			})
		})
	}
	if a.failed == 0 {
		ask(a.server)
	} else {
		for server := range a.n.opts.Servers.Count() {
			ask(server)
		}
	}
	a.proc.After(a.terms.Lease/6, func() {
		if session != a.session || renewal != a.renewal {
			return
		}
		a.failed++
		a.server = (a.server + 1) % a.n.opts.Servers.Count()
		pause := min(a.terms.Lease/12, a.terms.Lease/200<<min(a.failed, 10))
		a.proc.After(pause, func() {
			if session == a.session && renewal == a.renewal {
				a.renew()
			}
		})
	})
}

func (a *agent) renewed(sent int64, fenced bool) {
	a.failed = 0
	a.renewal++
	if fenced {
		a.endSession("the cluster has given this incarnation up")
		return
	}
	a.lease.Extend(sent)
	a.watchLease()
	a.pushDeadline()
	a.wake()
	session, renewal := a.session, a.renewal
	a.proc.After(max(0, a.terms.Lease/3-(a.n.clock.Now()-sent)), func() {
		if session == a.session && renewal == a.renewal {
			a.renew()
		}
	})
}

// watchLease ends the session at the deadline. It does not depend on any call.
func (a *agent) watchLease() {
	if a.lease.Expired() {
		a.endSession("the lease was not renewed in time")
		return
	}
	session, held := a.session, a.lease.Held()
	a.proc.After(max(millisecond, held-a.n.clock.Now()), func() {
		switch {
		case session != a.session:
		case a.lease.Expired():
			a.endSession("the lease was not renewed in time")
		case a.lease.Held() == held: // woken a moment early
			a.watchLease()
		}
	})
}

// pushDeadline tells the supervisor how long attempts may run.
func (a *agent) pushDeadline() {
	held := a.lease.Held()
	if held == 0 || !a.connected {
		return
	}
	a.n.sup.proc.After(50*microsecond, func() {
		a.n.sup.setDeadline(held)
		a.hear(func(a *agent) {
			a.armed = a.connected
			a.wake()
		})
	})
}

// follow keeps one stream of desired states open.
func (a *agent) follow() {
	if a.stream.cancel != nil {
		a.stream.cancel()
	}
	a.stream.id++
	a.stream.heard = a.n.clock.Now()
	session, id := a.session, a.stream.id
	current := func() bool { return session == a.session && id == a.stream.id }
	again := func() {
		if current() {
			wait := a.next()
			a.stream.id++
			id = a.stream.id
			a.proc.After(wait, func() {
				if current() {
					a.follow()
				}
			})
		}
	}
	a.stream.cancel = a.n.opts.Servers.Watch(a.server, a.n.opts.Name, a.incarnation, a.minIndex,
		func(d Desired) {
			a.hear(func(a *agent) {
				if current() {
					a.stream.heard, a.backoff = a.n.clock.Now(), 0
					a.desired(d)
				}
			})
		},
		func() { a.hear(func(*agent) { again() }) })
	a.watchSilence(current, again)
}

// watchSilence leaves a server that sends nothing.
func (a *agent) watchSilence(current func() bool, again func()) {
	a.proc.After(a.stream.heard+silenceMax-a.n.clock.Now()+millisecond, func() {
		switch {
		case !current():
		case a.n.clock.Now()-a.stream.heard >= silenceMax:
			again()
		default:
			a.watchSilence(current, again)
		}
	})
}

func (a *agent) desired(d Desired) {
	if a.desire(d) {
		a.endSession("the cluster has given this incarnation up")
		return
	}
	a.wake()
}

// report sends ends until a server confirms them, one call at a time.
func (a *agent) report(exits []exit) {
	a.reporting = true
	c := &logv1.ReportAttempts{Node: a.n.opts.Name, Incarnation: a.incarnation}
	for _, e := range exits {
		c.Reports = append(c.Reports, &logv1.AttemptReport{
			ActionId: e.key.Action, Attempt: e.key.Attempt, Reason: uint32(e.reason), ExitCode: e.code, ExecNs: e.ran,
		})
	}
	answered := false
	finish := func(index uint64, ok bool) {
		if answered {
			return
		}
		answered = true
		a.acked(exits, index, ok)
		wait := int64(0)
		if !ok {
			wait = a.next()
		}
		a.proc.After(wait, func() {
			a.reporting = false
			a.wake()
		})
	}
	a.n.opts.Servers.Report(a.server, c, func(index uint64, ok bool) {
		a.hear(func(*agent) { finish(index, ok) })
	})
	a.proc.After(reportTimeout, func() { finish(0, false) })
}

// fsync is how long a write to the journal takes.
func (a *agent) fsync() int64 { return a.n.delay(luckJournal, millisecond/2, 30*millisecond) }
