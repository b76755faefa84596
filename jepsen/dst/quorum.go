package dst

import (
	"rota/internal/sim"
	"rota/server/quorum"
)

// Servers keep the promises of Raft that package quorum relies on: each knows the newest
// term that it has voted in or heard of, and tells it in the answer to a heartbeat. Their
// messages may be lost, arrive late and twice.
//
// A deposed leader that does not know it yet is cut off from those who could tell it: from
// the servers that know a later term. What they sent before still arrives.

// Heartbeats and their answers: how often one is lost, comes twice or is late.
const (
	beatLostPPM  = 10_000
	beatTwicePPM = 10_000
	beatLatePPM  = 30_000
	// beatMax is usual, beatLateMax longer than most leaders believe to lead when they are
	// deposed.
	beatMax     = 20 * millisecond
	beatLateMax = 5 * second
	// beatPause is until a leader notices that a heartbeat was not answered.
	beatPause = 200 * millisecond
)

// hop is a call between servers, which arrives if the other server runs.
func (s *member) hop(to *member, fn func()) {
	d := s.draw(1)
	to.proc.At(s.w.loop.Now()+d.Skewed(millisecond/5, 2*millisecond), fn)
}

// carry brings a heartbeat or its answer to another server. lost is called at once if
// nothing arrives.
func (s *member) carry(to *member, fn, lost func()) {
	s.sent++
	d := s.w.draws.Of(luckServer+uint64(s.id)<<8+16+s.sent&127, s.w.loop.Now())
	if to.deafTo(s) || d.Chance(beatLostPPM) || !to.proc.Alive() {
		lost()
		return
	}
	to.proc.At(s.w.loop.Now()+lateness(&d), fn)
	if d.Chance(beatTwicePPM) {
		to.proc.At(s.w.loop.Now()+lateness(&d), fn)
	}
}

// deafTo reports whether nothing arrives from another server: this one was deposed, and that
// one could tell it.
func (s *member) deafTo(from *member) bool { return s.cutOff && from.promised > s.term }

func lateness(d *sim.Draw) int64 {
	if d.Chance(beatLatePPM) {
		return d.Skewed(beatMax, beatLateMax)
	}
	return d.Skewed(millisecond/4, beatMax)
}

// promise is when a server votes in a term or hears of it.
func (s *member) promise(term uint64) {
	if term <= s.promised {
		return
	}
	s.promised = term
	if s.leads && s.term < term {
		s.w.trace("server %d hears of term %d: it does not lead", s.id, term)
		s.stepDown()
	}
}

// vote has a majority promise the next term, the candidate first. A server that believes to
// lead is asked last, because its vote tells it that it does not. It reports whether there
// is a majority.
func (w *World) vote(candidate int) bool {
	var voters, leaders []*member
	for i := range w.servers {
		s := w.servers[(candidate+i)%len(w.servers)]
		switch {
		case !s.proc.Runs():
		case s.leads && i > 0:
			leaders = append(leaders, s)
		default:
			voters = append(voters, s)
		}
	}
	voters = append(voters, leaders...)
	need := len(w.servers)/2 + 1
	if len(voters) < need {
		return false
	}
	for _, s := range voters[:need] {
		s.promise(w.term + 1)
	}
	return true
}

// votersBut are the voters as a server sees them.
func (w *World) votersBut(id int) quorum.Voters {
	v := quorum.Voters{Self: true}
	for i := range w.config.servers {
		if i != id {
			v.Others = append(v.Others, serverName(i))
		}
	}
	return v
}

// ask has a majority confirm that this server leads. done gets the commit index of now, and
// whether the server led.
func (s *member) ask(done confirmation) {
	if s.w.flaws.NoVerify {
		s.proc.After(millisecond, func() { done(s.rep.Applied(), true) })
		return
	}
	s.verify.Ask(done, s.rep.Applied())
	s.confirm()
}

// confirmation is who waits for a majority to confirm that a server leads.
type confirmation func(index uint64, leads bool)

// confirm answers the questions that a majority confirms, and sends heartbeats for the
// others.
func (s *member) confirm() {
	for _, a := range s.verify.Confirmed(s.voters) {
		a.Caller(a.Index, true)
	}
	for _, to := range s.w.servers {
		if to == s || s.beats&(1<<to.id) != 0 {
			continue
		}
		if ticket, waits := s.verify.Send(serverName(to.id)); waits {
			s.beat(to, ticket)
		}
	}
}

// beat sends one heartbeat. One is on its way to each server, but for copies.
func (s *member) beat(to *member, ticket quorum.Ticket) {
	s.beats |= 1 << to.id
	life, term := s.life, s.term
	over := func(answered func()) {
		if life == s.life {
			s.beats &^= 1 << to.id
			answered()
		}
	}
	lost := func() {
		s.proc.After(beatPause, func() { over(s.confirm) })
	}
	s.carry(to, func() {
		to.promise(term)
		heard := to.promised
		to.carry(s, func() { over(func() { s.answered(to, ticket, heard) }) }, lost)
	}, lost)
}

// answered is when the answer to a heartbeat arrives: the newest term that the other knew.
func (s *member) answered(from *member, ticket quorum.Ticket, heard uint64) {
	if heard > s.term {
		s.promise(heard)
		return
	}
	s.verify.Confirm(serverName(from.id), ticket)
	s.confirm()
}

// connectionsLost is when a server's process ends: nobody waits for its answers any more.
func (s *member) connectionsLost() {
	for _, other := range s.w.servers {
		other.beats &^= 1 << s.id
	}
}
