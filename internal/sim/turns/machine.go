package turns

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
)

// machine is the real state machine with its log, in virtual time. What a commit takes
// is left out: a few milliseconds of some minutes.
type machine struct {
	loop     *sim.Loop
	fsm      *fsm.Machine
	index    uint64
	revision uint64 // of the newest event that was read
	tick     int64  // when the earliest tick is planned; 0: none is
	entries  int64
	err      error
	setUp    SetUp
	nodes    map[state.GroupID]*nodes
	turns    map[state.TurnID]*worker // that wait
	jobs     map[state.JobID]func()   // what to do when one has a group
	// Of set-ups: how many turns there were, and how many had to wait for theirs.
	granted, waited int64
}

// SetUp is what it takes to change the deployment that is on a group.
type SetUp struct {
	NS int64
	// Overlapped: the state of who comes next is fetched while others run.
	Overlapped bool
}

const (
	// epoch is the log time of the beginning.
	epoch = 1_000_000_000
	// tickSlack is how much later than due a tick comes.
	tickSlack = 5 * ms
	// retention keeps the tables short. Nobody asks for what has ended.
	retention = 1 * second
)

// cluster says what a machine has.
type cluster struct {
	policy uint32 // rota.v1.PlacementPolicy
	slots  int64  // of the horizon, a second each; 0: as it is by default
	groups int64
	nodes  int64 // of each
}

// newMachine makes a cluster.
func newMachine(loop *sim.Loop, c cluster, setUp SetUp) *machine {
	m := &machine{loop: loop, setUp: setUp, fsm: fsm.New(fsm.Options{}),
		nodes: make(map[state.GroupID]*nodes), turns: make(map[state.TurnID]*worker), jobs: make(map[state.JobID]func())}
	m.do(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{
		ClusterId: "simulated", Level: uint32(m.fsm.LevelMax()),
		Settings: &logv1.Settings{RetentionNs: retention, LedgerPolicy: c.policy, LedgerSlots: c.slots},
	}}})
	for i := range c.groups {
		m.do(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{
			Name: fmt.Sprintf("g%d", i), Nodes: c.nodes,
		}}})
	}
	return m
}

// do commits a command as an entry of its own, and lets everybody see what became of
// it. A refusal ends the run: nothing here is ever refused.
func (m *machine) do(c *logv1.Command) *logv1.Result {
	if m.err != nil {
		return &logv1.Result{}
	}
	m.index++
	m.entries++
	data, err := (&logv1.Entry{TimeNs: epoch + m.loop.Now(), Commands: []*logv1.Command{c}}).MarshalVT()
	if err != nil {
		return m.fail(err)
	}
	results, err := m.fsm.ApplyData(m.index, 0, data)
	if err != nil {
		return m.fail(err)
	}
	if r := results[0]; r.Refusal != nil {
		return m.fail(fmt.Errorf("the state machine refuses %T: %s", c.Verb, r.Refusal.Message))
	}
	m.read()
	m.plan()
	return results[0]
}

// fail ends the run.
func (m *machine) fail(err error) *logv1.Result {
	if m.err == nil {
		m.err = err
		m.loop.Halt()
	}
	return &logv1.Result{}
}

// read looks at the new events: turns that were granted, and jobs that have a group.
// What follows from them happens now, but after the entry.
func (m *machine) read() {
	m.fsm.View(func(s *state.State) {
		for last := s.Meta().Revision; m.revision < last; {
			m.revision++
			e, ok := s.Event(m.revision)
			switch {
			case !ok:
				m.fail(fmt.Errorf("event %d was dropped before it was read", m.revision))
				return
			case e.Kind == state.EventTurn && state.TurnState(e.State) == state.TurnHeld:
				id := state.TurnID(e.Subject)
				m.loop.At(m.loop.Now(), func() { m.grant(id) })
			case e.Kind == state.EventJob && state.JobState(e.State) == state.JobRunning:
				id := state.JobID(e.Subject)
				m.loop.At(m.loop.Now(), func() { m.placed(id) })
			}
		}
	})
}

