package sim

import (
	"slices"

	"rota/fsm/state"
)

// phase is how far an attempt has come on its node, as in package agent.
type phase uint8

const (
	phaseWanted   phase = iota // desired, not in the journal yet
	phaseAccepted              // in the journal, not handed to the supervisor yet
	phaseStarting              // handed to the supervisor, which has not answered
	phaseRunning               // may run; an end will be told
	phaseEnded                 // ended, report due
	phaseReported              // a server has confirmed the report
)

func (p phase) live() bool { return p == phaseStarting || p == phaseRunning }

// attempt is one execution as the agent knows it.
type attempt struct {
	key   Key
	phase phase
	cores state.CoreSet
	gpus  state.GPUSet
	work  Work
	// refused ends the attempt instead of starting it.
	refused  state.EndReason
	kill     state.EndReason // why it must end; 0: it need not
	killedAt int64           // when the supervisor was last told so
	exit     exit
	inFlight bool // its report is
	ackIndex uint64
	rebooted bool
}

const killAgain = second

func (a *agent) find(k Key) *attempt {
	for _, t := range a.attempts {
		if t.key == k {
			return t
		}
	}
	return nil
}

// desire brings the table towards a desired state and reports whether the
// cluster has given the incarnation up.
func (a *agent) desire(d Desired) (fenced bool) {
	if !a.open || d.Index < a.minIndex {
		return false
	}
	a.minIndex = d.Index
	if d.Fenced {
		return true
	}
	for _, as := range d.Assignments {
		a.want(as)
	}
	for _, t := range slices.Clone(a.attempts) {
		named := slices.ContainsFunc(d.Assignments, func(as Assignment) bool { return as.Key == t.key })
		if !named && t.key.Incarnation == a.incarnation {
			a.unwant(t)
		}
	}
	return false
}

// want deals with one attempt that should exist.
func (a *agent) want(as Assignment) {
	t := a.find(as.Key)
	switch {
	case t == nil:
		a.attempts = append(a.attempts, a.newAttempt(as))
	case as.Stop && t.phase == phaseWanted:
		t.refused = state.EndCanceled
	case as.Stop:
		a.stop(t, state.EndCanceled)
	case t.phase == phaseReported && a.minIndex >= t.ackIndex:
		// The report was not heard after all.
		t.phase, t.ackIndex = phaseEnded, 0
		if t.exit.reason == 0 {
			t.exit = t.lostExit()
		}
	}
}

func (a *agent) newAttempt(as Assignment) *attempt {
	t := &attempt{key: as.Key, cores: as.Cores, gpus: as.GPUs, work: a.n.opts.Work(as.Spec)}
	t.work.Run += as.SetUp
	if as.Stop {
		t.refused = state.EndCanceled
		return t
	}
	for _, other := range a.attempts {
		if other.phase < phaseEnded && other.refused == 0 &&
			other.key.Action == t.key.Action && other.key.Incarnation == t.key.Incarnation {
			t.refused = state.EndStartFailed
		}
	}
	return t
}

// unwant deals with an attempt that should not exist.
func (a *agent) unwant(t *attempt) {
	switch t.phase {
	case phaseEnded, phaseReported:
		a.drop(t)
	case phaseAccepted:
		a.end(t, exit{key: t.key, reason: state.EndCanceled})
		a.drop(t)
	default:
		a.stop(t, state.EndCanceled)
	}
}

// stop makes an attempt end. Only a live one takes time to do so.
func (a *agent) stop(t *attempt, reason state.EndReason) {
	switch t.phase {
	case phaseWanted:
		a.remove(t)
	case phaseAccepted:
		a.end(t, exit{key: t.key, reason: reason})
	case phaseStarting, phaseRunning:
		if t.kill == 0 {
			t.kill = reason
		}
	}
}

