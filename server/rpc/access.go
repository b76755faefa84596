package rpc

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"rota/api/backoff"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/rights"
	"rota/fsm/state"
)

// GetAccess says whether tokens are accepted, and what the caller may do.
func (s *Server) GetAccess(ctx context.Context, req *rotav1.GetAccessRequest) (*rotav1.GetAccessResponse, error) {
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	resp := &rotav1.GetAccessResponse{CallerKind: byNothing}
	s.Machine.View(func(st *state.State) {
		resp.Enabled, resp.Bootstraps = st.Meta().AccessEnabled, st.Meta().AccessBootstraps
	})
	if c := callerOf(ctx); c != nil {
		resp.CallerKind, resp.Caller, resp.Policies, resp.Rules = c.kind, c.name, c.policies, c.may.Rules()
	}
	return resp, nil
}

// SetAccess makes the cluster accept tokens, or not.
func (s *Server) SetAccess(ctx context.Context, req *rotav1.SetAccessRequest) (*rotav1.SetAccessResponse, error) {
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_SetAccess{SetAccess: &logv1.SetAccess{Enabled: req.Enabled}}})
	return &rotav1.SetAccessResponse{}, err
}

// BootstrapToken creates the first token.
func (s *Server) BootstrapToken(ctx context.Context, _ *rotav1.BootstrapTokenRequest) (*rotav1.BootstrapTokenResponse, error) {
	c := &logv1.CreateToken{Policies: []string{state.ManagementPolicy}, Description: "first token", Bootstrap: true}
	forget := func() {}
	if s.AccessReset != nil {
		number, remove, err := s.AccessReset()
		if err != nil {
			return nil, failed(connect.CodeFailedPrecondition, "ACCESS_RESET_UNREADABLE", "%v", err)
		}
		c.KnownBootstraps, forget = number, remove
	}
	token, secret, err := s.newToken(ctx, c)
	if err != nil {
		return nil, err
	}
	forget()
	return &rotav1.BootstrapTokenResponse{Token: token, Secret: secret}, nil
}

// CreateToken creates a token.
func (s *Server) CreateToken(ctx context.Context, req *rotav1.CreateTokenRequest) (*rotav1.CreateTokenResponse, error) {
	ttl := req.Ttl.AsDuration()
	v := firstOf(
		checkCount("policies", "policy name", len(req.Policies), state.TokenPoliciesMax), checkNames("policies", req.Policies),
		checkText("description", req.Description, state.TokenTextBytesMax))
	if v == nil && req.Ttl != nil && (!req.Ttl.IsValid() || ttl < time.Second || ttl > state.TokenLifetimeMax) {
		v = wrong("ttl", "must be 1 s to 10 years, is %v", ttl)
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	token, secret, err := s.newToken(ctx, &logv1.CreateToken{Policies: req.Policies, Description: req.Description, TtlNs: int64(ttl)})
	return &rotav1.CreateTokenResponse{Token: token, Secret: secret}, err
}

// tokenRetry bounds how long a token is committed again whose outcome is not known, tokenPause is
// between two tries.
const (
	tokenRetry = 10 * time.Second
	tokenPause = 50 * time.Millisecond
)

// newToken commits a token with a new secret. The log gets the hash only. Nothing but this call knows
// the secret, so it repeats the command itself while the outcome is not known: a token that is there
// already is no error.
func (s *Server) newToken(ctx context.Context, c *logv1.CreateToken) (*rotav1.AccessToken, string, error) {
	var secret string
	secret, c.Hash = rights.NewSecret()
	c.Accessor = rights.NewAccessor()
	if who := callerOf(ctx); who != nil {
		c.CreatedBy = sentence(who.name, state.TokenTextBytesMax)
	}
	if err := s.commitToken(ctx, c); err != nil {
		return nil, "", err
	}
	token, err := s.token(c.Accessor)
	return token, secret, err
}

// commitToken commits a token, once.
func (s *Server) commitToken(ctx context.Context, c *logv1.CreateToken) error {
	var unknown error
	for until := time.Now().Add(tokenRetry); ; {
		_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_CreateToken{CreateToken: c}})
		if err == nil {
			return nil
		}
		f := s.asFailure(err)
		if f != nil && f.reason == UnknownOutcome().Reason {
			unknown = err
		}
		switch {
		case unknown == nil, f == nil, f.code != connect.CodeUnavailable:
			return err
		case time.Now().After(until), backoff.Sleep(ctx, tokenPause) != nil:
			return unknown
		}
	}
}

func (s *Server) token(accessor string) (m *rotav1.AccessToken, err error) {
	s.Machine.View(func(st *state.State) {
		if row := st.AccessToken(accessor); row != nil {
			m = tokenMessage(st, row)
		} else {
			err = notFound("TOKEN_NOT_FOUND", "there is no token with the accessor ID %q: it was revoked, has expired, or the ID is wrong", accessor)
		}
	})
	return m, err
}

func tokenMessage(st *state.State, row *state.AccessToken) *rotav1.AccessToken {
	wall := wallOf(st)
	return &rotav1.AccessToken{
		AccessorId: row.Accessor, Policies: row.Policies, Description: row.Description,
		CreatedBy:  strings.ToValidUTF8(row.CreatedBy, ""), // earlier releases cut long names within a character
		CreateTime: wall.timestamp(row.CreatedAt), ExpireTime: wall.timestamp(row.ExpiresAt),
	}
}

