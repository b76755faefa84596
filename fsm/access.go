package fsm

import (
	"bytes"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// accessVerb carries out a command about rights; nil if it is not one.
func (x *execution) accessVerb(c *logv1.Command) *logv1.Result {
	switch v := c.Verb.(type) {
	case *logv1.Command_PutAccessPolicy:
		return x.putAccessPolicy(v.PutAccessPolicy)
	case *logv1.Command_PutAuthMethod:
		return x.putAuthMethod(v.PutAuthMethod)
	case *logv1.Command_RemoveAccess:
		return x.removeAccess(v.RemoveAccess)
	case *logv1.Command_CreateToken:
		return x.createToken(v.CreateToken)
	case *logv1.Command_SetAccess:
		return x.setAccess(v.SetAccess)
	}
	return nil
}

// isAccess reports whether a command is about rights. They came with one feature level.
func isAccess(c *logv1.Command) bool {
	return c.GetPutAccessPolicy() != nil || c.GetPutAuthMethod() != nil || c.GetRemoveAccess() != nil || c.GetCreateToken() != nil || c.GetSetAccess() != nil
}

// checkToken refuses a command whose token was revoked or has expired since the server that
// proposed it looked. So a revocation that is acknowledged holds for every later write, whatever
// server it was sent to.
func (x *execution) checkToken(accessor string) *logv1.Result {
	if accessor == "" {
		return nil
	}
	t := x.s.AccessToken(accessor)
	if t == nil || t.Expired(x.now()) || !x.s.Meta().AccessEnabled {
		return refuse(codeUnauthenticated, "TOKEN_INVALID", "the token %s was revoked or has expired, or tokens are not accepted any more: ask an operator for another one", accessor)
	}
	return nil
}

// putAccessPolicy creates or replaces a policy. Said again, nothing changes.
func (x *execution) putAccessPolicy(c *logv1.PutAccessPolicy) *logv1.Result {
	old := x.s.AccessPolicy(c.Name)
	switch {
	case c.Name == "" || len(c.Name) > state.AccessNameBytesMax || c.Name == state.ManagementPolicy:
		return refuse(codeInvalidArgument, "INVALID", "a policy needs a name of 1 to %d bytes other than %q; this is %q", state.AccessNameBytesMax, state.ManagementPolicy, c.Name)
	case len(c.Spec) > state.AccessSpecBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "access policy %q has %d bytes; at most %d are allowed: split it", c.Name, len(c.Spec), state.AccessSpecBytesMax)
	case old != nil && bytes.Equal(old.Spec, c.Spec):
		return &logv1.Result{}
	case old == nil && x.s.AccessPolicyCount() >= state.AccessPoliciesMax:
		return refuse(codeResourceExhausted, "TOO_MANY_ACCESS_POLICIES", "there are %d access policies already, which is the limit: delete some with: rota acl policy delete", state.AccessPoliciesMax)
	}
	x.s.PutAccessPolicy(&state.AccessPolicy{Name: c.Name, Spec: c.Spec})
	return &logv1.Result{Count: 1}
}

// putAuthMethod creates or replaces a method by which callers get policies.
func (x *execution) putAuthMethod(c *logv1.PutAuthMethod) *logv1.Result {
	old := x.s.AuthMethod(c.Name)
	switch {
	case c.Name == "" || len(c.Name) > state.AccessNameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "an auth method needs a name of 1 to %d bytes", state.AccessNameBytesMax)
	case len(c.Spec) == 0 || len(c.Spec) > state.AccessSpecBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "auth method %q has %d bytes; it must be 1 to %d", c.Name, len(c.Spec), state.AccessSpecBytesMax)
	case old != nil && bytes.Equal(old.Spec, c.Spec):
		return &logv1.Result{}
	case old == nil && x.s.AuthMethodCount() >= state.AuthMethodsMax:
		return refuse(codeResourceExhausted, "TOO_MANY_AUTH_METHODS", "there are %d auth methods already, which is the limit: delete some with: rota acl auth-method delete", state.AuthMethodsMax)
	}
	x.s.PutAuthMethod(&state.AuthMethod{Name: c.Name, Spec: c.Spec})
	return &logv1.Result{Count: 1}
}

