package dst

import (
	"rota/internal/sim"
	"rota/server/quorum"
)

// Followers store an entry before it is committed, and may keep one that its leader could
// not commit. The next leader replaces it. So a follower may apply an entry only when a
// leader says that it is committed and has sent it everything up to there: package quorum
// decides what a leader may say.
//
// What a follower misses it gets later, with the next message of Raft: see World.append.

// pipe is the way from a leader to one follower. Messages stay in order.
type pipe struct {
	notices quorum.Notices
	last    uint64 // newest entry that was sent
	arrives int64  // when the newest message does
}

// Entries leave for a follower at once, or behind others that keep its sender busy.
const (
	busyPPM = 100_000
	busyMax = 50 * millisecond
)

// openPipes begins to send to all followers. Each is known to agree with the leader up to
// an entry.
func (s *member) openPipes(agreed uint64) {
	s.pipes = make([]pipe, len(s.w.servers))
	for i := range s.pipes {
		s.pipes[i].sent(s.term, agreed, agreed)
	}
}

func (p *pipe) sent(term, last, commit uint64) {
	p.last = last
	p.notices.Sent(term, last, commit)
}

// replicate sends an entry to all followers.
func (s *member) replicate(e sim.Entry, busyPPM int64) {
	for _, to := range s.w.servers {
		if to == s {
			continue
		}
		d := s.draw(200 + uint64(to.id))
		if !d.Chance(busyPPM) {
			s.send(to, e)
			continue
		}
		life := s.life
		s.proc.After(d.Skewed(millisecond, busyMax), func() {
			if life == s.life {
				s.send(to, e)
			}
		})
	}
}

// send sends an entry to a follower, with what is committed by now.
func (s *member) send(to *member, e sim.Entry) {
	p := &s.pipes[to.id]
	if e.Index <= p.last {
		return // it went with a later one
	}
	term, commit := s.term, min(s.rep.Applied(), e.Index)
	p.sent(term, e.Index, commit)
	s.post(to, func() {
		if to.hears(term, e.Index-1) {
			to.tail = e
			to.commitTo(commit, e.Index)
		}
	})
}

// announce tells all followers that an entry is committed, unless the next entry is about
// to.
func (s *member) announce(index uint64) {
	if s.queue.Bytes() > 0 {
		return
	}
	for _, to := range s.w.servers {
		p := &s.pipes[to.id]
		commit := p.notices.Next(index, s.term)
		if to == s || commit == 0 {
			continue
		}
		term, last := s.term, p.last
		p.sent(term, last, commit)
		s.post(to, func() {
			if to.hears(term, last) {
				to.commitTo(commit, last)
			}
		})
	}
}

// post is a message to a follower, which arrives behind earlier ones.
func (s *member) post(to *member, fn func()) {
	if to.deafTo(s) {
		return
	}
	p, d := &s.pipes[to.id], s.draw(208+uint64(to.id))
	p.arrives = max(p.arrives+1, s.w.loop.Now()+d.Skewed(millisecond/5, 5*millisecond))
	to.proc.At(p.arrives, fn)
}

// hears is when a message of a leader arrives whose log goes up to last. It returns false
// if this server does not listen. Behind last it may have an entry of an earlier leader.
func (s *member) hears(term, last uint64) bool {
	if s.promised > term || s.stalled {
		return false
	}
	s.promise(term)
	s.agrees(last)
	return true
}

// agrees drops the entry that was not committed, if the log is the leader's up to last.
func (s *member) agrees(last uint64) {
	if s.tail.Index <= last {
		s.tail = sim.Entry{}
	}
}

// commitTo applies what a leader says is committed, as far as this log goes.
func (s *member) commitTo(commit, last uint64) {
	if !s.leads {
		s.applyTo(min(commit, max(last, s.tail.Index)))
	}
}

// entryAt is an entry of this server's log.
func (s *member) entryAt(index uint64) sim.Entry {
	if s.tail.Index == index {
		return s.tail
	}
	return s.w.log.At(index)
}
