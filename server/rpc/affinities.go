package rpc

import (
	"context"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// SetAffinity says which hardware the trajectories of a task class go to.
func (s *Server) SetAffinity(ctx context.Context, req *rotav1.SetAffinityRequest) (*rotav1.SetAffinityResponse, error) {
	a := req.Affinity
	switch {
	case a == nil:
		return nil, wrong("affinity", "is required").err()
	case hasUnknown(a):
		return nil, wrong("affinity", "has fields that this server does not know: leave them out, or upgrade the servers").err()
	}
	if err := checkAffinity(a).err(); err != nil {
		return nil, err
	}
	row := &state.Affinity{Policy: a.Policy, TaskClass: a.TaskClass, Hardware: a.Hardware, CostPercent: a.CostPercent, SpillPercent: a.SpillPercent}
	if err := row.Validate(); err != nil {
		return nil, wrong("affinity", "cannot be: %v", err).err()
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_SetAffinity{SetAffinity: &logv1.SetAffinity{
		Policy: a.Policy, TaskClass: a.TaskClass, Hardware: a.Hardware, CostPercent: a.CostPercent, SpillPercent: a.SpillPercent,
	}}})
	return &rotav1.SetAffinityResponse{}, err
}

// checkAffinity checks the texts of an affinity.
func checkAffinity(a *rotav1.Affinity) *violation {
	if v := firstOf(requireText("affinity.policy", a.Policy, state.PolicyNameBytesMax), checkText("affinity.task_class", a.TaskClass, nameBytesMax)); v != nil {
		return v
	}
	for _, h := range a.Hardware {
		if v := checkText("affinity.hardware", h, state.WorkerNameBytesMax); v != nil {
			return v
		}
	}
	return nil
}

// RemoveAffinity forgets what was said of a task class.
func (s *Server) RemoveAffinity(ctx context.Context, req *rotav1.RemoveAffinityRequest) (*rotav1.RemoveAffinityResponse, error) {
	if err := firstOf(requireText("policy", req.Policy, state.PolicyNameBytesMax), checkText("task_class", req.TaskClass, nameBytesMax)).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_SetAffinity{SetAffinity: &logv1.SetAffinity{Policy: req.Policy, TaskClass: req.TaskClass, Remove: true}}})
	return &rotav1.RemoveAffinityResponse{}, err
}

// ListAffinities returns the task classes of which something was said, and then the others of which
// something was measured.
func (s *Server) ListAffinities(ctx context.Context, req *rotav1.ListAffinitiesRequest) (*rotav1.ListAffinitiesResponse, error) {
	if err := checkText("policy", req.Policy, state.PolicyNameBytesMax).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st, resp := s.Machine.Fork(), &rotav1.ListAffinitiesResponse{}
	st.Affinities(func(r *state.Affinity) bool {
		if req.Policy == "" || r.Policy == req.Policy {
			m := &rotav1.AffinityStatus{Set: true, Affinity: &rotav1.Affinity{
				Policy: r.Policy, TaskClass: r.TaskClass, Hardware: r.Hardware, CostPercent: r.CostPercent, SpillPercent: r.SpillPercent,
			}}
			if c := st.LengthClass(r.Policy, r.TaskClass); c != nil {
				m.OutputTokens, m.ResultTokens = c.OutputTokens, c.ResultTokens
			}
			resp.Affinities = append(resp.Affinities, m)
		}
		return true
	})
	st.LengthClasses(func(c *state.LengthClass) bool {
		if (req.Policy == "" || c.Policy == req.Policy) && st.Affinity(c.Policy, c.Name) == nil {
			resp.Affinities = append(resp.Affinities, &rotav1.AffinityStatus{
				Affinity: &rotav1.Affinity{Policy: c.Policy, TaskClass: c.Name}, OutputTokens: c.OutputTokens, ResultTokens: c.ResultTokens,
			})
		}
		return true
	})
	return resp, nil
}
