package rpc

import (
	"context"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
	"rota/api/rights"
	"rota/fsm/state"
)

const (
	// clockSkewMax bounds how much clocks of an issuer and of servers may differ.
	clockSkewMax = 5 * time.Minute
	// mappingsMax bounds the mappings of a method.
	mappingsMax = 256
	// methodTextMax bounds a URL, a path, an audience and a claim.
	methodTextMax = 512
)

// PutAuthMethod creates or replaces a method.
func (s *Server) PutAuthMethod(ctx context.Context, req *rotav1.PutAuthMethodRequest) (*rotav1.PutAuthMethodResponse, error) {
	m := req.Method
	if m == nil {
		m = &rotav1.AuthMethod{}
	}
	v := firstOf(requireName("method.name", m.Name), checkMappings(m))
	if v == nil && m.Certificates {
		v = checkCertificateMethod(m)
	} else if v == nil {
		v = checkJWTMethod(m)
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	_, err = s.change(ctx, &logv1.Command{Verb: &logv1.Command_PutAuthMethod{PutAuthMethod: &logv1.PutAuthMethod{Name: m.Name, Spec: spec}}})
	return &rotav1.PutAuthMethodResponse{}, err
}

func checkMappings(m *rotav1.AuthMethod) *violation {
	if v := checkCount("method.mappings", "mapping", len(m.Mappings), mappingsMax); v != nil {
		return v
	}
	for _, x := range m.Mappings {
		if x == nil || x.Claim == "" || x.Pattern == "" {
			return wrong("method.mappings", "each needs a claim and a pattern, such as sub and system:serviceaccount:team:*")
		}
		v := firstOf(checkText("claim", x.Claim, methodTextMax), checkText("pattern", x.Pattern, methodTextMax),
			checkCount("policies", "policy name", len(x.Policies), state.TokenPoliciesMax), checkNames("policies", x.Policies))
		if v != nil {
			return v
		}
	}
	return nil
}

func checkNames(field string, names []string) *violation {
	for _, name := range names {
		if v := requireName(field, name); v != nil {
			return v
		}
	}
	return nil
}

func checkCertificateMethod(m *rotav1.AuthMethod) *violation {
	if m.Issuer != "" || len(m.Audiences) > 0 || m.JwksUrl != "" || m.JwksFile != "" || m.JwksCaFile != "" || len(m.Algorithms) > 0 || m.ClockSkew != nil {
		return wrong("method.certificates", "is about client certificates: leave out issuer, audiences, keys, algorithms and clock_skew, or make another method for JWTs")
	}
	for _, x := range m.Mappings {
		if x.Claim != "name" {
			return wrong("method.mappings", "of a certificate there is only the claim \"name\", not %q", x.Claim)
		}
	}
	return nil
}

func checkJWTMethod(m *rotav1.AuthMethod) *violation {
	v := firstOf(checkText("method.issuer", m.Issuer, methodTextMax), checkText("method.jwks_url", m.JwksUrl, methodTextMax),
		checkText("method.jwks_file", m.JwksFile, methodTextMax), checkText("method.jwks_ca_file", m.JwksCaFile, methodTextMax), checkCount("method.audiences", "audience", len(m.Audiences), 16))
	switch skew := m.ClockSkew.AsDuration(); {
	case v != nil:
		return v
	case m.Issuer == "":
		return wrong("method.issuer", "is needed: it is the claim \"iss\" of the JWTs")
	case slices.Contains(m.Audiences, ""):
		return wrong("method.audiences", "must not be empty")
	case m.JwksUrl != "" && m.JwksFile != "":
		return wrong("method.jwks_url", "and jwks_file exclude each other")
	case m.JwksFile != "" && !filepath.IsAbs(m.JwksFile):
		return wrong("method.jwks_file", "must be an absolute path, on every server")
	case m.JwksCaFile != "" && m.JwksFile != "":
		return wrong("method.jwks_ca_file", "and jwks_file exclude each other: nobody is asked for the keys")
	case m.JwksCaFile != "" && !filepath.IsAbs(m.JwksCaFile):
		return wrong("method.jwks_ca_file", "must be an absolute path, on every server")
	case m.ClockSkew != nil && (!m.ClockSkew.IsValid() || skew < 0 || skew > clockSkewMax):
		return wrong("method.clock_skew", "must be at most %v, is %v", clockSkewMax, skew)
	}
	for _, alg := range m.Algorithms {
		if !slices.Contains(rights.Algorithms(), alg) {
			return wrong("method.algorithms", "may have %v, not %q", rights.Algorithms(), alg)
		}
	}
	if m.JwksFile != "" {
		return nil
	}
	if m.JwksUrl != "" {
		return checkKeysURL("method.jwks_url", m.JwksUrl)
	}
	return checkKeysURL("method.issuer", m.Issuer)
}

// checkKeysURL: keys come over https, or from this machine.
func checkKeysURL(field, text string) *violation {
	u, err := url.Parse(text)
	if err == nil && u.Host != "" && u.User == nil && u.Fragment == "" {
		if u.Scheme == "https" || u.Scheme == "http" && httpx.OnLoopback(u.Hostname()) {
			return nil
		}
	}
	return wrong(field, "must be a URL with https, or with http on loopback, as the public keys are fetched from there")
}

// GetAuthMethod returns a method.
func (s *Server) GetAuthMethod(ctx context.Context, req *rotav1.GetAuthMethodRequest) (*rotav1.GetAuthMethodResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	row := s.Machine.Fork().AuthMethod(req.Name)
	if row == nil {
		return nil, notFound("AUTH_METHOD_NOT_FOUND", "there is no auth method %q: ListAuthMethods has their names", req.Name)
	}
	m := &rotav1.AuthMethod{}
	return &rotav1.GetAuthMethodResponse{Method: m}, proto.Unmarshal(row.Spec, m)
}

// ListAuthMethods returns all methods.
func (s *Server) ListAuthMethods(ctx context.Context, req *rotav1.ListAuthMethodsRequest) (*rotav1.ListAuthMethodsResponse, error) {
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	resp := &rotav1.ListAuthMethodsResponse{}
	var err error
	s.Machine.Fork().AuthMethods(func(row *state.AuthMethod) bool {
		m := &rotav1.AuthMethod{}
		err = proto.Unmarshal(row.Spec, m)
		resp.Methods = append(resp.Methods, m)
		return err == nil
	})
	return resp, err
}

// DeleteAuthMethod forgets a method.
func (s *Server) DeleteAuthMethod(ctx context.Context, req *rotav1.DeleteAuthMethodRequest) (*rotav1.DeleteAuthMethodResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	return &rotav1.DeleteAuthMethodResponse{}, s.removeAccess(ctx, &logv1.RemoveAccess{AuthMethod: req.Name})
}
