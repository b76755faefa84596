package rpc

import (
	"context"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// AdviseRatio says which part of the GPUs of a policy should train.
func (s *Server) AdviseRatio(ctx context.Context, req *rotav1.AdviseRatioRequest) (*rotav1.AdviseRatioResponse, error) {
	if err := requireText("policy", req.Policy, state.PolicyNameBytesMax).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	p := st.Policy(req.Policy)
	if p == nil {
		return nil, notFound("POLICY_NOT_FOUND", "policy %q does not exist: ListPolicies has those that do", req.Policy)
	}
	a, err := fsm.AdviseRatio(st, p, req.TrainGpus)
	if err != nil {
		return nil, failed(connect.CodeFailedPrecondition, "CANNOT_ADVISE", "%v", err)
	}
	return &rotav1.AdviseRatioResponse{
		Now:         &rotav1.GPUSplit{TrainGpus: a.Now.Train, RolloutGpus: a.Now.Rollout, Step: duration(a.Now.StepNS)},
		Best:        &rotav1.GPUSplit{TrainGpus: a.Best.Train, RolloutGpus: a.Best.Rollout, Step: duration(a.Best.StepNS)},
		WaitPercent: a.Idle, Steps: p.Steps, Reason: a.Reason,
	}, nil
}
