package dst

import (
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/server/leader"
	"rota/server/lease"
)

const (
	batchMax      = 64
	wallStart     = 1_700_000_000_000_000_000 // log time at the beginning
	keepAlive     = 2 * second
	watchPatience = 2 * second
)

// member is one server of the cluster: a replica, and what a leader does.
type member struct {
	w     *World
	id    int
	proc  *sim.Process
	clock *sim.Clock
	rep   *sim.Replica
	// knows is whom it takes for the leader, -1 for nobody.
	knows   int
	stalled bool
	broken  error // why the replica has stopped, wrongly
	// build is the newest feature level that the server's build knows.
	// outdated: it has stopped at one that the build does not know.
	build    state.Level
	outdated bool
	streams  []*stream
	// late is an entry that was stamped under an earlier leadership of this server and
	// has not reached Raft: it does when the server leads again.
	late []byte

	leadership
}

// leadership is what a server has while it believes to lead.
type leadership struct {
	leads bool
	term  uint64
	life  int // counts leaderships
	table *lease.Table
	// The log clock: log time when the leadership began, and the server's clock.
	anchor, since, last int64
	queue               []*proposal
	flight              *flight
	forming             bool
	// leader is what the leader does between entries; nextAt is when it is asked again.
	leader *leader.Leader
	nextAt int64
}

// proposal is one command on its way into the log.
type proposal struct {
	command *logv1.Command
	done    func(*logv1.Result, outcome)
}

// outcome is what a proposer learns.
type outcome uint8

const (
	committed outcome = iota
	refused           // certainly not in the log: nobody leads
	unknown
)

// flight is the entry that a leader has appended and that is not yet committed.
type flight struct {
	entry *logv1.Entry
	data  []byte
	batch []*proposal
	kept  bool // it was committed after all, by the next leader
}

// latePPM is how often an entry that is lost waits for the next leadership.
const latePPM = 500_000

func newServer(w *World, id int) *member {
	s := &member{w: w, id: id, clock: sim.NewClock(&w.loop, w.config.ppm[id]), knows: -1, build: w.config.builds[id]}
	s.proc = sim.NewProcess(&w.loop, s.clock)
	s.rep = sim.NewReplica(sim.ReplicaOptions{
		Voters:    func() int { return w.config.servers },
		OnEffects: s.effects,
		Plant:     w.plant, Deciders: s.deciders,
	})
	s.leadership.table = lease.New(s.rep.View, func() time.Time { return time.Unix(0, s.leaseClock()) })
	s.proc.Start()
	return s
}

// leaseClock is the server's monotonic clock, unless it is planted to run mad.
func (s *member) leaseClock() int64 {
	if s.w.flaws.EagerLeader {
		return 3 * s.clock.Now()
	}
	return s.clock.Now()
}

// propose brings a command to the leader that this server knows.
func (s *member) propose(c *logv1.Command, done func(*logv1.Result, outcome)) {
	switch {
	case s.leads:
		s.queue = append(s.queue, &proposal{c, done})
		s.form()
	case s.knows < 0 || s.knows == s.id:
		done(nil, refused)
	default:
		leader := s.w.servers[s.knows]
		s.hop(leader, func() {
			back := func(r *logv1.Result, o outcome) { leader.hop(s, func() { done(r, o) }) }
			if !leader.leads {
				back(nil, refused)
				return
			}
			leader.queue = append(leader.queue, &proposal{c, back})
			leader.form()
		})
	}
}

// Entries that are stamped too early, and by how much at most.
const (
	earlyPPM = 2000
	earlyMax = 30 * second
)

// hop is a message between servers.
func (s *member) hop(to *member, fn func()) {
	d := s.draw(1)
	to.proc.At(s.w.loop.Now()+d.Skewed(millisecond/5, 2*millisecond), fn)
}

func (s *member) draw(what uint64) sim.Draw {
	return s.w.draws.Of(luckServer+uint64(s.id)<<8+what, s.w.loop.Now())
}

// form makes an entry of what waits, if none is in flight.
func (s *member) form() {
	if s.forming || s.flight != nil || len(s.queue) == 0 || !s.leads {
		return
	}
	s.forming = true
	life := s.life
	s.proc.After(200_000, func() {
		if life != s.life {
			return
		}
		s.forming = false
		n := min(len(s.queue), batchMax)
		f := &flight{entry: &logv1.Entry{TimeNs: s.stamp(), Term: s.term}, batch: s.queue[:n:n]}
		s.queue = s.queue[n:]
		for _, p := range f.batch {
			f.entry.Commands = append(f.entry.Commands, p.command)
		}
		var err error
		if f.data, err = f.entry.MarshalVT(); err != nil {
			s.w.fail("encoding", "an entry cannot be encoded: %v", err)
			return
		}
		s.flight = f
		d := s.draw(2)
		s.proc.At(s.w.loop.Now()+d.Skewed(millisecond, s.w.commitMax), func() { s.commit(life, f) })
	})
}

