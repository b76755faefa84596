package dst

import (
	"fmt"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/sched"
)

// World is one run: a cluster, its clients, and what goes wrong.
type World struct {
	config config
	flaws  Flaws
	loop   sim.Loop
	draws  sim.Draws

	servers []*member
	nodes   []*sim.Node
	links   [][]link // by node and server
	weather weather
	clients []*client
	// trainers that there ever were, and turns that they were told to have.
	trainers []*trainer
	acked    []uint64

	// What Raft would know: who leads, and what is committed.
	leader  int // -1: nobody
	term    uint64
	log     sim.Log
	elected uint64 // index of the first entry of the newest term
	// acknowledged is the newest entry whose proposers were answered.
	acknowledged uint64
	// A commit takes between commitMin and commitMax.
	commitMin, commitMax int64
	results              []*logv1.Result // of the entry that was applied last
	// heard is when a leader last renewed the lease of each node, faster the bandwidth that
	// each node has gained.
	heard  map[string]int64
	faster []uint64
	// undos end the faults that are on.
	undos []*undo
	// planned says which decision panics next, and panics has those that did, by entry.
	planned *plant
	panics  map[uint64]fsm.Decision

	deciders []sched.Scheduler // of all feature levels
	witness  *witness
	audit    *audit
	watch    []*watcher

	// Counters of the report.
	faults, expiries, lost, elections int
	overtaken                         int // expiries of nodes that had come back
	reads                             int // that were answered
	turnsLost                         int // whose holders were silent
	lates                             int // entries of an earlier term that were appended
	upgrades, stops                   int // stops: at a feature level that the build did not know
	partitions, partitionsLed         int
	happened                          map[Kind]int

	story     []string // if it is kept
	keep      bool
	digest    uint64 // of the trace
	violation *Violation
}

// Flaws are planted bugs, for tests of the tests.
type Flaws struct {
	sim.Flaws
	// NoVerify: a leader renews leases without asking a majority.
	NoVerify bool
	// EagerLeader: a leader gives nodes up a moment after their last renewal.
	EagerLeader bool
	// Panics: decisions about quotas panic.
	Panics bool
	// OwnLevel: a replica decides by the newest feature level that its
	// build knows, whichever is active.
	OwnLevel bool
}

func newWorld(c config, o Options) *World {
	w := &World{
		config: c, flaws: o.Flaws, draws: sim.Draws(c.seed), leader: -1, commitMin: millisecond, commitMax: 10 * millisecond,
		heard: map[string]int64{}, faster: make([]uint64, c.nodes),
		panics: map[uint64]fsm.Decision{}, keep: o.story, happened: map[Kind]int{},
	}
	w.deciders = w.newDeciders()
	w.witness = newWitness(func(format string, args ...any) { w.fail("witness", format, args...) })
	w.audit = newAudit(w, o)
	for i := range c.servers {
		w.servers = append(w.servers, newServer(w, i))
	}
	for i := range c.nodes {
		w.links = append(w.links, make([]link, c.servers))
		w.nodes = append(w.nodes, w.newNode(i))
	}
	w.links = append(w.links, make([]link, c.servers)) // of all clients
	for range hosts {
		w.links = append(w.links, make([]link, c.servers))
	}
	for i := range clients {
		w.clients = append(w.clients, &client{w: w, id: i, link: c.nodes})
	}
	for i := range watchers {
		w.watch = append(w.watch, &watcher{w: w, id: i})
	}
	return w
}

func (w *World) newNode(i int) *sim.Node {
	c := w.config
	return sim.NewNode(sim.NodeOptions{
		Loop: &w.loop, Draws: w.draws, Luck: luckNode + uint64(i)<<8,
		Name: nodeName(i), Pool: c.pools[i], NUMA: c.cores[i], Memory: c.memory[i],
		GPUs: c.gpus[i], Bandwidth: c.bandwidth[i], Resizes: c.resizes[i], ShareAfterNS: c.shareAfter[i], CacheBytes: c.caches[i], Containers: c.containers[i], Labels: func(at int64) []*logv1.Label { return c.labels(i, at) }, PPM: c.ppm[c.servers+i],
		Servers: network{w, i}, Witness: w.witness,
		Work: decodeWork, Trace: w.trace, Flaws: w.flaws.Flaws,
	})
}

func nodeName(i int) string   { return fmt.Sprintf("n%d", i) }
func serverName(i int) string { return fmt.Sprintf("s%d", i) }

// trace notes what happens: in the digest, and in the story if it is kept.
func (w *World) trace(format string, args ...any) {
	w.mix(uint64(w.loop.Now()))
	w.mix(uint64(len(format)))
	w.tell(format, args...)
}

// tell adds a line to the story, if it is kept.
func (w *World) tell(format string, args ...any) {
	if w.keep {
		w.story = append(w.story, clock(w.loop.Now())+"  "+fmt.Sprintf(format, args...))
	}
}

// mix adds to the digest of the run.
func (w *World) mix(x uint64) { w.digest = (w.digest ^ x) * 0x100000001b3 }

// Violation is a promise that was broken.
type Violation struct {
	// Checker is what noticed.
	Checker string
	// What was seen, in one sentence.
	What string
}

// Error implements error.
func (v *Violation) Error() string { return v.Checker + ": " + v.What }