// plan has a tick proposed when something in state is due.
func (m *machine) plan() {
	due, ok := m.fsm.NextDue()
	if !ok {
		return
	}
	at := max(due-epoch, m.loop.Now()) + tickSlack
	if m.tick != 0 && m.tick <= at {
		return
	}
	m.tick = at
	m.loop.At(at, func() {
		if m.tick != at {
			return
		}
		m.tick = 0
		if due, ok := m.fsm.NextDue(); ok && due <= epoch+at {
			m.do(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
			return
		}
		m.plan()
	})
}

// placed starts a job that has got a group, once.
func (m *machine) placed(id state.JobID) {
	if start := m.jobs[id]; start != nil {
		delete(m.jobs, id)
		start()
		m.fetch(id)
	}
}

// fetch has the state of who comes next fetched, now that a group has one job more.
func (m *machine) fetch(id state.JobID) {
	if !m.setUp.Overlapped || m.err != nil {
		return
	}
	m.fsm.View(func(s *state.State) {
		j := s.Job(id)
		if j == nil || j.Group == 0 {
			return
		}
		g := s.NodeGroup(j.Group)
		next := following(s, g, g.Resident)
		if n := m.on(g.ID); n.fetches != next {
			n.fetches, n.since = next, m.loop.Now()
		}
	})
}

// on returns what is going on on the nodes of a group.
func (m *machine) on(id state.GroupID) *nodes {
	if m.nodes[id] == nil {
		m.nodes[id] = &nodes{}
	}
	return m.nodes[id]
}

// submit hands in a job. start is called when it has a group.
func (m *machine) submit(c *logv1.SubmitJob, start func()) (running bool) {
	id := state.JobID(m.do(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: c}}).FirstId)
	if m.err != nil {
		return false
	}
	m.jobs[id] = start
	m.fsm.View(func(s *state.State) { running = s.Job(id).State == state.JobRunning })
	return running
}

// remove takes a job away, for good.
func (m *machine) remove(name string) {
	m.do(&logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{Name: name, Change: logv1.JobChange_JOB_CHANGE_DELETE}}})
}

// forget takes away a job that waits for a group.
func (m *machine) forget(name string) {
	m.fsm.View(func(s *state.State) {
		s.QueuedJobs(0, func(j *state.Job) bool {
			if j.Name == name {
				delete(m.jobs, j.ID)
			}
			return true
		})
	})
	m.remove(name)
}

// acquire asks for a turn of a worker.
func (m *machine) acquire(w *worker, c *logv1.AcquireTurn) {
	w.turn = state.TurnID(m.do(&logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: c}}).FirstId)
	m.turns[w.turn] = w
}

// grant tells a worker that it has its group, and how long setting it up takes.
func (m *machine) grant(id state.TurnID) {
	w := m.turns[id]
	if w == nil {
		m.fail(fmt.Errorf("turn %d was granted, and nobody waits for it", id))
		return
	}
	delete(m.turns, id)
	var t state.Turn
	next := state.DeploymentID(0)
	m.fsm.View(func(s *state.State) {
		t = *s.Turn(id)
		if m.setUp.Overlapped {
			next = following(s, s.NodeGroup(t.Group), t.Deployment)
		}
	})
	cost := m.cost(&t, next)
	m.granted++
	if cost > 0 {
		m.waited++
	}
	w.granted(&t, cost)
}

// yield ends a turn.
func (m *machine) yield(t *state.Turn, setUp int64) {
	m.do(&logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: &logv1.EndTurn{
		TurnId: uint64(t.ID), Token: t.Token, Reason: logv1.TurnEnd_TURN_END_YIELDED, SetUpNs: setUp,
	}}})
}

// nodes are those of a group: whose state is being fetched, since when.
type nodes struct {
	fetches state.DeploymentID
	since   int64
}

// cost returns how long a turn waits for its set-up, and has the state of who comes
// next fetched from then on.
func (m *machine) cost(t *state.Turn, next state.DeploymentID) int64 {
	n := m.on(t.Group)
	now, cost := m.loop.Now(), int64(0)
	if t.SetUp {
		cost = m.setUp.NS
		if m.setUp.Overlapped && n.fetches == t.Deployment {
			cost = max(0, cost-(now-n.since))
		}
	}
	if n.fetches != next || t.SetUp {
		n.fetches, n.since = next, now+cost
	}
	return cost
}

// following returns whose turn is next on a group behind the one of a deployment, as far
// as state says: of those who wait the one whose job has waited longest, or else whose
// reservation comes next.
func following(s *state.State, group *state.NodeGroup, resident state.DeploymentID) (next state.DeploymentID) {
	holder, _ := resident.Job()
	now := s.Meta().Now
	first := int64(0)
	s.GroupJobs(group.ID, func(j *state.Job) bool {
		reservation := s.Reservation(j.ID)
		if j.ID == holder || reservation == nil || group.Period == 0 {
			return true
		}
		at := nextStart(reservation, group.Period, now/second) * second
		s.JobTurns(j.ID, func(w *state.Turn) bool {
			if w.State == state.TurnWaiting {
				at = min(at, w.ArrivedAt)
			}
			return true
		})
		if next == 0 || at < first {
			next, first = j.Deployment(0), at
		}
		return true
	})
	return next
}

// nextStart returns the slot, after one, at which the next cycle of a reservation starts. All
// jobs of a group have the same model here, so a group's period is one cycle.
func nextStart(reservation *state.Reservation, period, slot int64) int64 {
	if reservation.Anchor > slot {
		return reservation.Anchor
	}
	return reservation.Anchor + ((slot-reservation.Anchor)/period+1)*period
}
