package rpc

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

const (
	// modelRowsMax and modelActionsMax bound the answer about one model.
	modelRowsMax    = 1000
	modelActionsMax = 20
	// sparedMax bounds the models of which it is said why they stay.
	sparedMax = 100
)

// ListModels returns a page of models.
func (s *Server) ListModels(ctx context.Context, req *rotav1.ListModelsRequest) (*rotav1.ListModelsResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, 9)
	if err := v.err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	census := countModels(s.Machine.Fork(), "")
	resp := &rotav1.ListModelsResponse{}
	c := &collector{page: p}
	for i, name := range slices.Sorted(maps.Keys(census.models)) {
		if at := uint64(i + 1); at > p.after && !c.visit(at, func() proto.Message {
			return appendRow(&resp.Models, census.models[name].message())
		}) {
			break
		}
	}
	resp.NextPageToken = c.nextToken()
	return resp, nil
}

// GetModel returns what is known of one model.
func (s *Server) GetModel(ctx context.Context, req *rotav1.GetModelRequest) (*rotav1.GetModelResponse, error) {
	if err := requireModel("model", req.Model).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	m := countModels(st, req.Model).models[req.Model]
	if m == nil {
		return nil, notFound("MODEL_NOT_FOUND", "nothing is known of model %q: it has no engine, is resident nowhere, and no action on GPUs names it", req.Model)
	}
	return &rotav1.GetModelResponse{
		Model: m.message(), Resident: residentRows(st, req.Model), WaitingActionIds: m.waiting, RunningActionIds: m.running,
	}, nil
}

// residentRows returns where a model is.
func residentRows(st *state.State, model string) (rows []*rotav1.Residency) {
	t := residencyTable{st: st, model: model}
	t.rows(0, func(_ uint64, row func() *rotav1.Residency) bool {
		rows = append(rows, row())
		return len(rows) < modelRowsMax
	})
	return rows
}

// modelCensus counts what is known of models, by name.
type modelCensus struct {
	st     *state.State
	only   string // the model that counts; empty: all
	models map[string]*modelCount
	// incomplete: there are more waiting actions than were looked at.
	incomplete bool
}

// modelCount is what was counted of one model.
type modelCount struct {
	rotav1.Model
	// byGPUs are its variants.
	byGPUs           map[uint32]*rotav1.ModelVariant
	declaredNS       int64
	waiting, running []uint64
}

// countModels counts one model, or all if none is named.
func countModels(st *state.State, only string) *modelCensus {
	c := &modelCensus{st: st, only: only, models: map[string]*modelCount{}}
	c.engines()
	st.Nodes(0, func(n *state.Node) bool {
		if n.GPUs.Class != 0 {
			c.node(n)
		}
		return true
	})
	c.queues()
	for _, m := range c.models {
		m.WaitingIncomplete = c.incomplete
	}
	return c
}

// of returns the count of a model; nil if it does not count.
func (c *modelCensus) of(model string) *modelCount {
	if model == "" || c.only != "" && model != c.only {
		return nil
	}
	m := c.models[model]
	if m == nil {
		m = &modelCount{byGPUs: map[uint32]*rotav1.ModelVariant{}}
		m.Name = model
		c.models[model] = m
	}
	return m
}

// on returns the count of a model on some GPUs.
func (m *modelCount) on(gpus uint32) *rotav1.ModelVariant {
	v := m.byGPUs[gpus]
	if v == nil {
		v = &rotav1.ModelVariant{Gpus: gpus}
		m.byGPUs[gpus] = v
	}
	return v
}

// engines counts the declarations. One that cannot be decoded has no driver: GetEngine says why.
func (c *modelCensus) engines() {
	c.st.Engines(func(e *state.Engine) bool {
		m := c.of(e.Model)
		if m == nil {
			return true
		}
		m.SetUpMeasured, m.SetUps = duration(e.SetUpNS), e.SetUps
		spec := new(rotav1.EngineSpec)
		if spec.UnmarshalVT(e.Spec) == nil {
			m.Driver = spec.Driver
		}
		return true
	})
}

// node counts what is resident on a node, what its engines do, and what runs there.
func (c *modelCensus) node(n *state.Node) {
	for _, at := range modelsAt(c.st, n) {
		m := c.of(at.name)
		if m == nil {
			continue
		}
		v := m.on(at.chunk.Units)
		if r := at.resident; r != nil {
			v.Chunks++
			v.MemoryBytes = max(v.MemoryBytes, r.Bytes)
		}
		if at.engine != nil {
			countEngine(v, at.engine.State)
		}
	}
	c.st.Attempts(n.ID, func(t *state.Attempt) bool {
		if a := c.st.Action(t.Action); t.Chunk.Units > 0 {
			if m := c.of(a.GPUs().Model); m != nil {
				m.on(t.Chunk.Units).Used++
				m.RunningActions++
				m.running = m.named(m.running, a)
			}
		}
		return true
	})
}

func countEngine(v *rotav1.ModelVariant, s state.EngineState) {
	switch s {
	case state.EngineReady:
		v.Ready++
	case state.EngineFallingAsleep, state.EngineAsleep:
		v.Asleep++
	case state.EngineFailed:
		v.Failed++
	default:
		v.Preparing++
	}
}

// named notes an action that names the model.
func (m *modelCount) named(ids []uint64, a *state.Action) []uint64 {
	m.declaredNS = max(m.declaredNS, a.GPUs().SetUpNS)
	if len(ids) < modelActionsMax {
		ids = append(ids, uint64(a.ID))
	}
	return ids
}