// fail ends the run with its first violation.
func (w *World) fail(checker, format string, args ...any) {
	if w.violation == nil {
		w.violation = &Violation{checker, fmt.Sprintf(format, args...)}
		w.trace("VIOLATION: %v", w.violation)
		w.loop.Halt()
	}
}

// start brings the cluster up.
func (w *World) start() {
	w.elect(0)
	for i, n := range w.nodes {
		w.loop.After(int64(i+1)*100*millisecond, n.Boot)
		w.startMover(i)
	}
}

// leading returns the server that really leads, nil if none does.
func (w *World) leading() *member {
	if w.leader < 0 || !w.servers[w.leader].leads {
		return nil
	}
	return w.servers[w.leader]
}

// elect makes a server the leader of a new term, if a majority votes for it.
func (w *World) elect(id int) bool {
	if !w.vote(id) {
		return false
	}
	w.leader = id
	w.term++
	w.elections++
	w.trace("server %d is elected in term %d", id, w.term)
	term, s := w.term, w.servers[id]
	s.tail = sim.Entry{} // or its leader could have committed it
	w.elected = w.append(w.term, nil).Index
	if s.late != nil {
		w.trace("an entry that server %d stamped in an earlier term is appended in term %d", id, term)
		w.append(w.term, s.late)
		s.late = nil
		w.lates++
	}
	d := w.draws.Of(luckLeader, w.loop.Now())
	s.proc.After(d.Skewed(millisecond, 200*millisecond), func() {
		if w.leader == id && w.term == term {
			s.lead(term)
		}
	})
	for _, other := range w.servers {
		if other.id != id {
			w.announce(other, id, d.Skewed(millisecond, second))
		}
	}
	return true
}

// announce tells a server who leads, unless it believes to lead itself: that
// ends in its own time.
func (w *World) announce(s *member, id int, after int64) {
	term := w.term
	s.proc.After(after, func() {
		if w.term == term && !s.leads {
			s.knows = id
			s.promise(term)
		}
	})
}

// settleFlight decides what becomes of the entry that a leader could not commit
// before its term ended. It never learns.
func (w *World) settleFlight(s *member) {
	if !s.leads || s.term != w.term || s.flight == nil {
		return
	}
	d := w.draws.Of(luckLeader+1, w.loop.Now())
	if d.Chance(500_000) {
		w.append(s.term, s.flight.data)
		w.trace("the entry in flight at server %d is committed by its successor", s.id)
		s.flight.kept = true
	} else {
		w.trace("the entry in flight at server %d is lost", s.id)
	}
}

// depose ends the leadership: the old leader finds out when it does.
func (w *World) depose(after int64) {
	if w.leader < 0 {
		return
	}
	old := w.servers[w.leader]
	w.settleFlight(old)
	w.leader = -1
	old.cutOff = true
	term := old.term
	old.proc.After(after, func() {
		if old.leads && old.term == term {
			w.trace("server %d learns that it does not lead", old.id)
			old.stepDown()
			if w.leader >= 0 && w.leader != old.id {
				old.knows = w.leader
			}
		}
	})
}

// electAnother makes any server but one the leader, if a majority runs.
func (w *World) electAnother(not int, luck uint64) {
	up := []int{}
	for _, s := range w.servers {
		if s.proc.Runs() && s.id != not {
			up = append(up, s.id)
		}
	}
	if w.leader >= 0 {
		return
	}
	if len(up) == 0 || !w.elect(up[luck%uint64(len(up))]) {
		w.undoAfter(second, func() { w.electAnother(-1, luck) })
	}
}

// append commits an entry; servers apply it at their own pace.
func (w *World) append(term uint64, data []byte) sim.Entry {
	e := w.log.Commit(term, data)
	for _, s := range w.servers {
		if s.id == w.leader || s.stalled || !s.proc.Alive() {
			continue
		}
		d := s.draw(4)
		index := e.Index
		s.proc.After(d.Skewed(millisecond/2, 300*millisecond), func() {
			if !s.stalled && !s.leads && s.rep.Applied() < index {
				s.agrees(index)
				s.applyTo(index)
			}
		})
	}
	return e
}

// applied is called after a server has applied an entry: the first to do so is
// checked, the others must have come to the same.
func (w *World) applied(s *member, e sim.Entry, results []*logv1.Result) {
	w.results = results
	s.rep.View(func(st *state.State) {
		if active := st.Meta().Level; active > s.build {
			w.fail("scheduler", "server %d applies entry %d under level %d and knows up to %d", s.id, e.Index, active, s.build)
		}
	})
	if e.Index == w.audit.checked+1 {
		s.rep.View(func(st *state.State) { w.audit.check(e, results, st) })
		return
	}
	w.audit.compare(s.id, e.Index, s.rep.Hash())
}

// restored is called after a server has installed a snapshot.
func (w *World) restored(s *member) {
	w.audit.compare(s.id, s.rep.Applied(), s.rep.Hash())
	var err error
	s.rep.View(func(st *state.State) { err = st.Check() })
	if err != nil {
		w.fail("restore", "server %d has restored the snapshot of %d: %v", s.id, s.rep.Applied(), err)
	}
}

// simulated returns how much virtual time has passed.
func (w *World) simulated() time.Duration { return time.Duration(w.loop.Now()) }
