package dst

import (
	"slices"

	"rota/fsm/sim"
	"rota/server/quorum"
)

// Servers keep the promises of Raft that package quorum relies on: each knows the newest
// term that it has voted in or heard of, and tells it in the answer to a heartbeat. Their
// messages may be lost, arrive late and twice.
//
// A deposed leader that does not know it yet is cut off from those who could tell it: from
// the servers that know a later term. What they sent before still arrives.

// Messages between servers.
const (
	lossPPM  = 10_000
	dupPPM   = 10_000
	latePPM2 = 30_000
	// lateMax is longer than most leaders believe to lead when they are deposed.
	lateMax = 5 * second
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
	if to.cutOff && s.promised > to.term || d.Chance(lossPPM) || !to.proc.Alive() {
		lost()
		return
	}
	to.proc.At(s.w.loop.Now()+lateness(&d), fn)
	if d.Chance(dupPPM) {
		to.proc.At(s.w.loop.Now()+lateness(&d), fn)
	}
}

func lateness(d *sim.Draw) int64 {
	if d.Chance(latePPM2) {
		return d.Skewed(20*millisecond, lateMax)
	}
	return d.Skewed(millisecond/4, 20*millisecond)
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
	var voters []*member
	for i := range w.servers {
		if s := w.servers[(candidate+i)%len(w.servers)]; s.proc.Runs() {
			voters = append(voters, s)
		}
	}
	need := len(w.servers)/2 + 1
	if len(voters) < need {
		return false
	}
	slices.SortStableFunc(voters[1:], func(a, b *member) int { return rank(a.leads) - rank(b.leads) })
	for _, s := range voters[:need] {
		s.promise(w.term + 1)
	}
	return true
}

func rank(leads bool) int {
	if leads {
		return 1
	}
	return 0
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
