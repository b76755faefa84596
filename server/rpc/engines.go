package rpc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// RegisterEngine declares how a model is served.
func (s *Server) RegisterEngine(ctx context.Context, req *rotav1.RegisterEngineRequest) (*rotav1.RegisterEngineResponse, error) {
	if err := checkEngine(req.Engine).in("engine").err(); err != nil {
		return nil, err
	}
	// Deterministic: the same declaration has the same bytes, which is how it is known again.
	spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(req.Engine)
	if err != nil {
		return nil, fmt.Errorf("encode the engine of model %q: %w", req.Engine.Model, err)
	}
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_RegisterEngine{
		RegisterEngine: &logv1.RegisterEngine{Model: req.Engine.Model, Spec: spec},
	}})
	if err != nil {
		return nil, err
	}
	resp := &rotav1.RegisterEngineResponse{Unchanged: result.Count == 0}
	if resp.Engine, err = s.engine(req.Engine.Model); err != nil { // removed since; it was declared all the same
		redactCommand(req.Engine.Command)
		resp.Engine = &rotav1.Engine{Spec: req.Engine}
	}
	return resp, nil
}

// GetEngine returns how a model is served, and where its engine is.
func (s *Server) GetEngine(ctx context.Context, req *rotav1.GetEngineRequest) (*rotav1.GetEngineResponse, error) {
	if err := requireModel("model", req.Model).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	e, err := s.engine(req.Model)
	return &rotav1.GetEngineResponse{Engine: e}, err
}

func (s *Server) engine(model string) (*rotav1.Engine, error) {
	st := s.Machine.Fork()
	e := st.Engine(model)
	if e == nil {
		return nil, notFound("ENGINE_NOT_FOUND", "model %q has no engine: ListEngines has those that are declared", model)
	}
	return engineMessage(e, instances(st, func(other string) bool { return other == model })[model])
}

// ListEngines returns all engines, by model.
func (s *Server) ListEngines(ctx context.Context, req *rotav1.ListEnginesRequest) (*rotav1.ListEnginesResponse, error) {
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	where := instances(st, func(model string) bool { return st.Engine(model) != nil })
	resp := &rotav1.ListEnginesResponse{}
	var err error
	st.Engines(func(e *state.Engine) bool {
		var m *rotav1.Engine
		if m, err = engineMessage(e, where[e.Model]); err == nil {
			resp.Engines = append(resp.Engines, m)
		}
		return err == nil
	})
	return resp, err
}

// RemoveEngine forgets how a model is served.
func (s *Server) RemoveEngine(ctx context.Context, req *rotav1.RemoveEngineRequest) (*rotav1.RemoveEngineResponse, error) {
	if err := requireModel("model", req.Model).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_RemoveEngine{RemoveEngine: &logv1.RemoveEngine{Model: req.Model}}})
	return &rotav1.RemoveEngineResponse{}, err
}

// ReportEngines commits what became of the engines on a node.
func (s *Server) ReportEngines(ctx context.Context, req *rotav1.ReportEnginesRequest) (*rotav1.ReportEnginesResponse, error) {
	if err := checkEngineReports(req).err(); err != nil {
		return nil, err
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return nil, err
	}
	c := &logv1.ReportEngines{Node: req.Name, Incarnation: req.Incarnation}
	for _, r := range req.Reports {
		c.Reports = append(c.Reports, engineReport(r))
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ReportEngines{ReportEngines: c}})
	return &rotav1.ReportEnginesResponse{}, err
}

// engineReport cuts a checked report to what may go into the log.
func engineReport(r *rotav1.EngineReport) *logv1.EngineReport {
	return &logv1.EngineReport{
		Model: r.Model, Generation: r.Generation, First: r.Chunk.First, Gpus: r.Chunk.Gpus,
		State: uint32(r.State), Message: sentence(r.Message, state.EngineMessageBytesMax),
		Starts: r.Starts, Wakes: r.Wakes, Sleeps: r.Sleeps, Failures: r.Failures,
		SetUpNs: int64(r.SetUp.AsDuration()), Gone: r.Gone,
	}
}

// instances returns where the engines of some models are, by model, and of each by the name of
// the node and the chunk.
func instances(st *state.State, of func(model string) bool) map[string][]*rotav1.EngineInstance {
	all := map[string][]*rotav1.EngineInstance{}
	wall := wallOf(st)
	st.AllNodeEngines(func(n *state.NodeEngines) bool {
		node := nodeName(st, n.Node)
		for i := range n.Instances {
			if e := &n.Instances[i]; of(e.Model) {
				all[e.Model] = append(all[e.Model], instanceMessage(e, node, wall))
			}
		}
		return true
	})
	for _, list := range all {
		slices.SortStableFunc(list, func(a, b *rotav1.EngineInstance) int { return strings.Compare(a.Node, b.Node) })
	}
	return all
}

func instanceMessage(e *state.EngineInstance, node string, wall wallClock) *rotav1.EngineInstance {
	return &rotav1.EngineInstance{
		Node: node, Model: e.Model, Chunk: &rotav1.GpuChunk{First: e.Chunk.First, Gpus: e.Chunk.Units},
		State: rotav1.EngineState(e.State), Message: e.Message, Generation: e.Generation,
		Starts: e.Starts, Wakes: e.Wakes, Sleeps: e.Sleeps, Failures: e.Failures, ChangeTime: wall.timestamp(e.ChangedAt),
	}
}

func engineMessage(e *state.Engine, where []*rotav1.EngineInstance) (*rotav1.Engine, error) {
	spec := new(rotav1.EngineSpec)
	if err := spec.UnmarshalVT(e.Spec); err != nil {
		return nil, fmt.Errorf("decode the engine of model %q: %w", e.Model, err)
	}
	redactCommand(spec.Command)
	return &rotav1.Engine{Spec: spec, Generation: e.Generation, SetUp: duration(e.SetUpNS), SetUps: e.SetUps, Instances: where}, nil
}