// end records how an attempt ended. The first end that is told counts.
func (a *agent) end(t *attempt, e exit) {
	if t.phase >= phaseEnded {
		return
	}
	t.phase, t.exit = phaseEnded, e
	if t.key.Incarnation != a.incarnation && a.incarnation != 0 {
		a.drop(t) // the cluster has given it up with its incarnation
	}
}

func (a *agent) remove(t *attempt) {
	if i := slices.Index(a.attempts, t); i >= 0 {
		a.attempts = slices.Delete(a.attempts, i, i+1)
	}
}

// drop removes an attempt that the cluster will not name again.
func (a *agent) drop(t *attempt) {
	a.remove(t)
	a.done = append(a.done, t.key)
}

func (t *attempt) lostExit() exit {
	if t.rebooted {
		return exit{key: t.key, reason: state.EndNodeLost}
	}
	return exit{key: t.key, reason: state.EndSupervisorLost}
}

// adopt compares what a supervisor knows with the table. What it knows nothing
// of was lost, or never reached it: it is not started.
func (a *agent) adopt() {
	s := a.n.sup
	known := func(k Key) bool {
		return slices.ContainsFunc(s.running, func(x *execution) bool { return x.key == k }) ||
			slices.ContainsFunc(s.ended, func(e exit) bool { return e.key == k })
	}
	for _, x := range s.running {
		switch t := a.find(x.key); {
		case t == nil: // not in the journal, so it has to go
			a.attempts = append(a.attempts, &attempt{key: x.key, phase: phaseRunning, kill: state.EndNodeLost})
		case t.phase > phaseRunning:
			t.phase, t.kill = phaseRunning, state.EndNodeLost
		default:
			t.phase = phaseRunning
		}
	}
	for _, e := range slices.Clone(s.ended) {
		a.exited(e)
	}
	for _, t := range slices.Clone(a.attempts) {
		if t.phase != phaseRunning || known(t.key) {
			continue
		}
		if a.n.opts.Flaws.StartAgain {
			t.phase = phaseAccepted
			continue
		}
		a.end(t, t.lostExit())
	}
}

// exited records an end that the supervisor told.
func (a *agent) exited(e exit) {
	t := a.find(e.key)
	switch {
	case t == nil || t.phase == phaseReported:
		a.n.sup.forget([]Key{e.key})
		return
	case t.rebooted && e.reason == state.EndSupervisorLost:
		e = t.lostExit()
	}
	a.end(t, e)
	a.wake()
}

// ready says that attempts may be started: the lease is held, and the supervisor
// will enforce its end.
func (a *agent) ready() bool { return a.connected && a.armed && a.lease.Held() != 0 }

// wake has the agent look at what is due.
func (a *agent) wake() {
	if a.waking {
		return
	}
	a.waking = true
	a.proc.After(20*microsecond, func() {
		a.waking = false
		a.accept()
		a.startAll()
		a.killDue()
		a.reportDue()
		a.tidy()
		a.settleEviction()
	})
}

// accept enters what is wanted into the journal: only then may it be started.
func (a *agent) accept() {
	var keys []Key
	for _, t := range a.attempts {
		if t.phase == phaseWanted && (t.refused != 0 || a.ready() && a.open) {
			keys = append(keys, t.key)
		}
	}
	if len(keys) == 0 || a.accepting {
		return
	}
	if a.n.opts.Flaws.ForgetJournal {
		a.accepted(keys)
		return
	}
	a.accepting = true
	took, life := a.fsync(), a.proc.life
	// On the disk a moment before the agent knows, and should it die meanwhile.
	a.n.opts.Loop.After(took/2, func() {
		d := a.n.opts.Draws.Of(a.n.opts.Luck+luckTorn, a.n.opts.Loop.now)
		if life == a.proc.life || d.Chance(500_000) {
			a.journal(keys)
		}
	})
	a.proc.After(took, func() {
		a.accepting = false
		a.accepted(keys)
		a.wake()
	})
}

