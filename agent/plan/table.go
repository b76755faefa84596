package plan

import "slices"

// phase is how far an attempt has come on this node. It only moves forward,
// with two exceptions: a start that the supervisor refused, and a report that turns
// out not to have been heard.
type phase uint8

const (
	wanted   phase = iota // desired, not in the journal yet
	accepted              // in the journal, not handed to the supervisor yet
	starting              // handed to the supervisor, which has not answered
	running               // may run; an end will be told
	ended                 // ended, report due
	reported              // a server has confirmed the report
)

// live phases are those in which processes of the attempt may exist.
func (p phase) live() bool { return p == starting || p == running }

// attempt is one execution as this node knows it.
type attempt struct {
	key   Key
	phase phase
	work  any
	// engine that has to be ready before it starts.
	engine Engine
	// gpus are those that it has to itself.
	gpus []int
	// awaits: the engine was looked at. It had been tried so often before.
	awaits      bool
	triesBefore uint64
	// refusal ends the attempt instead of starting it.
	refusal *Exit
	// kill is why the attempt must end; 0: it need not.
	kill Reason
	// killedAt is when the supervisor was last told so; 0: never.
	killedAt int64
	// abandoned: it was to be killed while it was being started, which was said.
	abandoned bool
	exit      Exit
	// reporting says that the report is in flight.
	reporting bool
	// ackIndex is the index of the entry that holds the report.
	ackIndex uint64
	// notBefore holds a start back that the supervisor had no room for.
	notBefore int64
	// rebooted says that the machine was started anew since it was accepted.
	rebooted bool
	// doubted says that a list of the supervisor is under way, which must name it.
	doubted bool
	// named is the last desired state that named it.
	named int
	// gone says that it is not in the table any more.
	gone bool
	// wants are the CPUs that it is to have, holds those on which it may run that it has to
	// itself: none until it is started.
	wants, holds CPUs
	// shares: these are not its own, but shared with others that do so.
	shares bool
	// resizing are those to which a change is under way; nil: none is. unsure says that the
	// last one may have been done or not. It is tried again at resizeAt.
	resizing CPUs
	unsure   bool
	resizeAt int64
	ice      ice
}

// table holds every attempt of this node.
type table struct {
	// attempts are in the order in which they became known. Those that are gone leave
	// at the next compact.
	attempts []*attempt
	byKey    map[Key]*attempt
	byAction map[uint64][]*attempt
	// held counts the attempts that may run on a CPU.
	held map[int]users
	// askew: some attempt may hold other CPUs than it is to have.
	askew bool
	// incarnation that may run attempts and whose ends are reported; 0 before the
	// first registration.
	incarnation uint64
	// cluster that the incarnation is of; empty before the first registration.
	cluster string
	// index is the newest desired state seen, or the registration.
	index uint64
	// round counts desired states.
	round int
}

func newTable() table {
	return table{byKey: map[Key]*attempt{}, byAction: map[uint64][]*attempt{}, held: map[int]users{}}
}

func (t *table) add(a *attempt) {
	t.attempts = append(t.attempts, a)
	t.byKey[a.key] = a
	t.byAction[a.key.Action] = append(t.byAction[a.key.Action], a)
}

func (t *table) remove(a *attempt) {
	a.gone = true
	t.keep(a, nil)
	delete(t.byKey, a.key)
	others := slices.DeleteFunc(t.byAction[a.key.Action], func(b *attempt) bool { return b == a })
	if t.byAction[a.key.Action] = others; len(others) == 0 {
		delete(t.byAction, a.key.Action)
	}
}

// compact takes out what is gone.
func (t *table) compact() {
	if len(t.attempts) != len(t.byKey) {
		t.attempts = slices.DeleteFunc(t.attempts, func(a *attempt) bool { return a.gone })
	}
}

// each calls f for every attempt. f may remove the attempt that it is called with.
func (t *table) each(f func(*attempt)) {
	for _, a := range t.attempts {
		if !a.gone {
			f(a)
		}
	}
}

// dead reports whether nothing may run that is not of the incarnation keep (0: nothing
// at all).
func (t *table) dead(keep uint64) bool {
	return !slices.ContainsFunc(t.attempts, func(a *attempt) bool {
		return !a.gone && a.phase.live() && (keep == 0 || a.key.Incarnation != keep)
	})
}

// stop makes an attempt end. Only a live one takes time to do so.
func (p *Plan) stop(a *attempt, reason Reason, message string) {
	switch a.phase {
	case wanted:
		p.table.remove(a)
		p.link.forget = append(p.link.forget, a.key) // it may have a port
	case accepted:
		p.end(a, Exit{Key: a.key, Reason: reason, Message: message})
	case starting, running:
		if a.kill == 0 {
			a.kill = reason
		}
	}
}

// end records how an attempt ended. The first end that is told counts.
func (p *Plan) end(a *attempt, exit Exit) {
	if a.phase >= ended {
		return
	}
	a.phase, a.exit, a.work = ended, exit, nil
	p.table.keep(a, nil)
	if a.key.Incarnation != p.table.incarnation && p.table.incarnation != 0 {
		p.drop(a) // the cluster has given it up with its incarnation
	}
}

// drop removes an attempt that the cluster will not name again.
func (p *Plan) drop(a *attempt) {
	if a.phase.live() {
		p.note(a.key, "an attempt is dropped while it may run")
	}
	p.table.remove(a)
	p.link.forget = append(p.link.forget, a.key)
	p.desk.forget = append(p.desk.forget, a.key)
}

// evict kills every attempt that is not of the incarnation keep (0: every one).
func (p *Plan) evict(keep uint64) {
	p.session.keep, p.session.checkAt = keep, 0
	p.table.each(func(a *attempt) {
		if keep == 0 || a.key.Incarnation != keep {
			p.stop(a, ReasonNodeLost, "")
		}
	})
}

func lostExit(a *attempt) Exit {
	if a.rebooted {
		return Exit{Key: a.key, Reason: ReasonNodeLost,
			Message: "the machine was restarted while the attempt ran, or was about to"}
	}
	return Exit{Key: a.key, Reason: ReasonSupervisorLost,
		Message: "the attempt was accepted, and then the agent or its supervisor died; it is unknown whether it ran"}
}
