package plan

const (
	// killAgain is when a kill is repeated if the attempt has not ended.
	killAgain = second
	// startAgain is how long a start waits that the supervisor had no room for.
	startAgain = 100 * millisecond
	// auditEvery is how often the supervisor is asked what it really runs.
	auditEvery = 30 * second
)

// link is the connection to the supervisor.
type link struct {
	connected bool
	// connection counts connections.
	connection int
	// resizes: the supervisor can change the CPUs of what runs.
	resizes bool
	// armed is the deadline that the supervisor knows, 0 if none. Until then it starts
	// what it is told to, and will kill that if the agent does not get to it. told is the
	// last one that it was told.
	armed, told int64
	arming      bool
	// auditDue asks for a list before auditAt.
	auditDue bool
	auditAt  int64
	listing  bool
	// forget are ends that the supervisor may forget.
	forget []Key
}

// Connected tells that there is a new connection to the supervisor, and what that one
// runs and has run. What it knows nothing of was lost with its predecessor, or never
// reached it: it ends as lost and is not started, since nothing tells which of the two.
// Starts that were not answered are left to settle.
func (p *Plan) Connected(runs []Running, ends []Exit, resizes bool, now int64) {
	p.link.connection++
	p.link.resizes, p.table.askew = resizes, true
	p.link.connected, p.link.armed, p.link.told, p.link.arming, p.link.listing = true, 0, 0, false, false
	p.link.auditAt = now + auditEvery
	p.table.each(func(a *attempt) {
		a.doubted, a.resizing, a.unsure = a.phase == running, nil, false
		a.ice.changing = false
	})
	for _, r := range runs {
		p.adopt(r)
	}
	p.settle(runs, ends)
}

// Disconnected tells that the connection to the supervisor is lost.
func (p *Plan) Disconnected() { p.link.connected, p.link.armed, p.link.listing = false, 0, false }

// adopt takes over what an earlier agent or connection has started.
func (p *Plan) adopt(r Running) {
	a := p.table.byKey[r.Key]
	switch {
	case a == nil:
		p.note(r.Key, "killing an attempt that the journal does not know")
		a = &attempt{key: r.Key, phase: running, kill: ReasonNodeLost}
		p.table.add(a)
	case a.phase < running:
		a.phase = running
	case a.phase > running:
		p.note(r.Key, "an attempt runs whose end was known")
		a.phase, a.kill = running, ReasonNodeLost
	}
	p.table.keep(a, nil)
	a.ice.frozen, a.ice.unsure = r.Frozen, false
	if !r.Frozen {
		p.table.hold(a, r.CPUs)
	}
}

// settle ends what was thought to run before a list of the supervisor that does not
// name it.
func (p *Plan) settle(runs []Running, ends []Exit) {
	for _, r := range runs {
		if a := p.table.byKey[r.Key]; a != nil {
			a.doubted = false
		}
	}
	for _, exit := range ends {
		p.Exited(exit)
	}
	p.table.each(func(a *attempt) {
		if a.doubted && a.phase == running {
			p.end(a, lostExit(a))
		}
		a.doubted = false
	})
}

// Listed tells what the supervisor answered to List.
func (p *Plan) Listed(connection int, runs []Running, ends []Exit, now int64) {
	if connection == p.link.connection && p.link.listing {
		p.link.listing, p.link.auditAt = false, now+auditEvery
		p.settle(runs, ends)
	}
}

// Exited tells of an end.
func (p *Plan) Exited(exit Exit) {
	a := p.table.byKey[exit.Key]
	if a == nil || a.phase == reported { // it was dealt with before
		p.link.forget = append(p.link.forget, exit.Key)
		return
	}
	if a.rebooted && exit.Reason == ReasonSupervisorLost {
		exit = lostExit(a)
	}
	p.end(a, exit)
}

// Armed tells that the supervisor knows the deadline of an Arm.
func (p *Plan) Armed(connection int, deadline int64) {
	if connection == p.link.connection {
		p.link.armed, p.link.arming = deadline, false
	}
}

