package state

import "fmt"

// checkAccessPolicies: they are bounded and have names, which "management" is not among.
func (s *State) checkAccessPolicies() (err error) {
	s.AccessPolicies("", func(p *AccessPolicy) bool {
		if p.Name == "" || p.Name == ManagementPolicy || len(p.Name) > AccessNameBytesMax || len(p.Spec) > AccessSpecBytesMax {
			err = fmt.Errorf("access policy %q has %d bytes", p.Name, len(p.Spec))
		}
		return err == nil
	})
	if n := s.AccessPolicyCount(); err == nil && n > AccessPoliciesMax {
		err = fmt.Errorf("there are %d access policies", n)
	}
	return err
}

// checkAuthMethods: they are bounded and have names.
func (s *State) checkAuthMethods() (err error) {
	s.AuthMethods(func(m *AuthMethod) bool {
		if m.Name == "" || len(m.Name) > AccessNameBytesMax || len(m.Spec) == 0 || len(m.Spec) > AccessSpecBytesMax {
			err = fmt.Errorf("auth method %q has %d bytes", m.Name, len(m.Spec))
		}
		return err == nil
	})
	if n := s.AuthMethodCount(); err == nil && n > AuthMethodsMax {
		err = fmt.Errorf("there are %d auth methods", n)
	}
	return err
}

// checkAccessTokens: they are bounded, each is found by its hash, and none expires before it was
// created.
func (s *State) checkAccessTokens() (err error) {
	s.AccessTokens("", func(t *AccessToken) bool {
		switch {
		case t.Accessor == "" || len(t.Accessor) > AccessNameBytesMax || len(t.Hash) != TokenHashBytes || s.AccessTokenByHash(t.Hash) != t:
			err = fmt.Errorf("token %q has a hash of %d bytes, or another token has it too", t.Accessor, len(t.Hash))
		case len(t.Policies) == 0 || len(t.Policies) > TokenPoliciesMax || len(t.Description) > TokenTextBytesMax || len(t.CreatedBy) > TokenTextBytesMax:
			err = fmt.Errorf("token %s has %d policies and a description of %d bytes", t.Accessor, len(t.Policies), len(t.Description))
		case t.CreatedAt > s.meta.Now || t.ExpiresAt != 0 && t.ExpiresAt <= t.CreatedAt:
			err = fmt.Errorf("token %s was created at %d and expires at %d; it is %d", t.Accessor, t.CreatedAt, t.ExpiresAt, s.meta.Now)
		}
		return err == nil
	})
	switch n := s.AccessTokenCount(); {
	case err != nil:
	case n > AccessTokensMax:
		err = fmt.Errorf("there are %d tokens", n)
	case s.meta.AccessEnabled && s.meta.AccessBootstraps == 0:
		err = fmt.Errorf("tokens are accepted, and there was no first token")
	}
	return err
}