// GetToken describes a token.
func (s *Server) GetToken(ctx context.Context, req *rotav1.GetTokenRequest) (*rotav1.GetTokenResponse, error) {
	if err := requireName("accessor_id", req.AccessorId).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	token, err := s.token(req.AccessorId)
	return &rotav1.GetTokenResponse{Token: token}, err
}

// ListTokens describes tokens.
func (s *Server) ListTokens(ctx context.Context, req *rotav1.ListTokensRequest) (*rotav1.ListTokensResponse, error) {
	c, after, v := namePage(req.PageSize, req.PageToken)
	if err := v.err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	resp, last := &rotav1.ListTokensResponse{}, ""
	st := s.Machine.Fork()
	st.AccessTokens(after, func(row *state.AccessToken) bool {
		if c.full() {
			resp.NextPageToken = nameToken(last)
			return false
		}
		last = row.Accessor
		m := tokenMessage(st, row)
		c.add(m)
		resp.Tokens = append(resp.Tokens, m)
		return true
	})
	return resp, nil
}

// RevokeToken forgets a token.
func (s *Server) RevokeToken(ctx context.Context, req *rotav1.RevokeTokenRequest) (*rotav1.RevokeTokenResponse, error) {
	if err := requireName("accessor_id", req.AccessorId).err(); err != nil {
		return nil, err
	}
	return &rotav1.RevokeTokenResponse{}, s.removeAccess(ctx, &logv1.RemoveAccess{Token: req.AccessorId})
}

func (s *Server) removeAccess(ctx context.Context, c *logv1.RemoveAccess) error {
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_RemoveAccess{RemoveAccess: c}})
	return err
}

// PutAccessPolicy creates or replaces a policy.
func (s *Server) PutAccessPolicy(ctx context.Context, req *rotav1.PutAccessPolicyRequest) (*rotav1.PutAccessPolicyResponse, error) {
	p := req.Policy
	v := requireName("policy.name", p.GetName())
	if v == nil && p.Name == state.ManagementPolicy {
		v = wrong("policy.name", "%q exists always and cannot be changed: choose another name", p.Name)
	}
	if v == nil {
		if err := rights.Check(p.Rules); err != nil {
			v = wrong("policy.rules", "%v", err)
		}
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return nil, err
	}
	_, err = s.change(ctx, &logv1.Command{Verb: &logv1.Command_PutAccessPolicy{PutAccessPolicy: &logv1.PutAccessPolicy{Name: p.Name, Spec: spec}}})
	return &rotav1.PutAccessPolicyResponse{}, err
}

// GetAccessPolicy returns a policy.
func (s *Server) GetAccessPolicy(ctx context.Context, req *rotav1.GetAccessPolicyRequest) (*rotav1.GetAccessPolicyResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	if req.Name == state.ManagementPolicy {
		return &rotav1.GetAccessPolicyResponse{Policy: &rotav1.AccessPolicy{Name: req.Name, Rules: rights.Everything().Rules()}}, nil
	}
	row := s.Machine.Fork().AccessPolicy(req.Name)
	if row == nil {
		return nil, notFound("ACCESS_POLICY_NOT_FOUND", "there is no access policy %q: ListAccessPolicies has their names", req.Name)
	}
	p := &rotav1.AccessPolicy{}
	return &rotav1.GetAccessPolicyResponse{Policy: p}, proto.Unmarshal(row.Spec, p)
}

// ListAccessPolicies returns policies.
func (s *Server) ListAccessPolicies(ctx context.Context, req *rotav1.ListAccessPoliciesRequest) (*rotav1.ListAccessPoliciesResponse, error) {
	c, after, v := namePage(req.PageSize, req.PageToken)
	if err := v.err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	resp, last := &rotav1.ListAccessPoliciesResponse{}, ""
	var err error
	s.Machine.Fork().AccessPolicies(after, func(row *state.AccessPolicy) bool {
		if c.full() {
			resp.NextPageToken = nameToken(last)
			return false
		}
		last = row.Name
		p := &rotav1.AccessPolicy{}
		err = proto.Unmarshal(row.Spec, p)
		c.add(p)
		resp.Policies = append(resp.Policies, p)
		return err == nil
	})
	return resp, err
}

// DeleteAccessPolicy forgets a policy.
func (s *Server) DeleteAccessPolicy(ctx context.Context, req *rotav1.DeleteAccessPolicyRequest) (*rotav1.DeleteAccessPolicyResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	return &rotav1.DeleteAccessPolicyResponse{}, s.removeAccess(ctx, &logv1.RemoveAccess{Policy: req.Name})
}

// namePage decodes the place to go on from in a list that is in the order of names.
func namePage(size uint32, token string) (c *collector, after string, v *violation) {
	p, v := newPage(size, "")
	if v != nil {
		return nil, "", v
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) > state.AccessNameBytesMax {
		return nil, "", wrong("page_token", "is not one that a list has returned")
	}
	return &collector{page: p}, string(raw), nil
}

func nameToken(last string) string { return base64.RawURLEncoding.EncodeToString([]byte(last)) }