// stamp is the time of the next entry, as replica/clock.go has it. Now and then it
// is too early, as a leader without that care would make it: the state machine
// has to keep log time from going back by itself.
func (s *member) stamp() int64 {
	t := s.anchor + s.clock.Now() - s.since
	s.last = max(t, s.last, s.committedTime())
	if d := s.draw(4); d.Chance(earlyPPM) {
		return s.last - d.Skewed(0, earlyMax)
	}
	return s.last
}

// logNow is what the leader takes for log time.
func (s *member) logNow() int64 { return max(s.last, s.anchor+s.clock.Now()-s.since) }

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
	for i, p := range f.batch {
		p.done(s.w.results[i], committed)
	}
	s.form()
}

// applyTo applies the log up to an index.
func (s *member) applyTo(index uint64) bool {
	for s.broken == nil && s.rep.Applied() < index {
		e := s.w.log.At(s.rep.Applied() + 1)
		results, err := s.rep.Apply(e)
		if err != nil {
			s.stops(err, s.w.wanted(e))
			return false
		}
		s.w.applied(s, e, results)
	}
	for _, st := range s.streams {
		st.caughtUp()
	}
	if s.leads && s.leader != nil {
		s.leader.Applied()
		s.drive(s.life)
	}
	return s.broken == nil
}

// effects is called within Apply.
func (s *member) effects(effects []fsm.Effect) {
	for _, e := range effects {
		switch e.Kind {
		case fsm.EffectNode:
			for _, st := range s.streams {
				if st.id == e.Node {
					st.mark()
				}
			}
		case fsm.EffectRestored:
			for _, st := range s.streams {
				st.mark()
			}
		case fsm.EffectCheckpoint:
			s.quote(e.Index, e.Hash)
		case fsm.EffectEvents: // watchers ask by themselves
		}
	}
}

func (s *member) quote(index, hash uint64) {
	c := &logv1.Command{Verb: &logv1.Command_QuoteHash{
		QuoteHash: &logv1.QuoteHash{ServerId: serverName(s.id), Index: index, Hash: hash},
	}}
	s.proc.After(millisecond, func() { s.propose(c, func(*logv1.Result, outcome) {}) })
}

// lead begins a leadership that is ready: all that was committed is applied.
func (s *member) lead(term uint64) {
	if !s.applyTo(s.w.log.Last()) {
		return
	}
	s.knows = s.id
	s.leadership = leadership{
		leads: true, term: term, life: s.life + 1, table: s.table,
		anchor: max(s.committedTime(), wallStart), since: s.clock.Now(),
	}
	s.table.Lead()
	s.leader = leader.New(leader.Config{
		Machine: s.rep, Leases: s.table, Logger: hclog.NewNullLogger(),
		Bootstrap: &logv1.Bootstrap{ClusterId: "simulated", Settings: s.w.config.settings, Level: uint32(s.build)},
	}, s.leaderTime())
	s.drive(s.life)
}

func (s *member) leaderTime() leader.Time { return leader.Time{Mono: s.clock.Now(), Log: s.logNow()} }

// drive has the leader do what is to be done now, and again when it says.
func (s *member) drive(life int) {
	if life != s.life {
		return
	}
	now := s.leaderTime()
	proposals, again := s.leader.Next(now)
	for _, p := range proposals {
		if p.Expiry {
			s.expires(p.Commands)
		}
		s.proposeAll(p.Commands, func(results []*logv1.Result) {
			if life == s.life {
				s.leader.Answered(s.leaderTime(), p, results)
				s.drive(life)
			}
		})
	}
	at := s.w.loop.Now() + max(1, min(again-now.Mono, minute))
	if s.nextAt > s.w.loop.Now() && s.nextAt <= at {
		return
	}
	s.nextAt = at
	s.proc.At(at, func() {
		if life == s.life && s.nextAt == at {
			s.drive(life)
		}
	})
}

// proposeAll proposes commands and waits for all of them: done gets nil unless all were
// committed.
func (s *member) proposeAll(commands []*logv1.Command, done func([]*logv1.Result)) {
	results, left, lost := make([]*logv1.Result, len(commands)), len(commands), false
	for i, c := range commands {
		s.propose(c, func(r *logv1.Result, o outcome) {
			results[i], lost, left = r, lost || o != committed, left-1
			switch {
			case left > 0:
			case lost:
				done(nil)
			default:
				done(results)
			}
		})
	}
}

// expires notes what the leader gives up.
func (s *member) expires(commands []*logv1.Command) {
	for _, c := range commands {
		s.w.trace("server %d gives up: %v", s.id, c)
		if c.GetEndTurn() != nil {
			s.w.turnsLost++
		} else {
			s.w.expiries++
		}
	}
}

