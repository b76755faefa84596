package autopilot

import (
	"fmt"
	"time"
)

// Settings say what the leader may do by itself.
type Settings struct {
	// Enabled: it changes members. Otherwise it only watches them.
	Enabled bool
	// PromoteAfter is how long a server without a vote must have been healthy to get one.
	PromoteAfter time.Duration
	// RemoveAfter is how long a server must have been dead to be removed; 0: none is.
	RemoveAfter time.Duration
	// VotersMin is the fewest voters to leave, with replacements that have joined and are
	// healthy counted among them. A zone has a second voter only to have as many.
	VotersMin int
}

// Server is one server as it was seen.
type Server struct {
	ID, Address   string
	Voter, Leader bool
	// Zone is the redundancy zone that the server told last; empty: it has none, or none is known.
	Zone string
	// Dead: it does not answer. A server that answers may be unhealthy for a Reason: in
	// quarantine, far behind, not the server that it should be.
	Dead   bool
	Reason string
	// CannotVote: it answers, but its vote does not count. It is in quarantine, or another
	// server answers in its place.
	CannotVote bool
	// Applied is the newest entry that it has applied.
	Applied uint64
}

// Healthy reports whether nothing is wrong with the server.
func (s Server) Healthy() bool { return !s.Dead && s.Reason == "" }

// condition is what a server can be for a time.
type condition int

const (
	healthy condition = iota
	unhealthy
	dead
)

func (s Server) condition() condition {
	switch {
	case s.Dead:
		return dead
	case s.Reason != "":
		return unhealthy
	}
	return healthy
}

// Pilot watches the servers of one leader's term.
type Pilot struct {
	settings Settings
	now      time.Duration
	servers  []Server
	since    map[string]span
}

// span is since when a server has been in its condition.
type span struct {
	is   condition
	from time.Duration
}

// New watches with the settings.
func New(s Settings) *Pilot { return &Pilot{settings: s, since: map[string]span{}} }

// Observe takes what was seen of all members at a time of the leader's monotonic clock.
// Times never go back.
func (p *Pilot) Observe(now time.Duration, servers []Server) {
	since := make(map[string]span, len(servers))
	for _, s := range servers {
		before, known := p.since[s.ID]
		if !known || before.is != s.condition() {
			before = span{s.condition(), now}
		}
		since[s.ID] = before
	}
	p.now, p.servers, p.since = now, servers, since
}

// Servers are those of the last observation.
func (p *Pilot) Servers() []Server { return p.servers }

// For says how long a server has been as healthy, or not, as it is.
func (p *Pilot) For(s Server) time.Duration { return p.now - p.since[s.ID].from }

// Healthy reports whether all servers are.
func (p *Pilot) Healthy() bool {
	for _, s := range p.servers {
		if !s.Healthy() {
			return false
		}
	}
	return len(p.servers) > 0
}

// Tolerance is how many more voters may die before there is no majority.
func (p *Pilot) Tolerance() int {
	voters, voting := p.voters()
	return max(0, voting-(voters/2+1))
}

// voters counts the voters, and those of them that answer and can vote.
func (p *Pilot) voters() (voters, voting int) {
	for _, s := range p.servers {
		if s.Voter {
			voters++
			if !s.Dead && !s.CannotVote {
				voting++
			}
		}
	}
	return voters, voting
}

// Verb is what to do with a server.
type Verb int

// The verbs there are. Wait is the zero: nothing, for now.
const (
	Wait Verb = iota
	Promote
	Demote
	Remove
)

// Next returns the one change to make now. Members change one at a time, so that what the
// next change needs is seen anew.
func (p *Pilot) Next() (verb Verb, s Server) {
	if !p.settings.Enabled {
		return Wait, Server{}
	}
	for _, first := range []Verb{Remove, Promote, Demote} {
		for _, s := range p.servers {
			if verb, _ := p.plan(s); verb == first {
				return verb, s
			}
		}
	}
	return Wait, Server{}
}

// Plan says in words what becomes of a server; empty if nothing does.
func (p *Pilot) Plan(s Server) string {
	if !p.settings.Enabled {
		return ""
	}
	_, why := p.plan(s)
	return why
}

func (p *Pilot) plan(s Server) (Verb, string) {
	switch {
	case s.Dead && s.Voter && p.replaced(s):
		return p.planReplacement(s)
	case s.Dead && !s.Leader && p.settings.RemoveAfter > 0:
		return p.planRemoval(s)
	case !s.Voter && s.Healthy():
		return p.planVote(s)
	case p.surplus(s):
		return p.planDemotion(s)
	}
	return Wait, ""
}

func (p *Pilot) planRemoval(s Server) (Verb, string) {
	if left := p.settings.RemoveAfter - p.For(s); left > 0 {
		return Wait, fmt.Sprintf("is removed in %s if it stays dead", left.Round(time.Second))
	}
	if !s.Voter {
		return Remove, "is removed"
	}
	voters, voting := p.voters()
	// No server gets a vote while a voter is dead: all dead ones go, or none.
	switch left := voting + p.replacements(); {
	case left < p.settings.VotersMin:
		return Wait, fmt.Sprintf("stays a member: %d voters and replacements would be left, fewer than %d; join a new server", left, p.settings.VotersMin)
	case 2*voting <= voters:
		return Wait, "stays a member: the voters that answer and can vote are no majority"
	}
	return Remove, "is removed"
}

// replacements are the servers that get a vote as soon as all voters are there, if there are
// fewer voters than VotersMin.
func (p *Pilot) replacements() (n int) {
	for _, s := range p.servers {
		if p.stable(s) {
			n++
		}
	}
	return n
}

// stable reports whether a server has no vote and has been healthy long enough to get one.
func (p *Pilot) stable(s Server) bool {
	return !s.Voter && s.Healthy() && p.For(s) >= p.settings.PromoteAfter
}

func (p *Pilot) planVote(s Server) (Verb, string) {
	if why := p.spare(s); why != "" {
		return Wait, why
	}
	if left := p.settings.PromoteAfter - p.For(s); left > 0 {
		return Wait, fmt.Sprintf("gets a vote in %s if it stays healthy", left.Round(time.Second))
	}
	if voters, voting := p.voters(); voting < voters {
		return Wait, "gets a vote when all voters answer and can vote, or the others are removed"
	}
	return Promote, "gets a vote"
}