// removeAccess forgets a policy, a method or a token.
func (x *execution) removeAccess(c *logv1.RemoveAccess) *logv1.Result {
	switch {
	case c.Policy != "" && c.AuthMethod == "" && c.Token == "":
		if x.s.AccessPolicy(c.Policy) == nil {
			return refuse(codeNotFound, "ACCESS_POLICY_NOT_FOUND", "there is no access policy %q; see: rota acl policy list", c.Policy)
		}
		x.s.DeleteAccessPolicy(c.Policy)
	case c.Policy == "" && c.AuthMethod != "" && c.Token == "":
		if x.s.AuthMethod(c.AuthMethod) == nil {
			return refuse(codeNotFound, "AUTH_METHOD_NOT_FOUND", "there is no auth method %q; see: rota acl auth-method list", c.AuthMethod)
		}
		x.s.DeleteAuthMethod(c.AuthMethod)
	case c.Policy == "" && c.AuthMethod == "" && c.Token != "":
		if x.s.AccessToken(c.Token) == nil {
			return refuse(codeNotFound, "TOKEN_NOT_FOUND", "there is no token with the accessor ID %q: it was revoked, has expired, or the ID is wrong; see: rota token list", c.Token)
		}
		x.s.DeleteAccessToken(c.Token)
	default:
		return refuse(codeInvalidArgument, "INVALID", "exactly one of a policy, an auth method and a token must be named")
	}
	return &logv1.Result{Count: 1}
}

// createToken adds a token. The first one makes the cluster accept tokens.
func (x *execution) createToken(c *logv1.CreateToken) *logv1.Result {
	if r := checkNewToken(c); r != nil {
		return r
	}
	m := *x.s.Meta()
	if old := x.s.AccessToken(c.Accessor); old != nil && bytes.Equal(old.Hash, c.Hash) {
		return &logv1.Result{Replayed: true}
	}
	switch {
	case x.s.AccessToken(c.Accessor) != nil || x.s.AccessTokenByHash(c.Hash) != nil:
		return refuse(codeAlreadyExists, "TOKEN_EXISTS", "there is a token with this accessor ID or secret already: create one with others")
	case c.Bootstrap && m.AccessBootstraps != c.KnownBootstraps:
		return refuse(codeFailedPrecondition, "ACCESS_BOOTSTRAPPED",
			"the first token was created already (%d so far). If it is lost, write %d into the file access-bootstrap-reset in the data folder of the server that you ask, and repeat this",
			m.AccessBootstraps, m.AccessBootstraps)
	case x.s.AccessTokenCount() >= state.AccessTokensMax:
		return refuse(codeResourceExhausted, "TOO_MANY_TOKENS", "there are %d tokens already, which is the limit: revoke some with: rota token revoke", state.AccessTokensMax)
	}
	t := &state.AccessToken{
		Accessor: c.Accessor, Hash: c.Hash, Policies: c.Policies, Description: c.Description, CreatedBy: c.CreatedBy, CreatedAt: x.now(),
	}
	if c.TtlNs > 0 {
		t.ExpiresAt = x.now() + c.TtlNs
	}
	for _, name := range c.Policies {
		if name != state.ManagementPolicy && x.s.AccessPolicy(name) == nil {
			return refuse(codeNotFound, "ACCESS_POLICY_NOT_FOUND", "there is no access policy %q: create it with rota acl policy put, or correct the name", name)
		}
	}
	if c.Bootstrap {
		m.AccessBootstraps++
		m.AccessEnabled = true
		x.s.SetMeta(m)
	}
	x.s.PutAccessToken(t)
	return &logv1.Result{Count: 1}
}

// checkNewToken refuses a token that cannot be one.
func checkNewToken(c *logv1.CreateToken) *logv1.Result {
	switch {
	case c.Accessor == "" || len(c.Accessor) > state.AccessNameBytesMax || len(c.Hash) != state.TokenHashBytes:
		return refuse(codeInvalidArgument, "INVALID", "a token needs an accessor ID of 1 to %d bytes and a hash of %d bytes", state.AccessNameBytesMax, state.TokenHashBytes)
	case len(c.Policies) == 0 || len(c.Policies) > state.TokenPoliciesMax:
		return refuse(codeInvalidArgument, "INVALID", "a token needs 1 to %d policies; this one has %d", state.TokenPoliciesMax, len(c.Policies))
	case len(c.Description) > state.TokenTextBytesMax || len(c.CreatedBy) > state.TokenTextBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "the description of a token may have at most %d bytes", state.TokenTextBytesMax)
	case c.TtlNs < 0 || c.TtlNs > state.TokenLifetimeMax:
		return refuse(codeInvalidArgument, "INVALID", "a token may be valid for at most 10 years")
	}
	return nil
}

// setAccess makes the cluster accept tokens, or not.
func (x *execution) setAccess(c *logv1.SetAccess) *logv1.Result {
	m := *x.s.Meta()
	switch {
	case m.AccessEnabled == c.Enabled:
		return &logv1.Result{}
	case m.AccessBootstraps == 0:
		return refuse(codeFailedPrecondition, "ACCESS_NOT_BOOTSTRAPPED", "there was no first token yet: create it with rota token bootstrap, which also makes the cluster accept tokens")
	}
	m.AccessEnabled = c.Enabled
	x.s.SetMeta(m)
	return &logv1.Result{Count: 1}
}
