package rpc

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// RegisterWorkerPool declares a pool of workers, or changes it.
func (s *Server) RegisterWorkerPool(ctx context.Context, req *rotav1.RegisterWorkerPoolRequest) (*rotav1.RegisterWorkerPoolResponse, error) {
	if err := checkWorkerPool(req.Spec).in("spec").err(); err != nil {
		return nil, err
	}
	spec, err := workerPoolCommand(req.Spec)
	if err != nil {
		return nil, err
	}
	c := &logv1.ChangeWorkerPool{Name: req.Spec.Name, Change: &logv1.ChangeWorkerPool_Declare{Declare: spec}}
	if err := s.changeWorkerPool(ctx, c); err != nil {
		return nil, err
	}
	p, err := s.workerPool(req.Spec.Name)
	if err != nil { // removed since; it was registered all the same
		p = &rotav1.WorkerPool{Spec: req.Spec}
	}
	return &rotav1.RegisterWorkerPoolResponse{Pool: p}, nil
}

func workerPoolCommand(spec *rotav1.WorkerPoolSpec) (*logv1.WorkerPoolSpec, error) {
	start := proto.CloneOf(spec.Start)
	start.Resources.Gpus.Gpus = []uint32{spec.Options[0].Degree} // each is started with its own
	if start.Name == "" {
		start.Name = "worker of pool " + spec.Name
		start.Name = start.Name[:min(len(start.Name), nameBytesMax)]
	}
	a, err := action(start)
	if err != nil {
		return nil, err
	}
	c := &logv1.WorkerPoolSpec{
		Policy: spec.Policy, Namespace: spec.Namespace, Start: a, Gpus: spec.Gpus, Dialect: uint32(spec.Dialect), Port: spec.Port,
		Hardware: spec.Hardware, SetUpNs: int64(spec.SetUp.AsDuration()), PayBackSteps: spec.PayBackSteps,
	}
	for _, o := range spec.Options {
		option := &logv1.WorkerPoolOption{Degree: o.Degree, Slots: o.Slots, Cost: o.Cost, Prefill_1KNs: int64(o.Profile.Prefill_1K.AsDuration())}
		for _, p := range o.Profile.Points {
			option.Profile = append(option.Profile, &logv1.WorkerProfilePoint{BatchSize: p.BatchSize, TokenNs: int64(p.TokenTime.AsDuration())})
		}
		c.Options = append(c.Options, option)
	}
	return c, nil
}

func (s *Server) changeWorkerPool(ctx context.Context, c *logv1.ChangeWorkerPool) error {
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_ChangeWorkerPool{ChangeWorkerPool: c}})
	return err
}

// RemoveWorkerPool has the workers of a pool leave.
func (s *Server) RemoveWorkerPool(ctx context.Context, req *rotav1.RemoveWorkerPoolRequest) (*rotav1.RemoveWorkerPoolResponse, error) {
	if err := requireText("name", req.Name, state.WorkerPoolNameBytesMax).err(); err != nil {
		return nil, err
	}
	return &rotav1.RemoveWorkerPoolResponse{}, s.changeWorkerPool(ctx, &logv1.ChangeWorkerPool{Name: req.Name, Change: &logv1.ChangeWorkerPool_Remove{Remove: true}})
}

// GetWorkerPool returns a pool of workers.
func (s *Server) GetWorkerPool(ctx context.Context, req *rotav1.GetWorkerPoolRequest) (*rotav1.GetWorkerPoolResponse, error) {
	if err := requireText("name", req.Name, state.WorkerPoolNameBytesMax).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	p, err := s.workerPool(req.Name)
	return &rotav1.GetWorkerPoolResponse{Pool: p}, err
}

// ListWorkerPools returns all pools of workers by name.
func (s *Server) ListWorkerPools(ctx context.Context, req *rotav1.ListWorkerPoolsRequest) (*rotav1.ListWorkerPoolsResponse, error) {
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st, resp := s.Machine.Fork(), &rotav1.ListWorkerPoolsResponse{}
	var err error
	st.WorkerPools(func(p *state.WorkerPool) bool {
		var m *rotav1.WorkerPool
		if m, err = workerPoolMessage(st, p); err == nil {
			resp.Pools = append(resp.Pools, m)
		}
		return err == nil
	})
	return resp, err
}

