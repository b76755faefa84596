package rpc

import (
	"context"
	"encoding/base64"

	"github.com/cespare/xxhash/v2"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// RegisterWorker declares a worker, or changes it.
func (s *Server) RegisterWorker(ctx context.Context, req *rotav1.RegisterWorkerRequest) (*rotav1.RegisterWorkerResponse, error) {
	if err := checkWorker(req.Spec).in("spec").err(); err != nil {
		return nil, err
	}
	spec := req.Spec
	c := &logv1.RegisterWorker{
		Name: spec.Name, Policy: spec.Policy, Url: spec.Url, Dialect: uint32(spec.Dialect), Node: spec.Node, Degree: spec.Degree,
		Hardware: spec.Hardware, Cost: spec.Cost, Slots: spec.Slots, Prefill_1KNs: int64(spec.Profile.Prefill_1K.AsDuration()), Version: spec.Version,
	}
	for _, p := range spec.Profile.Points {
		c.Profile = append(c.Profile, &logv1.WorkerProfilePoint{BatchSize: p.BatchSize, TokenNs: int64(p.TokenTime.AsDuration())})
	}
	if _, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_RegisterWorker{RegisterWorker: c}}); err != nil {
		return nil, err
	}
	w, err := s.worker(spec.Name)
	if err != nil { // removed since; it was registered all the same
		w = &rotav1.Worker{Spec: spec}
	}
	return &rotav1.RegisterWorkerResponse{Worker: w}, nil
}

// UpdateWorker changes how a worker is used.
func (s *Server) UpdateWorker(ctx context.Context, req *rotav1.UpdateWorkerRequest) (*rotav1.UpdateWorkerResponse, error) {
	if err := requireText("name", req.Name, state.WorkerNameBytesMax).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_UpdateWorker{UpdateWorker: &logv1.UpdateWorker{
		Name: req.Name, Draining: req.Draining, Version: req.Version, Up: req.Up,
	}}})
	if err != nil {
		return nil, err
	}
	w, err := s.worker(req.Name)
	if err != nil { // removed since
		w = &rotav1.Worker{Spec: &rotav1.WorkerSpec{Name: req.Name}}
	}
	return &rotav1.UpdateWorkerResponse{Worker: w}, nil
}

// RemoveWorker forgets a worker.
func (s *Server) RemoveWorker(ctx context.Context, req *rotav1.RemoveWorkerRequest) (*rotav1.RemoveWorkerResponse, error) {
	if err := requireText("name", req.Name, state.WorkerNameBytesMax).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_RemoveWorker{RemoveWorker: &logv1.RemoveWorker{Name: req.Name}}})
	return &rotav1.RemoveWorkerResponse{}, err
}

// GetWorker returns a worker.
func (s *Server) GetWorker(ctx context.Context, req *rotav1.GetWorkerRequest) (*rotav1.GetWorkerResponse, error) {
	if err := requireText("name", req.Name, state.WorkerNameBytesMax).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	w, err := s.worker(req.Name)
	return &rotav1.GetWorkerResponse{Worker: w}, err
}

func (s *Server) worker(name string) (m *rotav1.Worker, err error) {
	s.Machine.View(func(st *state.State) {
		if w := st.Worker(name); w != nil {
			m = workerMessage(st, w)
		} else {
			err = notFound("WORKER_NOT_FOUND", "there is no worker %q: ListWorkers has those that are registered", name)
		}
	})
	return m, err
}

// ListWorkers returns a page of workers by name. A page token is the last name of a page.
func (s *Server) ListWorkers(ctx context.Context, req *rotav1.ListWorkersRequest) (*rotav1.ListWorkersResponse, error) {
	after, err := base64.RawURLEncoding.Strict().DecodeString(req.PageToken)
	p, v := newPage(req.PageSize, "")
	if err != nil || len(after) > state.WorkerNameBytesMax {
		v = wrong("page_token", "is not one that a list has returned")
	}
	if err := firstOf(checkText("policy", req.Policy, state.PolicyNameBytesMax), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st, resp := s.Machine.Fork(), &rotav1.ListWorkersResponse{}
	st.Workers(string(after), func(w *state.Worker) bool {
		if len(resp.Workers) == p.size {
			last := resp.Workers[p.size-1].Spec.Name
			resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(last))
			return false
		}
		if req.Policy == "" || w.Policy == req.Policy {
			resp.Workers = append(resp.Workers, workerMessage(st, w))
		}
		return true
	})
	return resp, nil
}

// SuspendGeneration has gateways hold the requests of a trajectory.
func (s *Server) SuspendGeneration(ctx context.Context, req *rotav1.SuspendGenerationRequest) (*rotav1.SuspendGenerationResponse, error) {
	return &rotav1.SuspendGenerationResponse{}, s.suspend(ctx, req.Id, false)
}

// ResumeGeneration lets the requests of a trajectory go on.
func (s *Server) ResumeGeneration(ctx context.Context, req *rotav1.ResumeGenerationRequest) (*rotav1.ResumeGenerationResponse, error) {
	return &rotav1.ResumeGenerationResponse{}, s.suspend(ctx, req.Id, true)
}

func (s *Server) suspend(ctx context.Context, id uint64, resume bool) error {
	if err := requireID("id", id).err(); err != nil {
		return err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_SuspendTrajectory{
		SuspendTrajectory: &logv1.SuspendTrajectory{Id: id, Resume: resume},
	}})
	return err
}

