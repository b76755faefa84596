package evaluate

import (
	"cmp"
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// machine is rota: the real state machine behind a leader, and agents that do as
// they are told. Commands that arrive while an entry is in flight share the next
// one. What is to be started is read from the state's events, as a watcher does.
type machine struct {
	w       *world
	fsm     *fsm.Machine
	mapping mapping
	index   uint64
	// Of the leader: what waits to be proposed, and whether an entry is in flight.
	waiting  []proposal
	inFlight bool
	revision uint64 // of the newest event that was read
	lead     *sim.Lead
	apis     *apis
	sessions map[*rollout]*session
	// rollouts are those with a session, by their trajectory.
	rollouts map[state.TrajectoryID]*rollout
	granted  map[state.ActionID]*call
	running  map[state.ActionID]*running
	nodes    map[state.NodeID]string
	// dirty are the nodes on which attempts have got other cores since that was looked at.
	dirty []state.NodeID
	cores map[state.NodeID]*usedCores
}

// usedCores is how many cores a node has, and how many attempts compute on.
// shared are those that attempts share.
type usedCores struct{ used, all, shared int64 }

// use notes that attempts compute on so many cores more of a node. More than there are is
// the end of the run: a core would have two users.
func (m *machine) use(id state.NodeID, more int64) {
	c := m.cores[id]
	if c.used += more; c.used > c.all {
		m.w.fail(fmt.Errorf("%d cores of node %s are in use at the same time, and it has %d", c.used, m.nodes[id], c.all))
	}
}

// session is a trajectory of the state machine.
type session struct {
	id uint64
	// waiting is a call that came before the trajectory was known to be open.
	waiting *call
}

// proposal is a command and what to do with its result.
type proposal struct {
	command *logv1.Command
	then    func(*logv1.Result)
}

const (
	// epoch is the log time of the beginning.
	epoch = 1_000_000_000
	// retention keeps the tables short. Nobody asks for what has ended.
	retention = 60_000_000_000
)

// newMachine returns rota; with fixed units for elastic actions the state machine without elasticity.
func newMachine(w *world, says mapping) (*machine, error) {
	says.params, says.told = w.in.Params(), w.in.told
	m := &machine{
		w: w, apis: newAPIs(w), sessions: make(map[*rollout]*session), rollouts: make(map[state.TrajectoryID]*rollout), granted: make(map[state.ActionID]*call),
		running: make(map[state.ActionID]*running), cores: make(map[state.NodeID]*usedCores),
		nodes: make(map[state.NodeID]string), mapping: says,
	}
	m.fsm = fsm.New(fsm.Options{OnEffects: m.effects, InPlace: true})
	setUp := append([]*logv1.Command{{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{
		ClusterId: "simulated", Level: uint32(m.fsm.LevelMax()), Settings: &logv1.Settings{RetentionNs: retention},
	}}}}, m.mapping.cluster()...)
	results, err := m.entry(setUp)
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		if r.Refusal != nil {
			return nil, refused(r)
		}
	}
	m.fsm.View(func(s *state.State) {
		s.Nodes(0, func(n *state.Node) bool {
			m.nodes[n.ID], m.cores[n.ID] = n.Name, &usedCores{all: int64(n.CoreCount())}
			return true
		})
		m.revision = s.Meta().Revision
	})
	m.lead = sim.NewLead(&w.loop, m.fsm, func() int64 { return epoch + w.loop.Now() }, m.proposeAll)
	return m, nil
}

func refused(r *logv1.Result) error {
	return fmt.Errorf("the state machine refuses: %s", r.Refusal.Message)
}

// entry applies commands as one entry.
func (m *machine) entry(commands []*logv1.Command) ([]*logv1.Result, error) {
	m.index++
	data, err := (&logv1.Entry{TimeNs: epoch + m.w.loop.Now(), Commands: commands}).MarshalVT()
	if err != nil {
		return nil, err
	}
	if m.w.in.Log != nil {
		m.w.in.Log(m.index, data)
	}
	return m.fsm.ApplyData(m.index, 0, data)
}

// propose hands a command to the leader. A refusal ends the run: a client that
// is refused here would be in a real cluster.
func (m *machine) propose(c *logv1.Command, then func(*logv1.Result)) {
	m.waiting = append(m.waiting, proposal{c, then})
	if !m.inFlight {
		m.commit()
	}
}

// commit sends all that waits in one entry. Log time is that of the proposal.
func (m *machine) commit() {
	batch := m.waiting
	m.waiting, m.inFlight = nil, true
	commands := make([]*logv1.Command, len(batch))
	for i := range batch {
		commands[i] = batch[i].command
	}
	results, err := m.entry(commands)
	if err != nil {
		m.w.fail(err)
		return
	}
	m.w.loop.After(m.w.in.Latency.Commit, func() { m.committed(batch, results) })
}

// committed tells everybody what became of an entry.
func (m *machine) committed(batch []proposal, results []*logv1.Result) {
	for i, r := range results {
		if r.Refusal != nil {
			m.w.fail(refused(r))
			return
		}
		if batch[i].then != nil {
			batch[i].then(r)
		}
	}
	m.resize() // first: what starts may need what others give up
	m.read()
	m.inFlight = false
	m.lead.Applied()
	if len(m.waiting) > 0 && !m.inFlight {
		m.commit()
	}
}

// proposeAll hands over what the leader proposes.
func (m *machine) proposeAll(commands []*logv1.Command, done func([]*logv1.Result)) {
	var results []*logv1.Result
	for _, c := range commands {
		m.waiting = append(m.waiting, proposal{c, func(r *logv1.Result) {
			if results = append(results, r); len(results) == len(commands) {
				done(results)
			}
		}})
	}
	if !m.inFlight {
		m.commit()
	}
}

