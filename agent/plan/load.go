package plan

// Load is what an agent does now, for its metrics.
type Load struct {
	// Attempts counts those that the agent knows, by PhaseNames.
	Attempts [len(PhaseNames)]int
	// Cores are those that attempts which start or run have to themselves, or share.
	Cores int
	// LeaseNS is how long the lease lasts yet; 0: there is none.
	LeaseNS int64
	// Registered: there is a session. Connected: the supervisor answers.
	Registered, Connected bool
}

// PhaseNames are the names of the phases of an attempt, in their order.
var PhaseNames = [...]string{"wanted", "accepted", "starting", "running", "ended", "reported"}

// Load returns what the agent does at a time.
func (p *Plan) Load(now int64) Load {
	l := Load{
		Cores:      len(p.table.held),
		LeaseNS:    max(0, p.session.lease.Held(now)-now),
		Registered: p.session.stage == open, Connected: p.link.connected,
	}
	for _, a := range p.table.attempts {
		if a.gone {
			continue
		}
		l.Attempts[a.phase]++
	}
	return l
}
