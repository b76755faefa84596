package models

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
)

const (
	epoch     = 1 * second // log time of the beginning
	retention = 60 * second
	memory    = 80_000 * 1_000_000 // of a GPU, in bytes
	class     = "simulated-gpu"
	// Requests take between these, execution alone.
	execMin, execMax = 2 * second, 18 * second
)

// Setup says on what requests run, and what is known.
type Setup struct {
	Nodes, GPUs int64 // and GPUs of each node
	Load        int64 // in percent of all GPUs
	Seed        uint64
	// Level is the feature level of the cluster.
	Level state.Level
	// Undeclared: no action says how long its set-up takes.
	Undeclared bool
}

// Result is what became of the requests. Times are nanoseconds.
type Result struct {
	Requests, Loads int64
	SetUpNS         int64 // of all loads
	ACTNS           int64 // mean
}

// machine is the real state machine with nodes that load models and run requests.
type machine struct {
	Setup
	loop     sim.Loop
	fsm      *fsm.Machine
	lead     *sim.Lead
	in       *Input
	ctx      context.Context
	err      error
	index    uint64
	revision uint64
	result   Result
	ended    int64
	nodes    map[state.NodeID]*node
	requests map[state.ActionID]*request
}

// node is a machine with GPUs, and what they have loaded.
type node struct {
	name   string
	loaded []state.Resident
}

type request struct {
	model *Model
	at    int64 // when it was submitted
	exec  int64
}

// Run serves all requests and returns what that took. The same setup gives the same result.
func Run(ctx context.Context, in *Input, s Setup) (Result, error) {
	m := &machine{Setup: s, in: in, ctx: ctx, fsm: fsm.New(fsm.Options{}), nodes: make(map[state.NodeID]*node), requests: make(map[state.ActionID]*request)}
	m.lead = sim.NewLead(&m.loop, m.fsm, func() int64 { return epoch + m.loop.Now() }, m.propose)
	m.do(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{
		ClusterId: "simulated", Level: uint32(s.Level), Settings: &logv1.Settings{RetentionNs: retention},
	}}})
	for i := range s.Nodes {
		m.do(&logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
			Name: fmt.Sprintf("gpu-node-%d", i+1), JournalId: "simulated", MemoryBytes: 1 << 40,
			Gpus: &logv1.GpuInventory{Class: class, Count: uint32(s.GPUs), MemoryBytes: memory},
		}}})
	}
	m.fsm.View(func(st *state.State) {
		st.Nodes(0, func(n *state.Node) bool { m.nodes[n.ID] = &node{name: n.Name}; return true })
	})
	m.arrivals()
	m.loop.Run(math.MaxInt64)
	if m.err == nil && m.ended < int64(len(in.Requests)) {
		m.err = errors.New("requests wait that never start; use nodes with more GPUs")
	}
	if m.err != nil {
		return Result{}, m.err
	}
	m.result.Requests = m.ended
	m.result.ACTNS /= m.ended
	return m.result, nil
}

// arrivals plans when each request comes, so that execution takes the load.
func (m *machine) arrivals() {
	units := int64(0)
	for _, r := range m.in.Requests {
		units += int64(m.in.Models[r].GPUs)
	}
	mean := (execMin + execMax) / 2 * units / int64(len(m.in.Requests)) * 100 / (m.Nodes * m.GPUs * m.Load)
	draw, at := sim.Draws(m.Seed).Of(3, 0), int64(0)
	for i := range m.in.Requests {
		at += draw.N(2 * mean)
		r := &request{model: &m.in.Models[m.in.Requests[i]], at: at, exec: draw.Between(execMin, execMax)}
		m.loop.At(at, func() { m.submit(r, fmt.Sprintf("model-%d", m.in.Requests[i])) })
	}
}

func (m *machine) submit(r *request, model string) {
	if err := m.ctx.Err(); err != nil {
		m.fail(err)
		return
	}
	g := &logv1.Gpus{Class: class, Degrees: []uint32{r.model.GPUs}, Model: model, MemoryBytes: uint64(memory / milli * r.model.Milli), SetupNs: r.model.LoadNS}
	if m.Undeclared {
		g.SetupNs = 0
	}
	results := m.commit(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
		Actions: []*logv1.Action{{AttemptsMax: 1, Needs: &logv1.Needs{Gpus: g}}},
	}}})
	if m.err != nil {
		return
	}
	m.requests[state.ActionID(results[0].FirstId)] = r
	m.look()
}

// do commits a command and lets the nodes see what became of it.
func (m *machine) do(c *logv1.Command) {
	m.commit(c)
	m.look()
}

// propose implements what a leader needs.
func (m *machine) propose(commands []*logv1.Command, done func([]*logv1.Result)) {
	if results := m.commit(commands...); m.err == nil {
		done(results)
		m.look()
	}
}

// commit applies commands as an entry. A refusal ends the run: nothing here is ever refused.
func (m *machine) commit(commands ...*logv1.Command) []*logv1.Result {
	if m.err != nil {
		return nil
	}
	m.index++
	data, err := (&logv1.Entry{TimeNs: epoch + m.loop.Now(), Commands: commands}).MarshalVT()
	if err != nil {
		m.fail(err)
		return nil
	}
	results, err := m.fsm.ApplyData(m.index, 0, data)
	if err != nil {
		m.fail(err)
		return nil
	}
	for _, r := range results {
		if r.Refusal != nil {
			m.fail(fmt.Errorf("the state machine refuses: %s", r.Refusal.Message))
		}
	}
	return results
}

func (m *machine) fail(err error) {
	if m.err == nil {
		m.err = err
	}
	m.loop.Halt()
}

// look starts what was granted by the newest entry, and then lets the leader do what is due.
func (m *machine) look() {
	if m.err != nil {
		return
	}
	m.fsm.View(func(s *state.State) {
		for m.revision < s.Meta().Revision {
			m.revision++
			e, ok := s.Event(m.revision)
			if !ok {
				m.fail(fmt.Errorf("event %d was dropped before it was read", m.revision))
				return
			}
			if e.Kind == state.EventAction && state.ActionState(e.State) == state.ActionRunning {
				m.start(s, s.Action(state.ActionID(e.Subject)))
			}
		}
		for id, n := range m.nodes {
			n.loaded = s.ModelsOn(id)
		}
	})
	m.lead.Applied()
}

// start runs a request on its chunk. Its model is loaded first, unless it was there.
func (m *machine) start(s *state.State, a *state.Action) {
	r, n, t := m.requests[a.ID], m.nodes[a.Node], s.Attempt(a.Node, a.ID)
	use := state.Resident{Model: a.GPUs().Model, Chunk: t.Chunk}
	took := r.exec
	if !slices.ContainsFunc(n.loaded, func(o state.Resident) bool { return o.Same(&use) }) {
		took += r.model.LoadNS
		m.result.Loads++
		m.result.SetUpNS += r.model.LoadNS
	}
	report := &logv1.ReportAttempts{Node: n.name, Incarnation: t.Incarnation, Reports: []*logv1.AttemptReport{
		{ActionId: uint64(a.ID), Attempt: t.Number, Reason: uint32(state.EndExited), ExecNs: took},
	}}
	id := a.ID
	m.loop.After(took, func() {
		m.ended++
		m.result.ACTNS += m.loop.Now() - r.at
		delete(m.requests, id)
		m.do(&logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: report}})
	})
}
