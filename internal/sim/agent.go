package sim

import (
	"slices"

	"rota/agent/plan"
	logv1 "rota/api/gen/log/v1"
)

// Times of the agent on its own clock, as package agent has them.
const (
	registerTimeout = 5 * second
	reportTimeout   = 3 * second
	silenceMax      = 5 * second
	backoffMin      = 50 * millisecond
	backoffMax      = 2 * second
)

// agent is the process that works for the cluster: it does what the plan of package
// agent/plan decides. Its fields but proc are memory: gone when it dies.
type agent struct {
	n    *Node
	proc *Process

	memory
}

type memory struct {
	plan *plan.Plan // nil: the process is dead

	waking bool  // the plan is asked in a moment
	alarm  int64 // when it is asked at the latest, on the node's clock; 0: never

	session int // counts sessions, so that answers to an earlier one are known
	server  int // asked next
	call    int // counts calls that have a time-out
	backoff int64
	stream  stream

	writing *plan.Journal // to the disk; nil: nothing

	connection int          // to the supervisor
	starts     []plan.Start // that it has not answered
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

// boot starts the process: what the journal holds comes into the plan, and the
// supervisor says what became of it.
func (a *agent) boot() {
	disk := &a.n.disk
	a.trace("an agent starts, incarnation %d, %d attempts in its journal", disk.incarnation, len(disk.attempts))
	var attempts []plan.Accepted
	for _, e := range disk.attempts {
		if !a.n.opts.Flaws.StartAgain {
			attempts = append(attempts, plan.Accepted{Key: e.key, Reported: e.reported, Rebooted: e.boot != a.n.sup.boot})
		}
	}
	a.proc.Start()
	a.memory = memory{plan: plan.New(disk.incarnation, attempts)}
	a.connect()
}

// crash kills the process. A write to the journal that is under way may be on
// the disk or not.
func (a *agent) crash() {
	if a.stream.cancel != nil {
		a.stream.cancel()
	}
	d := a.n.opts.Draws.Of(a.n.opts.Luck+luckTorn, a.n.opts.Loop.now)
	if a.writing != nil && d.Chance(500_000) {
		a.n.disk.write(*a.writing, a.n.sup.boot)
	}
	a.proc.Kill()
	a.memory = memory{}
}

// connect finds the supervisor or starts one.
func (a *agent) connect() {
	s, life := a.n.sup, a.proc.life
	if !s.proc.Alive() {
		s.launch()
	}
	s.whenReady(func() {
		if life != a.proc.life {
			return // another agent by now
		}
		connection, runs, ends := s.attach()
		a.hear(func(a *agent) {
			a.connection = connection
			a.plan.Connected(runs, ends, a.n.opts.Resizes, a.n.clock.Now())
			a.wake()
		})
	})
}

// lostSupervisor is what the agent sees of a supervisor's death.
func (a *agent) lostSupervisor() {
	a.hear(func(a *agent) {
		a.trace("lost the supervisor; starting another")
		a.plan.Disconnected()
		for _, s := range a.starts {
			a.plan.Started(s.Connection, s.Key, plan.Unknown, "the connection was lost", a.n.clock.Now())
		}
		a.starts = nil
		a.connect()
		a.wake()
	})
}

// wake has the agent ask its plan what is due.
func (a *agent) wake() {
	if !a.waking {
		a.waking = true
		a.proc.After(20*microsecond, a.look)
	}
}

func (a *agent) look() {
	a.waking = false
	now := a.n.clock.Now()
	steps, again := a.plan.Next(now)
	for _, s := range steps {
		a.do(s)
	}
	if a.alarm > now && a.alarm <= again {
		return
	}
	a.alarm = again
	a.proc.After(min(again-now, hour), func() {
		if a.alarm == again {
			a.alarm = 0
			a.wake()
		}
	})
}

// do does one step of the plan.
func (a *agent) do(step plan.Step) {
	switch step := step.(type) {
	case plan.Abandon: // nothing comes before the supervisor here
	case plan.Note:
		a.trace("%v: %s", step.Key, step.Text)
	case plan.Register:
		a.register(step)
	case plan.Open:
		a.trace("begins incarnation %d", step.Incarnation)
		a.session++
		a.follow()
	case plan.Close:
		a.close(step)
	case plan.Renew:
		a.renew(step)
	case plan.Report:
		a.report(step)
	case plan.ReportFrozen:
		a.reportFrozen(step)
	case plan.Journal:
		a.write(step)
	default:
		a.ask(step)
	}
}

// ask does the steps that are orders to the supervisor. It hears none of an earlier
// connection.
func (a *agent) ask(step plan.Step) {
	s, delay := a.n.sup, 50*microsecond
	var order func()
	switch step := step.(type) {
	case plan.Start:
		delay = a.n.delay(luckSupervisor+step.Key.Action, 100*microsecond, 5*millisecond)
		a.starts = append(a.starts, step)
		order = func() { a.started(step, s.start(step)) }
	case plan.Kill:
		if a.n.opts.Flaws.KeepOld && step.Reason == plan.ReasonNodeLost {
			a.hear(func(a *agent) { a.exited(plan.Exit{Key: step.Key, Reason: step.Reason}) })
			return
		}
		order = func() { s.kill(step.Key, step.Reason) }
	case plan.Resize:
		delay = a.n.delay(luckResize+step.Key.Action, 100*microsecond, 5*millisecond)
		order = func() {
			done := s.resize(step)
			a.tell(func(p *plan.Plan) { p.Resized(step.Connection, step.Key, done, a.n.clock.Now()) })
		}
	case plan.Freeze:
		delay = a.n.delay(luckResize+step.Key.Action, 100*microsecond, 5*millisecond)
		order = func() {
			s.freeze(step.Key, step.Frozen)
			a.tell(func(p *plan.Plan) { p.Froze(step.Connection, step.Key, step.Frozen, true, a.n.clock.Now()) })
		}
	case plan.Forget:
		order = func() { s.forget(step.Keys) }
	case plan.Arm:
		order = func() {
			s.setDeadline(step.Deadline)
			a.tell(func(p *plan.Plan) { p.Armed(step.Connection, step.Deadline) })
		}
	case plan.List:
		order = func() {
			runs, ends := s.list()
			a.tell(func(p *plan.Plan) { p.Listed(step.Connection, runs, ends, a.n.clock.Now()) })
		}
	case plan.CheckSupervisor:
		a.checkSupervisor(step.WithinNS)
		return
	}
	connection := a.connection
	s.proc.After(delay, func() {
		if s.connection == connection {
			order()
		}
	})
}

// tell tells the plan something from outside.
func (a *agent) tell(fn func(*plan.Plan)) {
	a.hear(func(a *agent) {
		fn(a.plan)
		a.wake()
	})
}

func (a *agent) exited(e plan.Exit) {
	a.plan.Exited(e)
	a.wake()
}

// started passes on what the supervisor answered to a start.
func (a *agent) started(s plan.Start, answer plan.Answer) {
	a.hear(func(a *agent) {
		if i := slices.IndexFunc(a.starts, func(o plan.Start) bool { return o.Key == s.Key }); i >= 0 {
			a.starts = slices.Delete(a.starts, i, i+1)
			a.plan.Started(s.Connection, s.Key, answer, "", a.n.clock.Now())
			a.wake()
		}
	})
}

// checkSupervisor kills a supervisor that does not answer.
func (a *agent) checkSupervisor(within int64) {
	s := a.n.sup
	life, answered := s.proc.life, false
	s.proc.After(50*microsecond, func() { answered = true })
	a.proc.After(within, func() {
		if !answered && life == s.proc.life {
			a.trace("the supervisor does not answer while attempts have to die; killing it")
			s.crash()
		}
	})
}

// write enters into the journal what the step says.
func (a *agent) write(j plan.Journal) {
	if a.n.opts.Flaws.ForgetJournal && j.Incarnation == 0 {
		a.plan.Journaled()
		a.wake()
		return
	}
	a.writing = &j
	a.proc.After(a.fsync(), func() {
		a.writing = nil
		a.n.disk.write(j, a.n.sup.boot)
		a.plan.Journaled()
		a.wake()
	})
}

// next goes on to another server after a failure and returns how long to wait.
func (a *agent) next() int64 {
	a.server = (a.server + 1) % a.n.opts.Servers.Count()
	a.backoff = min(backoffMax, max(backoffMin, 2*a.backoff))
	return a.backoff
}

// register repeats until the cluster answers.
func (a *agent) register(step plan.Register) {
	again := func() { a.proc.After(a.next(), func() { a.register(step) }) }
	call := a.deadline(registerTimeout, again)
	a.n.opts.Servers.Register(a.server, a.n.registration(step.Incarnation), func(r Registration, ok bool) {
		a.hear(func(a *agent) {
			switch {
			case !a.answered(call):
			case !ok:
				again()
			default:
				a.registered(r)
			}
		})
	})
}

func (a *agent) registered(r Registration) {
	a.trace("registered, incarnation %d at index %d", r.Incarnation, r.Index)
	a.backoff = 0
	if a.n.opts.Flaws.IgnoreLease {
		r.Margin = -100 * hour // so neither it nor the supervisor has a deadline to speak of
	}
	a.plan.Registered(plan.Terms{Incarnation: r.Incarnation, Index: r.Index, LeaseNS: r.Lease, MarginNS: r.Margin})
	a.wake()
}

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

// close ends a session.
func (a *agent) close(step plan.Close) {
	a.trace("killing everything that runs here: %s", step.Why)
	a.n.lost++
	a.session++
	if a.stream.cancel != nil {
		a.stream.cancel()
		a.stream.cancel = nil
	}
}

// renew asks for a renewal: one server, or all of them at once.
func (a *agent) renew(step plan.Renew) {
	sent, session := a.n.clock.Now(), a.session
	ask := func(server int) {
		a.n.opts.Servers.Renew(server, a.n.opts.Name, step.Incarnation, func(fenced, ok bool) {
			if ok {
				a.tell(func(p *plan.Plan) { p.Renewed(step.Number, sent, fenced, a.n.clock.Now()) })
			}
		})
	}
	if step.All {
		for server := range a.n.opts.Servers.Count() {
			ask(server)
		}
	} else {
		ask(a.server)
	}
	a.proc.After(step.WithinNS, func() {
		if session == a.session && a.plan.NotRenewed(step.Number, a.n.clock.Now()+step.WithinNS/8) {
			a.server = (a.server + 1) % a.n.opts.Servers.Count()
			a.wake()
		}
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
	a.stream.cancel = a.n.opts.Servers.Watch(a.server, a.n.opts.Name, a.plan.Incarnation(), a.plan.SeenIndex(),
		func(d plan.Desired) {
			a.hear(func(a *agent) {
				if current() {
					a.stream.heard, a.backoff = a.n.clock.Now(), 0
					a.desire(d)
					a.wake()
				}
			})
		},
		func() { a.hear(func(*agent) { again() }) })
	a.watchSilence(current, again)
}

// desire tells the plan what is desired, and the witness what of that the plan takes.
func (a *agent) desire(d plan.Desired) {
	a.plan.Desire(d)
	if !a.plan.Told(d.Incarnation, d.Index) {
		return
	}
	for _, as := range d.Assignments {
		a.n.opts.Witness.Shares(as.Key, as.Shares)
	}
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

// usage is what an attempt used, as servers put it into the log.
func usage(uses []plan.QuotaUse) (out []*logv1.QuotaUse) {
	for _, u := range uses {
		out = append(out, &logv1.QuotaUse{Quota: u.Quota, Units: uint32(u.Units)})
	}
	return out
}

// report sends ends to one server.
func (a *agent) report(step plan.Report) {
	c := &logv1.ReportAttempts{Node: a.n.opts.Name, Incarnation: step.Incarnation}
	keys := make([]plan.Key, len(step.Exits))
	for i, e := range step.Exits {
		keys[i] = e.Key
		c.Reports = append(c.Reports, &logv1.AttemptReport{
			ActionId: e.Key.Action, Attempt: e.Key.Attempt, Reason: uint32(e.Reason), ExitCode: int32(e.ExitCode), ExecNs: int64(e.Exec),
			Throttled: e.Throttled, RetryNs: int64(e.RetryAfter), Usage: usage(e.Usage),
		})
	}
	answered := false
	finish := func(index uint64, ok bool) {
		if answered {
			return
		}
		answered = true
		wait := int64(0)
		if ok {
			a.plan.Reported(keys, index)
		} else {
			wait = a.next()
		}
		a.proc.After(wait, func() {
			a.plan.ReportsDone()
			a.wake()
		})
	}
	a.n.opts.Servers.Report(a.server, c, func(index uint64, ok bool) {
		a.hear(func(*agent) { finish(index, ok) })
	})
	a.proc.After(reportTimeout, func() { finish(0, false) })
}

// reportFrozen says to one server what is frozen.
func (a *agent) reportFrozen(step plan.ReportFrozen) {
	c := &logv1.ReportFrozen{Node: a.n.opts.Name, Incarnation: step.Incarnation}
	for _, f := range step.Attempts {
		c.Attempts = append(c.Attempts, &logv1.FrozenAttempt{ActionId: f.Key.Action, Attempt: f.Key.Attempt, Pause: f.Pause})
	}
	answered := false
	finish := func(ok bool) {
		if answered {
			return
		}
		answered = true
		wait := int64(0)
		if !ok {
			wait = a.next()
		}
		a.proc.After(wait, func() {
			a.plan.FrozenReported(step.Attempts, ok)
			a.wake()
		})
	}
	a.n.opts.Servers.ReportFrozen(a.server, c, func(ok bool) { a.hear(func(*agent) { finish(ok) }) })
	a.proc.After(reportTimeout, func() { finish(false) })
}

// fsync is how long a write to the journal takes.
func (a *agent) fsync() int64 { return a.n.delay(luckJournal, millisecond/2, 30*millisecond) }
