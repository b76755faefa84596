package rpc

import (
	"context"
	"errors"
	"math"
	"time"

	"connectrpc.com/connect"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/rights"
	"rota/fsm"
	"rota/fsm/state"
)

// reviewWait is how long a batch is put off while samples are compared with a new version, unless
// there is news before.
const reviewWait = 20 * time.Millisecond

// PutSample puts the sample of a trajectory into the buffer.
func (s *Server) PutSample(ctx context.Context, req *rotav1.PutSampleRequest) (*rotav1.PutSampleResponse, error) {
	if err := checkSample(req).err(); err != nil {
		return nil, err
	}
	result, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_PutSample{PutSample: &logv1.PutSample{
		TrajectoryId: req.TrajectoryId, Reward: math.Float64bits(req.Reward), Tokens: req.Tokens, Reference: req.Reference, KeepOpen: req.KeepOpen,
	}}})
	if err != nil {
		return nil, err
	}
	return &rotav1.PutSampleResponse{Accepted: result.Count > 0, State: rotav1.RolloutMemberState(result.FirstId)}, nil
}

// GetBatch gives complete groups to a step of training. It waits until there are enough, and
// commits nothing before.
func (s *Server) GetBatch(ctx context.Context, req *rotav1.GetBatchRequest) (*rotav1.GetBatchResponse, error) {
	if err := checkGetBatch(req).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, false); err != nil {
		return nil, err
	}
	over := time.NewTimer(req.Wait.AsDuration())
	defer over.Stop()
	recheck := time.NewTicker(recheckPeriod) // of the rights, which may be lost meanwhile
	defer recheck.Stop()
	for {
		changed := s.Events.policies.wait()
		resp, err := s.tryBatch(ctx, req)
		var f *failure
		if !errors.As(err, &f) || f.reason != "GROUPS_MISSING" && f.reason != "REVIEW_PENDING" || req.Wait.AsDuration() == 0 {
			return resp, err
		}
		select {
		case <-changed:
		case <-reviewOver(f):
		case <-recheck.C:
		case <-over.C:
			return nil, err
		case <-s.draining.Done():
			return nil, errDraining
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// reviewOver is when to try again if samples were being compared; else never.
func reviewOver(f *failure) <-chan time.Time {
	if f.reason == "REVIEW_PENDING" {
		return time.After(reviewWait)
	}
	return nil
}

// tryBatch takes the batch of a step if it can be taken, as far as this server knows.
func (s *Server) tryBatch(ctx context.Context, req *rotav1.GetBatchRequest) (*rotav1.GetBatchResponse, error) {
	owner, err := s.policyOwner(ctx, rights.Submit, req.Policy, "")
	if err != nil {
		return nil, err
	}
	var missing *logv1.Result
	s.Machine.View(func(st *state.State) { missing = fsm.GroupsMissing(st, req.Policy, req.Step, req.Groups) })
	if missing != nil {
		return nil, refused(missing.Refusal)
	}
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_TakeBatch{TakeBatch: &logv1.TakeBatch{Policy: req.Policy, Step: req.Step, Groups: req.Groups, PolicyOwner: owner}}})
	if err != nil {
		return nil, err
	}
	samples, ok := s.batch(req.Policy, req.Step)
	if !ok {
		return nil, failed(connect.CodeFailedPrecondition, "STEP_WRONG", "step %d of policy %q was given its batch, and a later step ended it meanwhile: two trainers take batches of the same policy", req.Step, req.Policy)
	}
	return &rotav1.GetBatchResponse{Step: req.Step, Samples: samples, Replayed: result.Replayed}, nil
}

// batch returns what a step was given, if it is the last one.
func (s *Server) batch(policy string, step uint64) (samples []*rotav1.Sample, ok bool) {
	var rows []*state.Sample // they never change
	s.Machine.View(func(st *state.State) {
		b := st.Batch(policy)
		if ok = b != nil && b.Step == step; !ok {
			return
		}
		for _, id := range b.Samples {
			rows = append(rows, st.Sample(id))
		}
	})
	for _, r := range rows {
		samples = append(samples, &rotav1.Sample{
			TrajectoryId: uint64(r.Trajectory), RolloutId: uint64(r.Group.Rollout()), Group: r.Group.Index(), Version: r.Version,
			Reward: math.Float64frombits(r.Reward), Tokens: r.Tokens, Reference: r.Reference,
		})
	}
	return samples, ok
}
