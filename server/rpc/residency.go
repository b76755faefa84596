package rpc

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// ListResidency returns a page of what is resident, and where.
func (s *Server) ListResidency(ctx context.Context, req *rotav1.ListResidencyRequest) (*rotav1.ListResidencyResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, 8, hashText(req.Node), hashText(req.Model), hashText(req.Namespace), hashText(req.Job))
	if err := firstOf(checkName("node", req.Node), checkText("model", req.Model, modelBytesMax),
		checkName("namespace", req.Namespace), checkName("job", req.Job), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	t := residencyTable{st: s.Machine.Fork(), node: req.Node, model: req.Model, namespace: orDefault(req.Namespace), job: req.Job}
	resp := &rotav1.ListResidencyResponse{}
	c := &collector{page: p}
	t.rows(p.after, func(at uint64, row func() *rotav1.Residency) bool {
		return c.visit(at, func() proto.Message {
			return appendRow(&resp.Rows, row())
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp, nil
}

// GetResidency returns one row of the table.
func (s *Server) GetResidency(ctx context.Context, req *rotav1.GetResidencyRequest) (*rotav1.GetResidencyResponse, error) {
	if err := checkResidency(req).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	t, where := residencyTable{st: s.Machine.Fork(), node: req.Node}, req.NodeGroup
	want := orDefault(req.Namespace) + "/" + req.WorkingSet
	if req.NodeGroup == "" {
		t.model, where, want = req.WorkingSet, req.Node, req.WorkingSet
	} else {
		t.namespace = orDefault(req.Namespace)
		t.job, _, _ = strings.Cut(req.WorkingSet, "/")
	}
	var found *rotav1.Residency
	t.rows(0, func(_ uint64, row func() *rotav1.Residency) bool {
		r := row()
		chunk := r.GetChunk().GetChunk()
		if r.WorkingSet == want && r.GetGroup().GetNodeGroup() == req.NodeGroup &&
			chunk.GetFirst() == req.Chunk.GetFirst() && chunk.GetGpus() == req.Chunk.GetGpus() {
			found = r
		}
		return found == nil
	})
	if found == nil {
		return nil, notFound("RESIDENCY_NOT_FOUND", "%q is not on %q, or not on these GPUs: ListResidency says where it is", req.WorkingSet, where)
	}
	return &rotav1.GetResidencyResponse{Row: found}, nil
}

// checkResidency says what is wrong with the name of a row.
func checkResidency(req *rotav1.GetResidencyRequest) *violation {
	if v := requireModel("working_set", req.WorkingSet); v != nil {
		return v
	}
	switch {
	case req.NodeGroup == "" && (req.Node == "" || req.Chunk == nil):
		return wrong("node", "is required together with chunk, or else node_group")
	case req.NodeGroup != "" && (req.Node != "" || req.Chunk != nil):
		return wrong("node_group", "is for deployments; leave out node and chunk, or else this")
	}
	return firstOf(checkName("node", req.Node), checkName("node_group", req.NodeGroup), checkName("namespace", req.Namespace))
}

// residencyTable reads the table of working sets from a state. Empty filters let everything
// pass.
type residencyTable struct {
	st             *state.State
	node, model    string
	namespace, job string
}

// A row's place in the table is a number: which half it is in, its node or node group, and its
// place there.
const (
	rowBits   = 16
	groupHalf = uint64(1) << 63
)

// rows visits the rows after a place, in the order of the table.
func (t *residencyTable) rows(after uint64, visit func(at uint64, row func() *rotav1.Residency) bool) {
	on := true
	next := func(at uint64, row func() *rotav1.Residency) bool {
		on = on && (at <= after || visit(at, row))
		return on
	}
	if t.job == "" && after < groupHalf {
		t.models(state.NodeID(after>>rowBits), next)
	}
	if on && t.model == "" {
		t.deployments(next)
	}
}

// models visits the rows of models, by node, chunk and name.
func (t *residencyTable) models(from state.NodeID, next func(at uint64, row func() *rotav1.Residency) bool) {
	t.st.Nodes(max(from, 1)-1, func(n *state.Node) bool {
		if t.node != "" && n.Name != t.node {
			return true
		}
		for i, m := range modelsAt(t.st, n) {
			if t.model != "" && m.name != t.model {
				continue
			}
			if !next(uint64(n.ID)<<rowBits|uint64(i+1), func() *rotav1.Residency { return m.row(t.st, n) }) {
				return false
			}
		}
		return true
	})
}

// modelAt is a model on a chunk: one that is to be there, what a node has said of its engine, or
// both.
type modelAt struct {
	name     string
	chunk    state.Chunk
	resident *state.Resident
	engine   *state.EngineInstance
}

// modelsAt returns the models on a node, by chunk and name.
func modelsAt(st *state.State, n *state.Node) (all []modelAt) {
	residents, engines := st.ModelsOn(n.ID), st.EnginesOn(n.ID)
	for i := range residents {
		all = append(all, modelAt{name: residents[i].Model, chunk: residents[i].Chunk, resident: &residents[i]})
	}
	for i := range engines {
		e := &engines[i]
		at := slices.IndexFunc(all, func(m modelAt) bool { return m.name == e.Model && m.chunk == e.Chunk })
		if at < 0 {
			at = len(all)
			all = append(all, modelAt{name: e.Model, chunk: e.Chunk})
		}
		all[at].engine = e
	}
	slices.SortFunc(all, func(a, b modelAt) int {
		return cmp.Or(cmp.Compare(a.chunk.First, b.chunk.First), cmp.Compare(a.chunk.Units, b.chunk.Units), strings.Compare(a.name, b.name))
	})
	return all
}

func (m *modelAt) row(st *state.State, n *state.Node) *rotav1.Residency {
	wall := wallOf(st)
	c := &rotav1.ChunkResidency{Node: n.Name, Chunk: chunkMessage(m.chunk), EngineDeclared: st.Engine(m.name) != nil}
	if r := m.resident; r != nil {
		c.Desired, c.MemoryBytes, c.LastUseTime = true, r.Bytes, wall.timestamp(r.UsedAt)
		if c.Uses = r.Uses; r.Uses > 0 {
			c.EvictionCost, c.ClassAge = worthMessage(r.Worth), worthMessage(st.GPUClass(n.GPUs.Class).Age)
		}
	}
	if e := m.engine; e != nil {
		c.Observed, c.Message, c.ObservedTime = rotav1.EngineState(e.State), e.Message, wall.timestamp(e.ChangedAt)
	}
	row := &rotav1.Residency{WorkingSet: m.name, Place: &rotav1.Residency_Chunk{Chunk: c}}
	if m.resident != nil {
		row.Pins = pinsOn(st, n, m.resident)
	}
	return row
}

func chunkMessage(c state.Chunk) *rotav1.GpuChunk {
	return &rotav1.GpuChunk{First: c.First, Gpus: c.Units}
}

// worthMessage is what an eviction costs; a worth is in microseconds.
func worthMessage(worth uint64) *durationpb.Duration {
	const most = uint64(1<<63-1) / uint64(time.Microsecond)
	return durationpb.New(time.Duration(min(worth, most)) * time.Microsecond)
}

// pinsOn returns what has GPUs of a resident's chunk.
func pinsOn(st *state.State, n *state.Node, m *state.Resident) (pins []*rotav1.ResidencyPin) {
	set := m.Chunk.GPUs()
	if set&^n.GPUs.Free == 0 {
		return nil
	}
	st.Attempts(n.ID, func(t *state.Attempt) bool {
		if t.Chunk.GPUs()&set != 0 {
			uses := t.Chunk == m.Chunk && st.Action(t.Action).GPUs().Model == m.Model
			pins = append(pins, &rotav1.ResidencyPin{Holder: &rotav1.ResidencyPin_ActionId{ActionId: uint64(t.Action)}, Uses: uses})
		}
		return true
	})
	if n.Withheld&set != 0 {
		st.MembersOn(n, func(g *state.NodeGroup, member *state.Member, own state.GPUSet) {
			if member.Withheld && own&set != 0 {
				pins = append(pins, turnPin(st, g))
			}
		})
	}
	return pins
}

// turnPin is the turn that has a group, or hooks that run there.
func turnPin(st *state.State, g *state.NodeGroup) *rotav1.ResidencyPin {
	pin := &rotav1.ResidencyPin{Holder: &rotav1.ResidencyPin_TurnId{TurnId: uint64(g.Turn)}, NodeGroup: g.Name}
	switch t := st.Turn(g.Turn); {
	case t != nil:
		pin.Deployment = deploymentPath(st, t.Deployment)
	case g.ContextSwitch != nil:
		pin.Deployment = deploymentPath(st, g.ContextSwitch.To)
	}
	return pin
}

// deployments visits the rows of deployments, by node group, job and deployment.
func (t *residencyTable) deployments(next func(at uint64, row func() *rotav1.Residency) bool) {
	t.st.NodeGroups(func(g *state.NodeGroup) bool {
		if t.node != "" && !slices.ContainsFunc(g.Members.List, func(m state.Member) bool { return m.Node == t.node }) {
			return true
		}
		on := true
		for i, id := range deploymentsOf(t.st, g) {
			j, _ := t.st.Deployment(id)
			if t.job != "" && (j.Name != t.job || namespaceName(t.st, j.Namespace) != t.namespace) {
				continue
			}
			if on = next(groupHalf|uint64(g.ID)<<rowBits|uint64(i+1), func() *rotav1.Residency { return deploymentRow(t.st, g, id) }); !on {
				break
			}
		}
		return on
	})
}

// deploymentsOf returns the deployments of the jobs on a group, and those that were left there by
// jobs that are not on it any more.
func deploymentsOf(st *state.State, g *state.NodeGroup) (all []state.DeploymentID) {
	st.GroupJobs(g.ID, func(j *state.Job) bool {
		for i := range j.Deployments {
			all = append(all, j.Deployment(i))
		}
		return true
	})
	for _, id := range []state.DeploymentID{g.Resident, g.Awake} {
		if _, d := st.Deployment(id); d != nil && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}

func deploymentRow(st *state.State, g *state.NodeGroup, id state.DeploymentID) *rotav1.Residency {
	j, d := st.Deployment(id)
	m := &rotav1.GroupResidency{
		NodeGroup: g.Name, Resident: g.Resident == id, Awake: g.Awake == id, SetUp: duration(cmp.Or(d.SetUpNS, j.SetUpNS)),
	}
	if s := g.ContextSwitch; s != nil && s.To == id {
		m.Switching, m.SwitchingSince = true, wallOf(st).timestamp(s.Began)
	}
	for i := range g.Members.List {
		x := &g.Members.List[i]
		m.Members = append(m.Members, &rotav1.GroupMember{Node: x.Node, FirstGpu: x.First, Gpus: x.Units, Lost: lossText(st, x)})
	}
	row := &rotav1.Residency{WorkingSet: deploymentPath(st, id), Place: &rotav1.Residency_Group{Group: m}}
	if t := st.Turn(g.Turn); t != nil {
		pin := turnPin(st, g)
		pin.Uses = t.Deployment == id
		row.Pins = append(row.Pins, pin)
	}
	return row
}