// queues counts the actions that wait for GPUs.
func (c *modelCensus) queues() {
	left := scanMax
	c.st.Pools(func(p *state.Pool) bool {
		c.st.GPUClasses(func(class *state.GPUClass) bool {
			q := state.QueueOfGPUs(p.ID, class.ID)
			for _, q := range []state.Queue{q, q.Aside()} {
				c.st.Queued(q, 0, func(id state.ActionID) bool {
					if left--; left < 0 {
						return false
					}
					a := c.st.Action(id)
					if m := c.of(a.GPUs().Model); m != nil {
						m.WaitingActions++
						m.waiting = m.named(m.waiting, a)
					}
					return true
				})
			}
			return left >= 0
		})
		return left >= 0
	})
	c.incomplete = left < 0
}

func (m *modelCount) message() *rotav1.Model {
	m.SetUpDeclared = duration(m.declaredNS)
	m.Variants = slices.SortedFunc(maps.Values(m.byGPUs), func(a, b *rotav1.ModelVariant) int { return cmp.Compare(a.Gpus, b.Gpus) })
	return &m.Model
}

// GivenGPUs is what an action was given: a chunk of a node, or nothing if Node is 0.
type GivenGPUs struct {
	Node    state.NodeID
	Chunk   state.Chunk
	Hit     bool
	Evicted []state.Resident
}

// SparedModel is a model that stays where it is, and why.
type SparedModel struct {
	Node   state.NodeID
	Model  state.Resident
	Reason string
}

// ExplainModel says what would become of an action that names a model if it came now.
func (s *Server) ExplainModel(ctx context.Context, req *rotav1.ExplainModelRequest) (*rotav1.ExplainModelResponse, error) {
	if err := checkExplainModel(req).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	began := time.Now()
	if !s.explains.allows(began) {
		busy := failed(connect.CodeResourceExhausted, "TOO_MANY_EXPLANATIONS", "this server explains as much as it may: ask again in a second, or another server")
		busy.retry = estimateBurst
		return nil, busy
	}
	defer func() { s.explains.spend(time.Since(began)) }()
	return s.explainModel(req)
}

// explainModel has the scheduler decide on a copy of the state.
func (s *Server) explainModel(req *rotav1.ExplainModelRequest) (*rotav1.ExplainModelResponse, error) {
	before := s.Machine.Fork()
	after, results, err := s.Machine.Foresee(before, &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
		Namespace: req.Namespace, Actions: []*logv1.Action{exampleAction(req)},
	}}})
	if err != nil {
		return nil, err
	}
	if r := results[0].Refusal; r != nil {
		return nil, refused(r)
	}
	a := after.Action(state.ActionID(results[0].FirstId))
	resp, given := &rotav1.ExplainModelResponse{Resident: residentRows(before, req.Model)}, GivenGPUs{}
	if t := after.Attempt(a.Node, a.ID); t != nil {
		given = givenGPUs(before, after, t)
		resp.Placement = placementMessage(before, t, given)
	} else {
		resp.WaitingFor = s.Explain(after, a, max(s.LogTime(), after.Meta().Now))
	}
	spared, more := s.ExplainSpared(before, a, given, sparedMax)
	resp.SparedMore = more
	for _, x := range spared {
		row := modelAt{name: x.Model.Model, chunk: x.Model.Chunk, resident: &x.Model}
		resp.Spared = append(resp.Spared, &rotav1.SparedModel{Row: row.row(before, before.Node(x.Node)), Reason: x.Reason})
	}
	return resp, nil
}

func checkExplainModel(req *rotav1.ExplainModelRequest) *violation {
	demand := &rotav1.GpuDemand{Gpus: gpusOr1(req.Gpus), MemoryBytes: req.MemoryBytes}
	return firstOf(requireModel("model", req.Model), checkGPUs(demand), checkText("gpu_class", req.GpuClass, nameBytesMax),
		checkText("class", req.Class, nameBytesMax), checkName("namespace", req.Namespace), checkName("pool", req.Pool))
}

func gpusOr1(gpus []uint32) []uint32 {
	if len(gpus) == 0 {
		return []uint32{1}
	}
	return gpus
}

// exampleAction is the action of which is asked what would become of it. It needs nothing but
// GPUs.
func exampleAction(req *rotav1.ExplainModelRequest) *logv1.Action {
	return &logv1.Action{
		AttemptsMax: 1, Class: req.Class, Pool: req.Pool,
		Needs: &logv1.Needs{Gpus: &logv1.Gpus{
			Class: req.GpuClass, Degrees: gpusOr1(req.Gpus), MemoryBytes: req.MemoryBytes, Model: req.Model,
		}},
	}
}

// givenGPUs finds out what an attempt was given: its chunk, and what left the memory of that.
func givenGPUs(before, after *state.State, t *state.Attempt) GivenGPUs {
	g := GivenGPUs{Node: t.Node, Chunk: t.Chunk}
	own := state.Resident{Model: after.Action(t.Action).GPUs().Model, Chunk: t.Chunk}
	left := after.ModelsOn(t.Node)
	for _, m := range before.ModelsOn(t.Node) {
		g.Hit = g.Hit || m.Same(&own)
		if !slices.ContainsFunc(left, func(o state.Resident) bool { return o.Same(&m) }) {
			g.Evicted = append(g.Evicted, m)
		}
	}
	return g
}

func placementMessage(st *state.State, t *state.Attempt, g GivenGPUs) *rotav1.ModelPlacement {
	n := st.Node(g.Node)
	m := &rotav1.ModelPlacement{Node: n.Name, Chunk: chunkMessage(g.Chunk), Hit: g.Hit, SetUp: duration(t.SetUpNS)}
	for _, x := range g.Evicted {
		row := modelAt{name: x.Model, chunk: x.Chunk, resident: &x}
		m.Evicted = append(m.Evicted, row.row(st, n))
	}
	return m
}