func (a *agent) journal(keys []Key) {
	for _, k := range keys {
		if k.Incarnation == a.n.disk.incarnation {
			a.n.disk.attempts = append(a.n.disk.attempts, journalEntry{key: k, boot: a.n.sup.boot})
		}
	}
}

func (a *agent) accepted(keys []Key) {
	for _, k := range keys {
		switch t := a.find(k); {
		case t == nil:
			a.done = append(a.done, k)
		case t.phase == phaseWanted:
			t.phase = phaseAccepted
			if t.refused != 0 {
				a.end(t, exit{key: k, reason: t.refused})
			}
		}
	}
}

// startAll hands over what is to be started now.
func (a *agent) startAll() {
	if !a.ready() || !a.open {
		return
	}
	for _, t := range a.attempts {
		if t.phase != phaseAccepted || t.key.Incarnation != a.incarnation {
			continue
		}
		t.phase = phaseStarting
		s := a.n.sup
		s.proc.After(a.n.delay(luckSupervisor+t.key.Action, 100*microsecond, 5*millisecond), func() {
			answer := s.start(t.key, t.cores, t.gpus, t.work)
			a.hear(func(a *agent) { a.started(t.key, answer) })
		})
	}
}

func (a *agent) started(k Key, answer start) {
	t := a.find(k)
	if t == nil || t.phase != phaseStarting {
		return
	}
	switch answer {
	case startOK:
		t.phase = phaseRunning
	default:
		a.armed = false // until the next renewal
		t.phase = phaseAccepted
		if t.kill != 0 {
			a.stop(t, t.kill)
		}
	}
	a.wake()
}

// killDue tells the supervisor what must end, again and again.
func (a *agent) killDue() {
	now := a.n.clock.Now()
	for _, t := range a.attempts {
		if t.phase != phaseRunning || t.kill == 0 || !a.connected || t.killedAt != 0 && now-t.killedAt < killAgain {
			continue
		}
		t.killedAt = now
		key, reason := t.key, t.kill
		a.n.sup.proc.After(50*microsecond, func() { a.n.sup.kill(key, reason) })
		a.proc.After(killAgain, a.wake)
	}
}

func (a *agent) reportDue() {
	if a.reporting {
		return
	}
	var exits []exit
	for _, t := range a.attempts {
		if t.phase == phaseEnded && t.key.Incarnation == a.incarnation {
			t.inFlight = true
			exits = append(exits, t.exit)
		}
	}
	if len(exits) > 0 {
		a.report(exits)
	}
}

// acked notes a confirmed report, first in the journal and then at the
// supervisor, or it would look like a lost attempt after a restart.
func (a *agent) acked(exits []exit, index uint64, ok bool) {
	var keys []Key
	for _, e := range exits {
		t := a.find(e.key)
		if t == nil || !t.inFlight {
			continue
		}
		t.inFlight = false
		if ok {
			t.phase, t.ackIndex = phaseReported, index
			keys = append(keys, e.key)
		}
	}
	if len(keys) == 0 {
		return
	}
	a.proc.After(a.fsync(), func() {
		for _, k := range keys {
			if i := a.n.disk.find(k); i >= 0 {
				a.n.disk.attempts[i].reported = true
			}
		}
		a.n.sup.proc.After(50*microsecond, func() { a.n.sup.forget(keys) })
	})
}

// tidy lets the journal forget what the cluster will not name again.
func (a *agent) tidy() {
	if a.tidying || len(a.done) == 0 {
		return
	}
	a.tidying = true
	done := a.done
	a.done = nil
	a.proc.After(a.fsync(), func() {
		a.tidying = false
		a.n.sup.proc.After(50*microsecond, func() { a.n.sup.forget(done) })
		a.n.disk.attempts = slices.DeleteFunc(a.n.disk.attempts, func(e journalEntry) bool { return slices.Contains(done, e.key) })
		a.wake()
	})
}