// ReportGenerations commits what trajectories generated, and which workers failed.
func (s *Server) ReportGenerations(ctx context.Context, req *rotav1.ReportGenerationsRequest) (*rotav1.ReportGenerationsResponse, error) {
	if err := checkGenerationReports(req).err(); err != nil {
		return nil, err
	}
	c := &logv1.ReportGenerations{}
	for _, r := range req.Generations {
		c.Generations = append(c.Generations, &logv1.GenerationReport{
			TrajectoryId: r.TrajectoryId, Worker: r.Worker, Turns: r.Turns, OutputTokens: r.OutputTokens, ContextTokens: r.ContextTokens,
			GenerateNs: int64(r.GenerateTime.AsDuration()), ToolNs: int64(r.ToolTime.AsDuration()), FinishReason: r.FinishReason, Generating: r.Generating,
		})
	}
	for _, r := range req.Workers {
		c.Workers = append(c.Workers, &logv1.WorkerReport{Worker: r.Worker, Failed: r.Failed, Message: sentence(r.Message, state.WorkerMessageBytesMax)})
	}
	c.Request = request(req.RequestId, req.ExpireTime, func(d *xxhash.Digest) { digestReport(d, c) })
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ReportGenerations{ReportGenerations: c}})
	return &rotav1.ReportGenerationsResponse{}, err
}

func digestReport(d *xxhash.Digest, c *logv1.ReportGenerations) {
	for _, r := range c.Generations {
		for _, n := range []uint64{r.TrajectoryId, uint64(r.Turns), r.OutputTokens, r.ContextTokens, uint64(r.GenerateNs), uint64(r.ToolNs), digit(r.Generating)} {
			digestNumber(d, n)
		}
		digestText(d, r.Worker)
		digestText(d, r.FinishReason)
	}
	for _, r := range c.Workers {
		digestText(d, r.Worker)
		digestText(d, r.Message)
		digestNumber(d, digit(r.Failed))
	}
}

func workerMessage(st *state.State, w *state.Worker) *rotav1.Worker {
	load := st.WorkerLoad(w.Name)
	profile := &rotav1.WorkerProfile{Prefill_1K: duration(w.Prefill1kNS)}
	for _, p := range w.Profile {
		profile.Points = append(profile.Points, &rotav1.WorkerProfilePoint{BatchSize: p.Batch, TokenTime: duration(p.TokenNS)})
	}
	return &rotav1.Worker{
		Spec: &rotav1.WorkerSpec{
			Name: w.Name, Policy: w.Policy, Url: w.URL, Dialect: rotav1.WorkerDialect(w.Dialect), Node: w.Node, Degree: w.Degree,
			Hardware: w.Hardware, Cost: w.Cost, Slots: w.Slots, Profile: profile, Version: w.Version,
		},
		State: rotav1.WorkerState(st.WorkerState(w)), Message: w.Message,
		Trajectories: load.Trajectories, Generating: load.Generating, PredictedTokens: load.Predicted,
		PredictedPromptTokens: load.Prefill,
		OutputTokens:          w.OutputTokens, RegisterTime: wallOf(st).timestamp(w.RegisteredAt), Pool: w.Pool,
	}
}

// generationMessage is nil for a trajectory that was opened without a policy.
func generationMessage(st *state.State, id state.TrajectoryID) *rotav1.Generation {
	g := st.Generation(id)
	if g == nil {
		return nil
	}
	m := &rotav1.Generation{
		Spec: &rotav1.GenerationSpec{
			Policy: g.Policy, TaskClass: g.TaskClass, PromptTokens: uint32(g.Trace.PromptTokens), Hardware: g.Hardware,
		},
		State: rotav1.GenerationState_GENERATION_STATE_IDLE, Worker: g.Worker, Priority: g.Priority,
		PredictedTokens: g.Predicted, FirstPredictedTokens: g.FirstPredicted,
		Turns: g.Trace.Turns, ContextTokens: g.Trace.ContextTokens, OutputTokens: g.Trace.OutputTokens,
		GenerateTime: duration(g.GenerateNS), ToolTime: duration(g.ToolNS), Moves: g.Moves, Reason: fsm.ExplainGeneration(st, g),
		Prediction: predictionMessage(g),
	}
	switch {
	case g.Suspended:
		m.State = rotav1.GenerationState_GENERATION_STATE_SUSPENDED
	case g.Generating:
		m.State = rotav1.GenerationState_GENERATION_STATE_GENERATING
	}
	return m
}

// predictionMessage says whose prediction counts for a trajectory.
func predictionMessage(g *state.Generation) *rotav1.GenerationPrediction {
	if !g.Service.Said {
		return &rotav1.GenerationPrediction{By: rotav1.Predictor_PREDICTOR_OWN}
	}
	return &rotav1.GenerationPrediction{
		By: rotav1.Predictor_PREDICTOR_SERVICE, TokensP50: g.Service.P50, TokensP90: g.Service.P90, Turns: g.Service.Turns, OwnTokens: g.Service.Own,
	}
}

func generationCommand(g *rotav1.GenerationSpec) *logv1.GenerationSpec {
	if g == nil {
		return nil
	}
	return &logv1.GenerationSpec{Policy: g.Policy, TaskClass: g.TaskClass, PromptTokens: g.PromptTokens, Hardware: g.Hardware}
}

func digestGeneration(d *xxhash.Digest, g *rotav1.GenerationSpec) {
	if g == nil {
		return
	}
	digestText(d, g.Policy)
	digestText(d, g.TaskClass)
	digestNumber(d, uint64(g.PromptTokens))
	for _, h := range g.Hardware {
		digestText(d, h)
	}
}
