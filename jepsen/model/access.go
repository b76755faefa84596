package model

import (
	"bytes"
	"fmt"
	"reflect"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Access: who may be let in with what. The model keeps rows in maps and looks at all of them
// where an entry changed one.

const (
	accessPoliciesMax = 1024
	accessTokensMax   = 16384
	authMethodsMax    = 64
	accessNameMax     = 128
	accessSpecMax     = 64 << 10
	tokenPoliciesMax  = 32
	tokenTextMax      = 256
	tokenLifetimeMax  = 3650 * 24 * 3600 * 1_000_000_000
	managementPolicy  = "management"
)

type access struct {
	policies, methods map[string][]byte
	tokens            map[string]*state.AccessToken
	enabled           bool
	bootstraps        uint64
	// touched: the entry changed something.
	touched bool
}

func newAccess() access {
	return access{policies: map[string][]byte{}, methods: map[string][]byte{}, tokens: map[string]*state.AccessToken{}}
}

// valid reports whether a command may be carried out that came with a token.
func (m *Model) valid(accessor string) bool {
	t := m.access.tokens[accessor]
	return accessor == "" || m.access.enabled && t != nil && (t.ExpiresAt == 0 || t.ExpiresAt > m.now)
}

func (m *Model) accessCommand(c *logv1.Command, got *logv1.Result) (known bool, err error) {
	var do func() error
	switch v := c.Verb.(type) {
	case *logv1.Command_PutAccessPolicy:
		do = func() error { return m.putAccessPolicy(v.PutAccessPolicy, got) }
	case *logv1.Command_PutAuthMethod:
		do = func() error { return m.putAuthMethod(v.PutAuthMethod, got) }
	case *logv1.Command_RemoveAccess:
		do = func() error { return m.removeAccess(v.RemoveAccess, got) }
	case *logv1.Command_CreateToken:
		do = func() error { return m.createToken(v.CreateToken, got) }
	case *logv1.Command_SetAccess:
		do = func() error { return m.setAccess(v.SetAccess, got) }
	default:
		return false, nil
	}
	if m.level < levelResizing {
		return true, refused(got, "LEVEL_NOT_ACTIVE")
	}
	m.access.touched = true
	return true, do()
}

// putSpec stores what one name stands for.
func putSpec(all map[string][]byte, most int, name string, spec []byte, v *verdict, tooMany string, got *logv1.Result) error {
	old, there := all[name]
	v.refuse(name == "" || len(name) > accessNameMax || len(spec) > accessSpecMax, "INVALID")
	v.refuse(!there && len(all) >= most, tooMany)
	if ok, err := v.judge(got); !ok {
		return err
	}
	if there && bytes.Equal(old, spec) {
		return result(got, &logv1.Result{})
	}
	all[name] = spec
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) putAccessPolicy(c *logv1.PutAccessPolicy, got *logv1.Result) error {
	var v verdict
	v.refuse(c.Name == managementPolicy, "INVALID")
	return putSpec(m.access.policies, accessPoliciesMax, c.Name, c.Spec, &v, "TOO_MANY_ACCESS_POLICIES", got)
}

func (m *Model) putAuthMethod(c *logv1.PutAuthMethod, got *logv1.Result) error {
	var v verdict
	v.refuse(len(c.Spec) == 0, "INVALID")
	return putSpec(m.access.methods, authMethodsMax, c.Name, c.Spec, &v, "TOO_MANY_AUTH_METHODS", got)
}

func (m *Model) removeAccess(c *logv1.RemoveAccess, got *logv1.Result) error {
	named := 0
	for _, name := range []string{c.Policy, c.AuthMethod, c.Token} {
		if name != "" {
			named++
		}
	}
	a := &m.access
	switch {
	case named != 1:
		return refused(got, "INVALID")
	case c.Policy != "" && a.policies[c.Policy] == nil:
		return refused(got, "ACCESS_POLICY_NOT_FOUND")
	case c.AuthMethod != "" && a.methods[c.AuthMethod] == nil:
		return refused(got, "AUTH_METHOD_NOT_FOUND")
	case c.Token != "" && a.tokens[c.Token] == nil:
		return refused(got, "TOKEN_NOT_FOUND")
	}
	delete(a.policies, c.Policy)
	delete(a.methods, c.AuthMethod)
	delete(a.tokens, c.Token)
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) createToken(c *logv1.CreateToken, got *logv1.Result) error {
	a := &m.access
	old := a.tokens[c.Accessor]
	var v verdict
	v.refuse(c.Accessor == "" || len(c.Accessor) > accessNameMax || len(c.Hash) != 32, "INVALID")
	v.refuse(len(c.Policies) == 0 || len(c.Policies) > tokenPoliciesMax, "INVALID")
	v.refuse(len(c.Description) > tokenTextMax || len(c.CreatedBy) > tokenTextMax || c.TtlNs < 0 || c.TtlNs > tokenLifetimeMax, "INVALID")
	if len(v.must) == 0 && old != nil && bytes.Equal(old.Hash, c.Hash) {
		return result(got, &logv1.Result{Replayed: true})
	}
	shared := old != nil
	for _, t := range a.tokens {
		shared = shared || bytes.Equal(t.Hash, c.Hash)
	}
	v.refuse(shared, "TOKEN_EXISTS")
	v.refuse(c.Bootstrap && c.KnownBootstraps != a.bootstraps, "ACCESS_BOOTSTRAPPED")
	v.refuse(len(a.tokens) >= accessTokensMax, "TOO_MANY_TOKENS")
	for _, name := range c.Policies {
		_, there := a.policies[name]
		v.refuse(name != managementPolicy && !there, "ACCESS_POLICY_NOT_FOUND")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	t := &state.AccessToken{
		Accessor: c.Accessor, Hash: c.Hash, Policies: c.Policies, Description: c.Description, CreatedBy: c.CreatedBy, CreatedAt: m.now,
	}
	if c.TtlNs > 0 {
		t.ExpiresAt = m.now + c.TtlNs
	}
	if c.Bootstrap {
		a.bootstraps, a.enabled = a.bootstraps+1, true
	}
	a.tokens[c.Accessor] = t
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) setAccess(c *logv1.SetAccess, got *logv1.Result) error {
	switch {
	case c.Enabled == m.access.enabled:
		return result(got, &logv1.Result{})
	case m.access.bootstraps == 0:
		return refused(got, "ACCESS_NOT_BOOTSTRAPPED")
	}
	m.access.enabled = c.Enabled
	return result(got, &logv1.Result{Count: 1})
}

// tokensDue is how many tokens have expired and are there yet.
func (m *Model) tokensDue() (n int) {
	for _, t := range m.access.tokens {
		if t.ExpiresAt != 0 && t.ExpiresAt <= m.now {
			n++
		}
	}
	return n
}

// fireTokens forgets the tokens that have expired. If more is due than one entry does, which ones
// is taken over.
func (m *Model) fireTokens(left bool) {
	for accessor, t := range m.access.tokens {
		if t.ExpiresAt == 0 || t.ExpiresAt > m.now || left && m.s.AccessToken(accessor) != nil {
			continue
		}
		delete(m.access.tokens, accessor)
		m.access.touched = true
		m.budget--
	}
}

// compareAccess compares all rows about access, if the entry changed one.
func (m *Model) compareAccess() error {
	a := &m.access
	meta := m.s.Meta()
	got := []int{m.s.AccessPolicyCount(), m.s.AuthMethodCount(), m.s.AccessTokenCount(), int(meta.AccessBootstraps)}
	want := []int{len(a.policies), len(a.methods), len(a.tokens), int(a.bootstraps)}
	if !reflect.DeepEqual(got, want) || meta.AccessEnabled != a.enabled {
		return fmt.Errorf("access policies, auth methods, tokens and bootstraps are %d, enabled %v; must be %d, enabled %v", got, meta.AccessEnabled, want, a.enabled)
	}
	if !a.touched {
		return nil
	}
	a.touched = false
	for name, spec := range a.policies {
		if row := m.s.AccessPolicy(name); row == nil || !bytes.Equal(row.Spec, spec) {
			return fmt.Errorf("access policy %q is %+v, must have %d bytes", name, row, len(spec))
		}
	}
	for name, spec := range a.methods {
		if row := m.s.AuthMethod(name); row == nil || !bytes.Equal(row.Spec, spec) {
			return fmt.Errorf("auth method %q is %+v, must have %d bytes", name, row, len(spec))
		}
	}
	for accessor, t := range a.tokens {
		if row := m.s.AccessToken(accessor); !reflect.DeepEqual(row, t) || m.s.AccessTokenByHash(t.Hash) != row {
			return fmt.Errorf("token %q is %+v, must be %+v", accessor, row, t)
		}
	}
	return nil
}