// PlanWorkerPool says which degrees the workers of a pool should have, and has them changed.
func (s *Server) PlanWorkerPool(ctx context.Context, req *rotav1.PlanWorkerPoolRequest) (*rotav1.PlanWorkerPoolResponse, error) {
	if err := requireText("name", req.Name, state.WorkerPoolNameBytesMax).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale && !req.Apply); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	p := st.WorkerPool(req.Name)
	if p == nil {
		return nil, noWorkerPool(req.Name)
	}
	advice, command, err := fsm.AdviseWorkerPool(st, p)
	if err != nil {
		return nil, failed(connect.CodeFailedPrecondition, "CANNOT_PLAN", "%v", err)
	}
	resp := &rotav1.PlanWorkerPoolResponse{Advice: &rotav1.WorkerPoolAdvice{
		Degrees: advice.Degrees, Trajectories: uint32(advice.Trajectories), ExpectedNow: duration(advice.NowNS), Expected: duration(advice.PlannedNS),
		Cost: duration(advice.CostNS), Worthwhile: advice.Worthwhile, Reason: advice.Reason,
	}}
	if !req.Apply || len(advice.Degrees) == 0 || slices.Equal(advice.Degrees, p.Degrees()) {
		return resp, nil
	}
	if _, err := s.change(ctx, command); err != nil {
		return nil, err
	}
	resp.Applied = true
	return resp, nil
}

func noWorkerPool(name string) error {
	return notFound("WORKER_POOL_NOT_FOUND", "there is no worker pool %q: ListWorkerPools has those that are registered", name)
}

func (s *Server) workerPool(name string) (m *rotav1.WorkerPool, err error) {
	st := s.Machine.Fork()
	if p := st.WorkerPool(name); p != nil {
		return workerPoolMessage(st, p)
	}
	return nil, noWorkerPool(name)
}

func workerPoolMessage(st *state.State, p *state.WorkerPool) (*rotav1.WorkerPool, error) {
	encoded := &logv1.Action{}
	if err := encoded.UnmarshalVT(p.Start); err != nil {
		return nil, fmt.Errorf("decode the action of worker pool %s: %w", p.Name, err)
	}
	start := &rotav1.ActionSpec{}
	if err := start.UnmarshalVT(encoded.Spec); err != nil {
		return nil, fmt.Errorf("decode the spec of worker pool %s: %w", p.Name, err)
	}
	redact(start)
	start.Resources.Gpus.Gpus = nil
	spec := &rotav1.WorkerPoolSpec{
		Name: p.Name, Policy: p.Policy, Namespace: p.Namespace, Start: start, Gpus: p.GPUs, Dialect: rotav1.WorkerDialect(p.Dialect),
		Port: p.Port, Hardware: p.Hardware, PayBackSteps: p.PayBack,
	}
	for _, o := range p.Options {
		option := &rotav1.WorkerPoolOption{Degree: o.Degree, Slots: o.Slots, Cost: o.Cost, Profile: &rotav1.WorkerProfile{Prefill_1K: duration(o.Prefill1kNS)}}
		for _, at := range o.Profile {
			option.Profile.Points = append(option.Profile.Points, &rotav1.WorkerProfilePoint{BatchSize: at.Batch, TokenTime: duration(at.TokenNS)})
		}
		spec.Options = append(spec.Options, option)
	}
	m := &rotav1.WorkerPool{
		Spec: spec, Revision: p.Revision, SetUp: duration(p.SetUpNS), SetUps: p.SetUps, Removed: p.Removed,
		PlanTime: wallOf(st).timestamp(p.Plan.At), PlanChanged: p.Plan.Changed, PlanTrajectories: p.Plan.Trajectories,
		PlanExpectedBefore: duration(p.Plan.NowNS), PlanExpected: duration(p.Plan.PlannedNS),
	}
	for i := range p.Members {
		m.Members = append(m.Members, memberMessage(st, p, &p.Members[i]))
	}
	return m, nil
}