// stepDown is when a leader learns that it is none. Nobody can say what became
// of the entry in flight.
func (s *member) stepDown() {
	if !s.leads {
		return
	}
	queue, f := s.queue, s.flight
	s.leadership = leadership{life: s.life + 1, table: s.table}
	s.table.Follow()
	s.knows = -1
	if f != nil {
		if d := s.draw(5); !f.kept && d.Chance(latePPM) {
			s.late = f.data
		}
		for _, p := range f.batch {
			p.done(nil, unknown)
		}
	}
	for _, p := range queue {
		p.done(nil, refused)
	}
}

// renew answers a renewal that has arrived at this server.
func (s *member) renew(node string, incarnation uint64, answer func(fenced, ok bool)) {
	if !s.leads {
		if s.knows < 0 || s.knows == s.id {
			answer(false, false)
			return
		}
		leader := s.w.servers[s.knows]
		s.hop(leader, func() {
			back := func(fenced, ok bool) { leader.hop(s, func() { answer(fenced, ok) }) }
			if leader.leads {
				leader.renewHere(node, incarnation, back)
			} else {
				back(false, false)
			}
		})
		return
	}
	s.renewHere(node, incarnation, answer)
}

// renewHere has a majority confirm the leadership, and then asks the table. The
// confirmation is a round of messages: it says who led when they were answered.
func (s *member) renewHere(node string, incarnation uint64, answer func(fenced, ok bool)) {
	s.verify(func(verify func() error) {
		fenced, err := s.table.Renew(verify, []*peerv1.NodeLease{{Name: node, Incarnation: incarnation}})
		answer(err == nil && fenced[0], err == nil)
	})
}

// verify has a majority confirm the leadership.
func (s *member) verify(done func(func() error)) {
	d := s.draw(3)
	asked, back := d.Skewed(millisecond/4, 20*millisecond), d.Skewed(millisecond/4, 20*millisecond)
	term, verified := s.term, false
	s.w.loop.After(asked, func() { verified = s.w.leader == s.id && s.w.term == term })
	s.proc.At(s.w.loop.Now()+asked+back, func() {
		done(func() error {
			if verified || s.w.flaws.NoVerify {
				return nil
			}
			return lease.ErrNotLeading
		})
	})
}

// renewTurn answers a renewal of a turn that has arrived at this server.
func (s *member) renewTurn(id, token uint64, answer func(turnAnswer)) {
	if s.leads {
		s.renewTurnHere(id, token, answer)
		return
	}
	if s.knows < 0 || s.knows == s.id {
		answer(turnAnswer{})
		return
	}
	leader := s.w.servers[s.knows]
	s.hop(leader, func() {
		back := func(a turnAnswer) { leader.hop(s, func() { answer(a) }) }
		if leader.leads {
			leader.renewTurnHere(id, token, back)
		} else {
			back(turnAnswer{})
		}
	})
}

// renewTurnHere is renewHere for a turn.
func (s *member) renewTurnHere(id, token uint64, answer func(turnAnswer)) {
	s.verify(func(verify func() error) {
		renewals, err := s.table.RenewTurns(verify, []*peerv1.TurnLease{{Id: id, Token: token}})
		a := turnAnswer{ok: err == nil}
		if a.ok {
			a.renewal = renewals[0]
			s.rep.View(func(st *state.State) {
				if row := st.Turn(state.TurnID(id)); row != nil {
					a.row, a.settingUp = *row, st.SettingUp(row)
				}
			})
		}
		answer(a)
	})
}

// crash kills the server's process; its disk stays.
func (s *member) crash() {
	s.leadership = leadership{life: s.life + 1, table: s.table}
	s.table.Follow()
	s.proc.Kill()
	for _, st := range s.streams {
		st.sever()
	}
	s.streams, s.knows, s.late = nil, -1, nil
}

// restart begins anew from what is on the disk.
func (s *member) restart() {
	s.proc.Start()
	s.stalled = false
	if err := s.rep.Restart(); err != nil {
		s.stops(err, s.w.audit.level)
		return
	}
	s.catchUp()
	s.knows = s.w.leader
}

// catchUp brings a follower up to the log, by a snapshot if it is far behind and
// the leader has one.
func (s *member) catchUp() {
	last := s.w.log.Last()
	if leader := s.w.leading(); leader != nil && leader != s && last-s.rep.Applied() > 200 {
		snap, err := leader.rep.Save()
		if err == nil {
			err = s.rep.Install(snap)
		}
		if err != nil {
			s.stops(err, s.w.audit.level)
			return
		}
		s.w.restored(s)
	}
	s.applyTo(last)
}
