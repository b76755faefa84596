package dst

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/server/entry"
)

// limits keep entries small, so that a burst needs several.
var limits = entry.Limits{QueueBytes: 1 << 20, EntryBytes: 16 << 10, EntryWeight: 64}

// proposer waits for what becomes of its commands.
type proposer struct {
	commands []*logv1.Command
	term     uint64 // in which the leader accepted them
	// done gets the results if the commands are committed.
	done func([]*logv1.Result, outcome)
}

// outcome is what a proposer learns.
type outcome uint8

const (
	committed outcome = iota
	refused           // certainly not in the log: no server leads, or the queue is full
	unknown
)

// flight is the entry that a leader has appended and that is not yet committed.
type flight struct {
	entry *logv1.Entry
	data  []byte
	batch entry.Batch[proposer]
	kept  bool // it was committed after all, by the next leader
}

// propose brings one command to the leader that this server knows.
func (s *member) propose(c *logv1.Command, done func(*logv1.Result, outcome)) {
	s.proposeAll([]*logv1.Command{c}, func(results []*logv1.Result, o outcome) {
		if o != committed {
			done(nil, o)
			return
		}
		done(results[0], o)
	})
}

// proposeAll brings commands to the leader, for one entry.
func (s *member) proposeAll(commands []*logv1.Command, done func([]*logv1.Result, outcome)) {
	switch {
	case s.leads:
		s.accept(commands, done)
	case s.knows < 0 || s.knows == s.id:
		done(nil, refused)
	default:
		leader := s.w.servers[s.knows]
		s.hop(leader, func() {
			back := func(r []*logv1.Result, o outcome) { leader.hop(s, func() { done(r, o) }) }
			if !leader.leads {
				back(nil, refused)
				return
			}
			leader.accept(commands, back)
		})
	}
}

// accept queues the commands of a proposer at a leader.
func (s *member) accept(commands []*logv1.Command, done func([]*logv1.Result, outcome)) {
	weight := 0
	for _, c := range commands {
		weight += fsm.Weight(c)
	}
	if !s.queue.Push(entry.NewProposal(proposer{commands, s.term, done}, s.term, commands, weight)) {
		done(nil, refused)
		return
	}
	s.form()
}

// formPause is how long a leader takes to make an entry.
const formPause = 200_000

// form makes an entry of what waits after a pause, if none is in flight.
func (s *member) form() {
	if s.forming || s.held || s.flight != nil || s.queue.Bytes() == 0 {
		return
	}
	s.forming = true
	s.proc.After(formPause, func() {
		s.forming = false
		s.takeOff()
	})
}

// takeOff appends the next entry. A server that leads no more, or in another term, refuses
// what it had accepted.
func (s *member) takeOff() {
	if s.flight != nil || s.held {
		return
	}
	f := &flight{batch: s.queue.Take()}
	if len(f.batch) == 0 {
		return
	}
	if s.leads {
		f.entry = entry.Form(f.batch, s.stamp, s.moment())
	}
	if f.entry == nil {
		s.turnAway(f.batch, refused)
		s.form()
		return
	}
	s.early(f.entry)
	var err error
	if f.data, err = f.entry.MarshalVT(); err != nil {
		s.w.fail("encoding", "an entry cannot be encoded: %v", err)
		return
	}
	s.flight = f
	s.replicate(sim.Entry{Index: s.rep.Applied() + 1, Term: s.term, Data: f.data}, busyPPM)
	life, d := s.life, s.draw(2)
	s.proc.After(d.Skewed(s.w.commitMin, s.w.commitMax), func() { s.commit(life, f) })
}

// Entries that are stamped too early, and by how much at most.
const (
	earlyPPM = 2000
	earlyMax = 30 * second
)

// early stamps an entry too early now and then, as a leader without package entry would.
// The state machine has to keep log time from going back by itself.
func (s *member) early(e *logv1.Entry) {
	if d := s.draw(4); d.Chance(earlyPPM) {
		e.TimeNs -= d.Skewed(0, earlyMax)
	}
}

// shown is what the clock shows by which the server stamps entries.
func (s *member) shown() int64 { return s.clock.Now() + s.jumped }

func (s *member) moment() entry.Moment {
	return entry.Moment{Elapsed: s.shown() - s.began, Committed: s.committedTime(), Wall: wallStart + s.shown()}
}

func (s *member) committedTime() (ns int64) {
	s.rep.View(func(st *state.State) { ns = st.Meta().Now })
	return ns
}

// commit is the answer of a majority, unless another leads by now. What became
// of the entry then is decided there, see World.elect.
func (s *member) commit(life int, f *flight) {
	if life != s.life || s.w.term != s.term || s.w.leader != s.id {
		return
	}
	e := s.w.append(s.term, f.data)
	s.flight = nil
	if !s.applyTo(e.Index) {
		return
	}
	s.w.acknowledged = e.Index
	s.announce(e.Index)
	s.answer(f, s.w.results)
	s.form()
}

// answer gives each proposer its results. It checks that they are its own, and that the
// commands were accepted in the term in which they are committed.
func (s *member) answer(f *flight, results []*logv1.Result) {
	for p, own := range f.batch.Answers(results) {
		if p.term != s.term {
			s.w.fail("terms", "server %d commits in term %d what it accepted in term %d: %v", s.id, s.term, p.term, p.commands[0])
		}
		for i, c := range p.commands {
			if !ownResult(f.entry.Commands, results, c, own[i]) {
				s.w.fail("answers", "server %d answers the command %v with the result of another", s.id, c)
			}
		}
		p.done(own, committed)
	}
	s.queue.Settle()
}

// ownResult reports whether a result is of a command. A command that is repeated may be in
// an entry twice.
func ownResult(commands []*logv1.Command, results []*logv1.Result, c *logv1.Command, r *logv1.Result) bool {
	at := slices.Index(commands, c)
	for at >= 0 && results[at] != r {
		next := slices.Index(commands[at+1:], c)
		if next < 0 {
			return false
		}
		at += 1 + next
	}
	return at >= 0
}

// turnAway ends a batch that this server does not commit.
func (s *member) turnAway(b entry.Batch[proposer], o outcome) {
	for _, p := range b {
		p.Caller.done(nil, o)
	}
	s.queue.Settle()
}

// How often an entry that is lost waits for the next leadership of its server, and how often
// the queue does.
const (
	latePPM = 500_000
	holdPPM = 700_000
)

// dropProposals is when a leadership ends. What was not appended is refused now, or when the
// server leads again: nothing is formed until then. Nobody can say what became of the entry
// in flight.
func (s *member) dropProposals(f *flight) {
	d := s.draw(5)
	if f != nil {
		if !f.kept && d.Chance(latePPM) {
			s.late = f.data
		}
		s.turnAway(f.batch, unknown)
	}
	if d.Chance(holdPPM) {
		s.held = true
		return
	}
	s.form()
}
