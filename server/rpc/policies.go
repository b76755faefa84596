package rpc

import (
	"cmp"
	"context"
	"encoding/base64"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/rights"
	"rota/fsm/state"
)

// SuspendPolicy holds the requests of a policy at the gateways.
func (s *Server) SuspendPolicy(ctx context.Context, req *rotav1.SuspendPolicyRequest) (*rotav1.SuspendPolicyResponse, error) {
	return &rotav1.SuspendPolicyResponse{}, s.setSuspended(ctx, req.Policy, true)
}

// ResumePolicy lets them go on.
func (s *Server) ResumePolicy(ctx context.Context, req *rotav1.ResumePolicyRequest) (*rotav1.ResumePolicyResponse, error) {
	return &rotav1.ResumePolicyResponse{}, s.setSuspended(ctx, req.Policy, false)
}

func (s *Server) setSuspended(ctx context.Context, policy string, suspended bool) error {
	if err := requirePolicy("policy", policy).err(); err != nil {
		return err
	}
	owner, err := s.policyOwner(ctx, rights.Submit, policy, "")
	if err != nil {
		return err
	}
	_, err = s.change(ctx, &logv1.Command{Verb: &logv1.Command_SuspendPolicy{SuspendPolicy: &logv1.SuspendPolicy{Policy: policy, Resume: !suspended, PolicyOwner: owner}}})
	return err
}

// DeletePolicy forgets a policy that nothing names.
func (s *Server) DeletePolicy(ctx context.Context, req *rotav1.DeletePolicyRequest) (*rotav1.DeletePolicyResponse, error) {
	if err := requirePolicy("policy", req.Policy).err(); err != nil {
		return nil, err
	}
	owner, err := s.policyOwner(ctx, rights.Operate, req.Policy, "")
	if err != nil {
		return nil, err
	}
	_, err = s.change(ctx, &logv1.Command{Verb: &logv1.Command_DeletePolicy{DeletePolicy: &logv1.DeletePolicy{Policy: req.Policy, PolicyOwner: owner}}})
	return &rotav1.DeletePolicyResponse{}, err
}

// PublishVersion makes a version the current one.
func (s *Server) PublishVersion(ctx context.Context, req *rotav1.PublishVersionRequest) (*rotav1.PublishVersionResponse, error) {
	if err := firstOf(requirePolicy("policy", req.Policy), requireID("version", req.Version), checkName("namespace", req.Namespace)).err(); err != nil {
		return nil, err
	}
	owner, err := s.policyOwner(ctx, rights.Submit, req.Policy, req.Namespace)
	if err != nil {
		return nil, err
	}
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_PublishVersion{PublishVersion: &logv1.PublishVersion{Policy: req.Policy, Version: req.Version, Namespace: req.Namespace, PolicyOwner: owner}}})
	if err != nil {
		return nil, err
	}
	p, err := s.policy(req.Policy)
	return &rotav1.PublishVersionResponse{Policy: p, ClosedTrajectories: result.Count}, err
}

// policyOwner is the namespace to which a policy must belong when the command of a call is carried
// out: where the caller has the right to it. Empty: in all. Names of policies are used again, so what
// was right when the call was authorized may be another policy then. fresh is the namespace that the
// policy is to have if it has none.
func (s *Server) policyOwner(ctx context.Context, verb, policy, fresh string) (string, error) {
	c := callerOf(ctx)
	if c == nil {
		return "", nil
	}
	now := *c // the call may have waited for long
	if f := s.resolve(&now); f != nil {
		return "", f
	}
	if now.may.Allows("policy", verb, "") {
		return "", nil
	}
	owner := cmp.Or(s.ownerOf(policy), fresh)
	if owner != "" && now.may.Allows("policy", verb, owner) {
		return owner, nil
	}
	if _, err := s.policy(policy); err != nil {
		return "", err
	}
	return "", rightMissing(c, right{noun: "policy", verb: verb}, "")
}

// fedPolicy is policyOwner for a rollout: without a right to the policy, it must be one of the
// rollout's own namespace.
func (s *Server) fedPolicy(ctx context.Context, policy, namespace string) (string, error) {
	c := callerOf(ctx)
	if c == nil || c.may.Allows("policy", rights.Submit, "") {
		return "", nil
	}
	if err := s.catchUp(ctx, false); err != nil {
		return "", err
	}
	if owner := s.ownerOf(policy); owner != "" && c.may.Allows("policy", rights.Submit, owner) {
		return owner, nil
	}
	return namespace, nil
}

// ownerOf is the namespace to which a policy belongs; empty: to none.
func (s *Server) ownerOf(policy string) (name string) {
	s.Machine.View(func(st *state.State) {
		if p := st.Policy(policy); p != nil {
			name = ownerName(st, p)
		}
	})
	return name
}

func ownerName(st *state.State, p *state.Policy) string {
	if ns := st.OwnerOf(p); ns != nil {
		return ns.Name
	}
	return ""
}

// GetPolicy returns a policy.
func (s *Server) GetPolicy(ctx context.Context, req *rotav1.GetPolicyRequest) (*rotav1.GetPolicyResponse, error) {
	if err := requirePolicy("policy", req.Policy).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	p, err := s.policy(req.Policy)
	if c := callerOf(ctx); c != nil && err == nil && !c.may.Allows("policy", rights.Read, p.Namespace) {
		return nil, rightMissing(c, right{noun: "policy", verb: rights.Read}, "") // it is another one by now
	}
	return &rotav1.GetPolicyResponse{Policy: p}, err
}

func (s *Server) policy(name string) (m *rotav1.Policy, err error) {
	s.Machine.View(func(st *state.State) {
		if p := st.Policy(name); p != nil {
			m = policyMessage(st, p)
		} else {
			err = notFound("POLICY_NOT_FOUND", "there is no policy %q: it exists from the first rollout, worker or version that names it", name)
		}
	})
	return m, err
}

// ListPolicies returns a page of policies, by name. A token is the name of the last one.
func (s *Server) ListPolicies(ctx context.Context, req *rotav1.ListPoliciesRequest) (*rotav1.ListPoliciesResponse, error) {
	p, v := newPage(req.PageSize, "")
	after, err := base64.RawURLEncoding.Strict().DecodeString(req.PageToken)
	if err != nil {
		v = firstOf(v, wrong("page_token", "is not one that a list has returned"))
	}
	if err := firstOf(v, checkText("page_token", string(after), state.PolicyNameBytesMax)).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	c, st, resp := callerOf(ctx), s.Machine.Fork(), &rotav1.ListPoliciesResponse{}
	st.Policies(string(after), func(row *state.Policy) bool {
		if owner := ownerName(st, row); c != nil && !c.may.Allows("policy", rights.Read, owner) {
			return true // nor is its name in a token
		}
		if n := len(resp.Policies); n == p.size {
			resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(resp.Policies[n-1].Name))
			return false
		}
		resp.Policies = append(resp.Policies, policyMessage(st, row))
		return true
	})
	return resp, nil
}

func policyMessage(st *state.State, p *state.Policy) *rotav1.Policy {
	return &rotav1.Policy{
		Name: p.Name, Namespace: ownerName(st, p), Version: p.Version, Suspended: p.Suspended, Step: p.Step, PublishTime: wallOf(st).timestamp(p.PublishedAt),
		CompleteGroups: uint32(st.CompleteCount(p.Name)), BufferedSamples: uint32(st.BufferedCount(p.Name)),
	}
}