// serveLink keeps the supervisor armed, has it forget ends, and asks what it runs.
func (p *Plan) serveLink(now int64) {
	l := &p.link
	if !l.connected {
		return
	}
	if held := p.session.lease.Held(now); held > l.told && !l.arming {
		l.told, l.arming = held, true
		p.add(Arm{l.connection, held})
	}
	if len(l.forget) > 0 {
		p.add(Forget{l.forget})
		l.forget = nil
	}
	if (l.auditDue || now >= l.auditAt) && !l.listing {
		l.auditDue, l.listing = false, true
		p.table.each(func(a *attempt) { a.doubted = a.phase == running })
		p.add(List{l.connection})
	}
	if !l.listing {
		p.callAt(l.auditAt)
	}
}

// start hands over what is to be started now.
func (p *Plan) start(now int64) {
	if !p.ready(now) {
		return
	}
	p.table.each(func(a *attempt) {
		switch {
		case a.phase != accepted || a.key.Incarnation != p.table.incarnation:
		case now < a.notBefore:
			p.callAt(a.notBefore)
		case !p.table.available(a): // somebody is to leave them first
		case !p.served(a): // its engine was ready, or none left its GPUs, when it was accepted
		default:
			a.phase = starting
			p.table.hold(a, a.wants)
			p.add(Start{p.link.connection, a.key, a.work, a.wants, p.engines[a.engine].URL})
		}
	})
}

// Answer is what the supervisor said to Start.
type Answer uint8

// Answers. Unless it says Unknown or OK, nothing was started.
const (
	// OK: it runs, or its end is told.
	OK Answer = iota
	// Impossible: it cannot be described to the supervisor.
	Impossible
	// Full: the supervisor runs too much, or is being started.
	Full
	// Disarmed: the deadline has passed; the supervisor needs a later one.
	Disarmed
	// Unknown: there was no answer, so it may have been started or not.
	Unknown
)

// Started tells what the supervisor answered to Start on a connection. The message is why it is
// not OK.
func (p *Plan) Started(connection int, k Key, answer Answer, message string, now int64) {
	a := p.table.byKey[k]
	old := connection != p.link.connection
	if answer == Disarmed && !old {
		p.link.armed = 0 // until the next renewal
	}
	if a == nil || a.phase != starting {
		return // its end was faster than the answer
	}
	switch answer {
	case OK:
		a.phase, a.work = running, nil
		p.link.auditDue = p.link.auditDue || old // the supervisor of then may have died with it
	case Impossible:
		exit := Exit{Key: k, Reason: ReasonStartFailed, Message: message}
		if a.kill != 0 {
			exit.Reason, exit.Message = a.kill, "killed before the node had started it"
		}
		p.end(a, exit)
	case Full:
		p.putBack(a, now+startAgain)
	case Disarmed:
		p.putBack(a, 0)
	case Unknown: // a list of the supervisor tells
		p.note(k, "the start of an attempt was not answered: "+message)
		a.phase, p.link.auditDue = running, true
	}
}

// putBack keeps an attempt that the supervisor certainly has not started.
func (p *Plan) putBack(a *attempt, notBefore int64) {
	a.phase, a.notBefore = accepted, notBefore
	p.table.keep(a, nil)
	if a.kill != 0 {
		p.stop(a, a.kill, "")
	}
}

// abandon gives up what is being started and must not go on.
func (p *Plan) abandon() {
	p.table.each(func(a *attempt) {
		if a.phase == starting && a.kill != 0 && !a.abandoned {
			a.abandoned = true
			p.add(Abandon{a.key})
		}
	})
}

// kill ends what must not go on, again and again until it does.
func (p *Plan) kill(now int64) {
	if !p.link.connected {
		return
	}
	p.table.each(func(a *attempt) {
		if a.phase != running || a.kill == 0 {
			return
		}
		if a.killedAt == 0 || now-a.killedAt >= killAgain {
			if a.killedAt != 0 {
				p.note(a.key, "an attempt does not die")
			}
			a.killedAt = now
			p.add(Kill{a.key, a.kill})
		}
		p.callAt(a.killedAt + killAgain)
	})
}
