package plan

// stage is how far the node is on its way to a registration.
type stage uint8

const (
	begin    stage = iota // the supervisor has not been heard yet
	clearing              // everything must be dead before the node registers
	asking                // the cluster is asked for an incarnation
	entering              // what is not of the incarnation must be dead, and the journal must hold it
	open                  // registered: desired states count
	quitting              // everything must be dead before the agent ends
)

// session is the registration of the node, and its lease.
type session struct {
	stage stage
	lease Lease
	terms Terms
	// changed: the machine has changed since the cluster registered it.
	changed bool
	// journaled is the incarnation that the journal holds attempts of.
	journaled uint64
	// keep is the incarnation whose attempts need not die.
	keep uint64
	// checkAt is when to look whether the supervisor is frozen; 0: not known yet.
	checkAt int64

	renewal  int // number of the last one
	renewing bool
	failed   bool // the last renewal did
	renewAt  int64
}

// Terms are the answer to a registration.
type Terms struct {
	// Cluster is the ID of the cluster that answered.
	Cluster            string
	Incarnation, Index uint64
	LeaseNS, MarginNS  int64
}

// Registered tells what the cluster answered to Register.
func (p *Plan) Registered(terms Terms) {
	s := &p.session
	if s.stage != asking {
		return
	}
	s.stage, s.terms = entering, terms
	p.evict(terms.Incarnation)
}

// SeenIndex is the index of the newest desired state, or of the registration.
func (p *Plan) SeenIndex() uint64 { return p.table.index }

// Quit kills everything and registers no more. Dead says when it is done.
func (p *Plan) Quit() {
	if p.session.stage == open {
		p.add(Close{"the agent ends"})
	}
	p.session.lease.End()
	p.session.stage = quitting
	p.evict(0)
}

// Dead says that no process of any attempt exists.
func (p *Plan) Dead() bool { return p.table.dead(0) }

// advance goes on to the next stage when it can.
func (p *Plan) advance(now int64) {
	s := &p.session
	switch s.stage {
	case begin:
		p.begin()
	case open:
		if s.lease.Expired(now) {
			p.endSession("the lease was not renewed in time")
		}
	}
	if s.stage == clearing && p.table.dead(0) {
		s.stage = asking
		p.add(Register{s.journaled})
	}
	if s.stage == entering && p.table.dead(s.keep) && s.journaled == s.terms.Incarnation {
		p.openSession(now)
	}
	if s.stage == open && s.lease.deadline != 0 {
		p.callAt(s.lease.deadline)
	}
	p.checkFrozen(now)
}

// Changed tells that the machine is not the one that the cluster knows, before anything else is told.
func (p *Plan) Changed() { p.session.changed = true }

// begin waits for the supervisor. Before a node registers as one that holds nothing, or as another
// machine, nothing may run: the cluster gives what it ran to other nodes at once.
func (p *Plan) begin() {
	switch {
	case !p.link.connected:
	case p.session.journaled == 0 || p.session.changed:
		p.session.stage = clearing
		p.evict(0)
	default:
		p.session.stage = asking
		p.add(Register{p.session.journaled})
	}
}

// openSession begins the incarnation that the cluster answered: everything older is
// dead, and the journal holds nothing of it.
func (p *Plan) openSession(now int64) {
	s, t := &p.session, &p.table
	s.lease.Begin(s.terms.LeaseNS, s.terms.MarginNS)
	t.each(func(a *attempt) {
		if a.key.Incarnation != s.terms.Incarnation {
			p.drop(a)
		}
	})
	if t.cluster != s.terms.Cluster { // another log: its indexes say nothing about those of the other
		t.cluster, t.index = s.terms.Cluster, 0
	}
	t.incarnation, t.index = s.terms.Incarnation, max(t.index, s.terms.Index)
	s.stage, s.renewing, s.failed, s.renewAt = open, false, false, now
	p.add(Open{s.terms.Incarnation, s.terms.LeaseNS, s.terms.MarginNS})
}

// endSession kills everything. The node registers again when all of it is dead.
func (p *Plan) endSession(why string) {
	s := &p.session
	s.lease.End()
	s.renewal++ // an answer that is on its way does not count
	s.stage = clearing
	p.add(Close{why})
	p.evict(0)
}

// dying reports whether something may be alive that must not be. While engines die of a session
// that is over, the next one may be under way. They count until something can start in it.
func (p *Plan) dying(now int64) bool {
	s := &p.session
	switch s.stage {
	case begin:
		return false
	case asking, open:
		return p.enginesDie && !p.ready(now)
	}
	return p.enginesDie || !p.table.dead(s.keep)
}

// checkFrozen has a supervisor killed that does not answer while something must die.
func (p *Plan) checkFrozen(now int64) {
	s := &p.session
	if !p.dying(now) {
		s.checkAt = 0
		return
	}
	patience := s.lease.patience()
	switch {
	case s.checkAt == 0:
		s.checkAt = now + patience
	case now >= s.checkAt:
		s.checkAt = now + 2*patience
		p.add(CheckSupervisor{patience})
	}
	p.callAt(s.checkAt)
}

// renew asks for the next renewal, a third of the lease after the last one was sent.
func (p *Plan) renew(now int64) {
	s := &p.session
	switch {
	case s.stage != open || s.renewing:
	case now < s.renewAt:
		p.callAt(s.renewAt)
	default:
		s.renewing = true
		s.renewal++
		p.add(Renew{Number: s.renewal, Incarnation: s.terms.Incarnation, All: s.failed, WithinNS: s.terms.LeaseNS / 6})
	}
}

// Renewed tells that a server answered a renewal that was sent at the given time.
func (p *Plan) Renewed(number int, sent int64, fenced bool, now int64) {
	s := &p.session
	if number != s.renewal || s.stage != open {
		return
	}
	s.renewal++
	s.renewing, s.failed, s.renewAt = false, false, sent+s.terms.LeaseNS/3
	if fenced {
		p.endSession("the cluster has given this incarnation up")
		return
	}
	s.lease.Extend(sent, now)
}

// NotRenewed tells that no server answered a renewal, and when to ask again. It returns
// false if an answer has been told.
func (p *Plan) NotRenewed(number int, again int64) bool {
	s := &p.session
	if number != s.renewal || !s.renewing {
		return false
	}
	s.renewing, s.failed, s.renewAt = false, true, again
	return true
}
