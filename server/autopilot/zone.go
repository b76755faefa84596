package autopilot

import (
	"fmt"
	"slices"
	"time"
)

// The servers of a redundancy zone are likely to fail together. So a zone has one voter, and
// its other servers are spares, which replicate and get the vote when the voter is gone. As
// in Consul and Vault, the number of voters comes before that: while there are fewer than
// VotersMin and no zone without a voter has a server for it, a zone has one voter more. A
// server without a zone is a zone of its own.
//
// A dead voter loses its vote to the spare of its zone long before it would be removed: it
// gets it back, or is the spare, when it answers again.

// spare says why a healthy server without a vote is to stay so; empty: it may get a vote.
func (p *Pilot) spare(s Server) string {
	voter, ok := p.voterOf(s)
	if !ok {
		return ""
	}
	for _, o := range p.servers {
		if _, has := p.voterOf(o); !has && o.Healthy() {
			return fmt.Sprintf("is a spare: zone %s has the voter %s, and %s is healthy in a zone without one", s.Zone, voter.ID, o.ID)
		}
	}
	if voters, _ := p.voters(); voters >= p.settings.VotersMin {
		return fmt.Sprintf("is a spare: zone %s has the voter %s", s.Zone, voter.ID)
	}
	return ""
}

// replaced reports whether a dead voter has a stable spare in its zone, and all other dead
// voters too: no server gets a vote while a voter is dead.
func (p *Pilot) replaced(s Server) bool {
	for _, o := range p.servers {
		if o.Voter && o.Dead && !p.hasSpare(o.Zone) {
			return false
		}
	}
	voters, voting := p.voters()
	return 2*voting > voters && voting+p.replacements() >= p.settings.VotersMin
}

func (p *Pilot) hasSpare(zone string) bool {
	return zone != "" && slices.ContainsFunc(p.servers, func(s Server) bool { return s.Zone == zone && p.stable(s) })
}

// planReplacement takes the vote of a dead server for the spare of its zone.
func (p *Pilot) planReplacement(s Server) (Verb, string) {
	if left := p.settings.PromoteAfter - p.For(s); left > 0 {
		return Wait, fmt.Sprintf("loses its vote to a spare of zone %s in %s if it stays dead", s.Zone, left.Round(time.Second))
	}
	return Demote, fmt.Sprintf("loses its vote to a spare of zone %s", s.Zone)
}

// voterOf returns a voter of the zone of a server, dead or alive.
func (p *Pilot) voterOf(s Server) (Server, bool) {
	for _, o := range p.servers {
		if o.Voter && (o.ID == s.ID || s.Zone != "" && o.Zone == s.Zone) {
			return o, true
		}
	}
	return Server{}, false
}

// surplus reports whether a voter is one more than its zone is to have, while other zones
// have some too.
func (p *Pilot) surplus(s Server) bool {
	if voters, _ := p.voters(); !s.Voter || s.Zone == "" || voters <= p.settings.VotersMin || p.keeper(s.Zone).ID == s.ID {
		return false
	}
	for _, o := range p.servers {
		if o.Voter && o.Zone != s.Zone {
			return true
		}
	}
	return false
}

// keeper is the voter of a zone that keeps its vote: the leader, else the first healthy one,
// else the first. The zone has a voter.
func (p *Pilot) keeper(zone string) (keeps Server) {
	for _, s := range p.servers {
		switch {
		case !s.Voter || s.Zone != zone:
		case s.Leader:
			return s
		case keeps.ID == "", !keeps.Healthy() && s.Healthy():
			keeps = s
		}
	}
	return keeps
}

func (p *Pilot) planDemotion(s Server) (Verb, string) {
	keeps := p.keeper(s.Zone)
	for _, o := range p.servers {
		if o.Voter && o.ID != s.ID && !(o.Healthy() && p.For(o) >= p.settings.PromoteAfter) {
			return Wait, fmt.Sprintf("becomes a spare of zone %s when all other voters have been healthy for %s", s.Zone, p.settings.PromoteAfter)
		}
	}
	return Demote, fmt.Sprintf("becomes a spare: zone %s has the voter %s", s.Zone, keeps.ID)
}