func memberMessage(st *state.State, p *state.WorkerPool, x *state.WorkerPoolMember) *rotav1.WorkerPoolMember {
	m := &rotav1.WorkerPoolMember{Degree: x.Degree, State: rotav1.WorkerPoolMemberState_WORKER_POOL_MEMBER_STATE_PLANNED, ActionId: uint64(x.Action), Starts: x.Starts}
	if w := st.Worker(p.WorkerName(x.Action)); w != nil {
		m.Worker = w.Name
	}
	switch a := st.Action(x.Action); {
	case x.Leaving:
		m.State = rotav1.WorkerPoolMemberState_WORKER_POOL_MEMBER_STATE_LEAVING
	case a != nil && a.State == state.ActionQueued:
		m.State = rotav1.WorkerPoolMemberState_WORKER_POOL_MEMBER_STATE_QUEUED
	case a != nil && a.State == state.ActionRunning:
		m.State = rotav1.WorkerPoolMemberState_WORKER_POOL_MEMBER_STATE_RUNNING
	}
	return m
}

// checkWorkerPool checks what is declared of a pool.
func checkWorkerPool(p *rotav1.WorkerPoolSpec) *violation {
	if p == nil {
		return wrong("name", "is required")
	}
	if v := firstOf(
		requireText("name", p.Name, state.WorkerPoolNameBytesMax), requireText("policy", p.Policy, state.PolicyNameBytesMax),
		checkText("hardware", p.Hardware, state.WorkerNameBytesMax), checkName("namespace", p.Namespace), checkTimeout("set_up", p.SetUp, prefillMax),
		checkPoolStart(p).in("start"), checkCount("options", "degree", len(p.Options), state.WorkerPoolOptionsMax),
	); v != nil {
		return v
	}
	_, known := rotav1.WorkerDialect_name[int32(p.Dialect)]
	switch {
	case !known:
		return wrong("dialect", "is not a dialect: %d", p.Dialect)
	case hasUnknown(p):
		return wrong("", "has fields that this server does not know: leave them out, or upgrade the servers")
	case p.Port == 0 || p.Port > state.WorkerPoolPortMax:
		return wrong("port", "must be 1 to %d, is %d", state.WorkerPoolPortMax, p.Port)
	case len(p.Options) == 0:
		return wrong("options", "must have one at least: a degree, and what was measured with it")
	}
	last := uint32(0)
	for i, o := range p.Options {
		if d := o.GetDegree(); d <= last || d > state.WorkerPoolDegreeMax || d&(d-1) != 0 {
			return wrong("degree", "must be a power of two of at most %d, and above that of the option before, %d; is %d", state.WorkerPoolDegreeMax, last, d).in("options[%d]", i)
		}
		if o.Slots > state.WorkerSlotsMax {
			return wrong("slots", "must be at most %d, is %d", state.WorkerSlotsMax, o.Slots).in("options[%d]", i)
		}
		if v := checkWorkerProfile(o.Profile); v != nil {
			return v.in("options[%d].profile", i)
		}
		last = o.Degree
	}
	if p.Gpus < p.Options[0].Degree {
		return wrong("gpus", "must be as many as the lowest degree, %d, at least; is %d", p.Options[0].Degree, p.Gpus)
	}
	return nil
}

// checkPoolStart checks the action that is a worker.
func checkPoolStart(p *rotav1.WorkerPoolSpec) *violation {
	s := p.Start
	switch {
	case s == nil || s.Command == nil:
		return wrong("command", "is required: it starts the engine of a worker, and ends with it")
	case s.Resources.GetGpus() == nil:
		return wrong("resources.gpus", "is required: it says which class of GPUs workers use")
	case len(s.Resources.Gpus.Gpus) > 0:
		return wrong("resources.gpus.gpus", "must be empty: the options have the degrees")
	case s.TrajectoryId != 0:
		return wrong("trajectory_id", "must be absent: a worker is of no trajectory")
	case s.LossPolicy == rotav1.LossPolicy_LOSS_POLICY_RETRY:
		return wrong("loss_policy", "must not be RETRY: a worker that is lost is started again anyway")
	}
	whole := proto.CloneOf(s)
	whole.Resources.Gpus.Gpus = []uint32{1}
	return firstOf(checkSpec(whole), noGang(s))
}
