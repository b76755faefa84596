package dst

import (
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/server/entry"
	"rota/server/leader"
	"rota/server/lease"
	"rota/server/quorum"
)

const (
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
	// queue is what waits for an entry. It outlives a leadership. forming: a pause is on
	// after which the next entry is formed. held: none is formed before the next leadership.
	queue         *entry.Queue[proposer]
	forming, held bool
	// readers wait for an index from the leader.
	readers quorum.Readers[confirmation]
	// promised is the newest term that the server has voted in or heard of. It is on its disk.
	promised uint64
	voters   quorum.Voters
	// tail is an entry that the server has stored and that may not be committed, in place of
	// that of the committed log; index 0: there is none.
	tail   sim.Entry
	sent   uint64 // counts messages to other servers
	jumped int64  // how far its clock has jumped
	// appliedAt is what its clock showed when it applied the newest entry.
	appliedAt int64
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
	// cutOff: it was deposed, and those who know cannot reach it.
	cutOff bool
	stamp  *entry.Stamp
	began  int64 // by its clock
	flight *flight
	pipes  []pipe // to other servers
	// verify gathers the proof that the server leads. beats are the servers that have not
	// answered a heartbeat yet, a bit for each.
	verify quorum.Leadership[confirmation]
	beats  uint
	// leader is what the leader does between entries; nextAt is when it is asked again.
	leader *leader.Leader
	nextAt int64
}

func newServer(w *World, id int) *member {
	s := &member{w: w, id: id, clock: sim.NewClock(&w.loop, w.config.ppm[id]), knows: -1, build: w.config.builds[id]}
	s.proc = sim.NewProcess(&w.loop, s.clock)
	s.queue, s.voters = entry.NewQueue[proposer](limits), w.votersBut(id)
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

func (s *member) draw(what uint64) sim.Draw {
	return s.w.draws.Of(luckServer+uint64(s.id)<<8+what, s.w.loop.Now())
}

// applyTo applies the log up to an index.
func (s *member) applyTo(index uint64) bool {
	for s.broken == nil && s.rep.Applied() < index {
		e := s.entryAt(s.rep.Applied() + 1)
		results, err := s.rep.Apply(e)
		if err != nil {
			s.stops(err, s.w.wanted(e))
			return false
		}
		s.promise(e.Term)
		s.appliedAt = s.clock.Now()
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
		case fsm.EffectEvents, fsm.EffectPolicies, fsm.EffectRoute, fsm.EffectWorker, fsm.EffectPolicy, fsm.EffectResized: // watchers ask by themselves
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
	s.agrees(s.w.log.Last())
	if !s.applyTo(s.w.log.Last()) {
		return
	}
	s.knows = s.id
	s.leadership = leadership{
		leads: true, term: term, life: s.life + 1, table: s.table,
		stamp: entry.NewStamp(term, s.committedTime()), began: s.shown(),
	}
	s.table.Lead()
	s.leader = leader.New(leader.Config{
		Machine: s.rep, Leases: s.table, Logger: hclog.NewNullLogger(),
		Bootstrap: &logv1.Bootstrap{ClusterId: "simulated", Settings: s.w.config.settings, Level: uint32(s.build)},
	}, s.leaderTime())
	s.openPipes(s.w.elected - 1)
	s.replicate(s.w.log.At(s.w.elected), 500_000)
	s.announce(s.w.elected)
	s.drive(s.life)
	s.held = false
	s.form()
}

// leaderTime is the server's clock, and what it takes for log time: that of the newest entry,
// and what has passed since.
func (s *member) leaderTime() leader.Time {
	t := leader.Time{Mono: s.clock.Now()}
	if committed := s.committedTime(); committed >= entry.WallFloor {
		t.Log = committed + t.Mono - s.appliedAt
	}
	return t
}

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
		s.proposeAll(p.Commands, func(results []*logv1.Result, _ outcome) {
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
	f, asked := s.flight, s.verify.Lost()
	s.leadership = leadership{life: s.life + 1, table: s.table}
	s.table.Follow()
	s.knows = -1
	for _, done := range asked {
		done(0, false)
	}
	s.dropProposals(f)
	d := s.draw(6)
	s.proc.After(d.Skewed(millisecond/2, 300*millisecond), s.follow)
}

// follow applies what the leader has committed, unless this server lags or leads: a leader
// that was deposed hears of nothing.
func (s *member) follow() {
	if !s.stalled && !s.leads {
		s.agrees(s.w.log.Last())
		s.applyTo(s.w.log.Last())
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

// renewHere has a majority confirm the leadership, and then asks the table.
func (s *member) renewHere(node string, incarnation uint64, answer func(fenced, ok bool)) {
	s.ask(func(_ uint64, leads bool) {
		fenced, err := s.table.Renew(verdict(leads), []*peerv1.NodeLease{{Name: node, Incarnation: incarnation}})
		if err == nil && !fenced[0] {
			s.w.heard[node] = s.w.loop.Now()
		}
		answer(err == nil && fenced[0], err == nil)
	})
}

// verdict is what a verification returns that has ended.
func verdict(leads bool) func() error {
	return func() error {
		if leads {
			return nil
		}
		return lease.ErrNotLeading
	}
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
	s.ask(func(_ uint64, leads bool) {
		renewals, err := s.table.RenewTurns(verdict(leads), []*peerv1.TurnLease{{Id: id, Token: token}})
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
	s.queue, s.readers = entry.NewQueue[proposer](limits), quorum.Readers[confirmation]{}
	s.forming, s.held = false, false
	s.connectionsLost()
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
	s.promise(s.w.term)
	for _, other := range s.w.servers {
		other.confirm()
	}
}

// catchUp brings a follower up to the log, by a snapshot if it is far behind and
// the leader has one.
func (s *member) catchUp() {
	if s.leads {
		return // it hears of nothing before it knows that it was deposed
	}
	last := s.w.log.Last()
	s.agrees(last)
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
