package dst

import "rota/internal/sim"

// Clients read at any server: at the one that leads, at one that wrongly believes to lead,
// and at followers. A read has to see every entry that was acknowledged before it began,
// so its index must be no smaller. The state that has applied the index has all of them.

// readsPerHour is how many reads begin at any time. readsAround more come when a leader is
// deposed: from readsBefore to readsAfter.
const (
	readsPerHour = 60
	readsAround  = 24
	readsBefore  = 300 * millisecond
	readsAfter   = 5 * second
)

// reads adds reads to a plan, most of them where leaders change.
func (p *Plan) reads(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 4)
	read := func(at int64) {
		p.add(Event{At: max(0, at), Kind: Read, On: int(d.N(int64(c.servers))), Luck: d.Uint64()})
	}
	for range p.Length * readsPerHour / hour {
		read(d.N(p.Length))
	}
	for _, e := range p.Events {
		if e.Kind == Depose || e.Kind == PauseServer {
			for range readsAround {
				read(e.At + d.Between(-readsBefore, readsAfter))
			}
		}
	}
}

// read is one read of a client, most often at a server that believes to lead.
func (w *World) read(e Event, d *sim.Draw) {
	s := w.servers[e.On]
	if d.Chance(600_000) {
		for _, other := range w.servers {
			if other.leads && (!s.leads || other.id != w.leader) {
				s = other
			}
		}
	}
	if !s.proc.Runs() {
		return
	}
	floor := w.acknowledged
	s.readIndex(func(index uint64, ok bool) {
		if !ok {
			return
		}
		w.reads++
		if index < floor {
			w.fail("reads", "server %d reads at entry %d, though entry %d had been acknowledged before the read began", s.id, index, floor)
		}
	})
}

// readIndex returns an index for a linearizable read, from the leader that the server knows.
func (s *member) readIndex(done confirmation) {
	switch {
	case s.leads:
		s.ask(done)
	case s.knows < 0 || s.knows == s.id:
		done(0, false)
	default:
		s.readers.Join(done)
		s.call()
	}
}

// call asks the leader for an index, for all readers that came before the call.
func (s *member) call() {
	readers := s.readers.Call()
	if len(readers) == 0 {
		return
	}
	over := false
	returned := func(index uint64, ok bool) {
		if over {
			return
		}
		over = true
		s.readers.Returned()
		for _, done := range readers {
			done(index, ok)
		}
		s.call()
	}
	s.proc.After(callTimeout, func() { returned(0, false) })
	if s.knows < 0 || s.knows == s.id {
		s.proc.After(millisecond, func() { returned(0, false) })
		return
	}
	leader := s.w.servers[s.knows]
	s.hop(leader, func() {
		back := func(index uint64, ok bool) { leader.hop(s, func() { returned(index, ok) }) }
		if !leader.leads {
			back(0, false)
			return
		}
		leader.ask(back)
	})
}