// read looks at the new events, opens the sandboxes of what was placed, and starts what was granted.
func (m *machine) read() {
	m.fsm.View(func(s *state.State) {
		for m.revision < s.Meta().Revision {
			m.revision++
			e, ok := s.Event(m.revision)
			if !ok {
				m.w.fail(fmt.Errorf("event %d was dropped before it was read", m.revision))
				return
			}
			if r := m.rollouts[e.Trajectory]; r != nil && e.Kind == state.EventTrajectory && state.TrajectoryState(e.State) == state.TrajectoryOpen {
				r.ready = m.w.loop.Now() + m.w.in.Latency.Dispatch + m.w.in.Latency.Open
			}
			if e.Kind == state.EventAction && state.ActionState(e.State) == state.ActionRunning {
				m.start(s, s.Action(state.ActionID(e.Subject)))
			}
		}
	})
}

// start lets an agent carry out an attempt.
func (m *machine) start(s *state.State, a *state.Action) {
	c := m.granted[a.ID]
	if c == nil {
		m.w.fail(fmt.Errorf("action %d was granted before its submission was answered", a.ID))
		return
	}
	t := s.Attempt(a.Node, a.ID)
	g := m.mapping.grant(c.Action, t)
	c.queue += t.StartedAt - a.SubmittedAt
	if c.try == 0 {
		c.forecast.waited = t.StartedAt - c.forecast.at
	}
	report := &logv1.ReportAttempts{Node: m.nodes[a.Node], Incarnation: t.Incarnation,
		Reports: []*logv1.AttemptReport{{ActionId: uint64(a.ID), Attempt: t.Number, Reason: uint32(state.EndExited)}}}
	dispatch := cmp.Or(c.Dispatch, m.w.in.Latency.Dispatch)
	since := m.w.loop.Now() + dispatch
	setUp := g.setUp + m.w.opening(c, since)
	r := &running{m: m, c: c, node: a.Node, onCores: t.Chunk.Units == 0, units: g.units, wanted: g.units, since: since}
	m.running[a.ID] = r
	m.w.loop.After(dispatch+setUp, func() {
		c.started = m.w.loop.Now()
		r.hold()
		r.then = func(ok bool) {
			took := m.w.loop.Now() - c.started
			c.exec += took
			report.Reports[0].ExecNs = took
			if !ok {
				report.Reports[0].ExitCode = 1
			}
			m.report(a.ID, c, report, ok)
		}
		m.execute(r)
	})
}

// execute does what the action does: it computes, or calls an API.
func (m *machine) execute(r *running) {
	if m.apis.providers[r.c.Cost[0].Resource] != nil {
		began := m.w.loop.Now()
		m.apis.call(r.c, func(ok bool) {
			r.c.busy += r.units.Held(m.w.loop.Now() - began)
			r.then(ok)
		})
		return
	}
	r.compute()
}

// effects notes on which nodes attempts have got other cores.
func (m *machine) effects(all []fsm.Effect) {
	for _, e := range all {
		if e.Kind == fsm.EffectResized && !slices.Contains(m.dirty, e.Node) {
			m.dirty = append(m.dirty, e.Node)
		}
	}
}

// report tells the cluster that an attempt has ended. The client knows when that
// is committed.
func (m *machine) report(id state.ActionID, c *call, report *logv1.ReportAttempts, ok bool) {
	m.propose(&logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: report}}, func(r *logv1.Result) {
		if r.Count != 1 {
			m.w.fail(fmt.Errorf("the state machine knows nothing of attempt %d of action %d", report.Reports[0].Attempt, id))
			return
		}
		delete(m.granted, id)
		delete(m.running, id)
		m.w.ended(c, ok)
	})
}

// begin opens a trajectory, if any of the actions needs a node for it.
func (m *machine) begin(r *rollout) {
	if !m.mapping.pinned(&r.Trajectory) {
		return
	}
	s := &session{}
	m.sessions[r] = s
	open := &logv1.OpenTrajectory{MemoryBytes: uint64(r.Memory)}
	if m.mapping.step || r.OfStep {
		open.Objective = uint32(state.ObjectiveStep)
	}
	m.propose(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: open}}, func(result *logv1.Result) {
		s.id = result.FirstId
		m.rollouts[state.TrajectoryID(s.id)] = r
		if s.waiting != nil {
			m.submit(s.waiting)
		}
	})
}

func (m *machine) end(r *rollout) {
	s := m.sessions[r]
	if s == nil {
		return
	}
	delete(m.sessions, r)
	delete(m.rollouts, state.TrajectoryID(s.id))
	m.propose(&logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: s.id}}}, nil)
}

func (m *machine) submit(c *call) {
	trajectory := uint64(0)
	if s := m.sessions[c.r]; s != nil && onCPUs(c.Action) {
		if s.id == 0 {
			s.waiting = c
			return
		}
		trajectory = s.id
	}
	a := m.mapping.action(c.Action)
	a.TrajectoryId = trajectory
	if c.r.Alone {
		a.MemoryBytes = uint64(c.r.Memory)
	}
	m.propose(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{Actions: []*logv1.Action{a}}}},
		func(r *logv1.Result) {
			m.granted[state.ActionID(r.FirstId)] = c
			m.forecast(c, state.ActionID(r.FirstId))
		})
}

func (m *machine) capacity() Capacity {
	p := m.w.in.Params()
	if n := p.Cluster.Cores(); n > 0 {
		return Capacity{"cpu", n}
	}
	return Capacity{"gpu", int64(p.Cluster.GPUNodes.Value * p.Cluster.GPUsPerNode.Value)}
}

// onCPUs says whether an action runs where its trajectory lives.
func onCPUs(a *workload.Action) bool { return a.Cost[0].Resource == "cpu" }
