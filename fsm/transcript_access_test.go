package fsm

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// parseAccessCommand reads
//
//	access-policy name=p spec=x
//	auth-method name=m spec=x
//	remove-access policy=p method=m token=t
//	token id=t secret=s policies=p,q ttl=10s by=alice bootstrap=yes known=1
//	set-access enabled=yes
//
// and returns nil for another verb.
func parseAccessCommand(verb string, a args) *logv1.Command {
	switch verb {
	case "access-policy":
		return &logv1.Command{Verb: &logv1.Command_PutAccessPolicy{PutAccessPolicy: &logv1.PutAccessPolicy{Name: a.text("name"), Spec: []byte(a.text("spec"))}}}
	case "auth-method":
		return &logv1.Command{Verb: &logv1.Command_PutAuthMethod{PutAuthMethod: &logv1.PutAuthMethod{Name: a.text("name"), Spec: []byte(a.text("spec"))}}}
	case "remove-access":
		return &logv1.Command{Verb: &logv1.Command_RemoveAccess{RemoveAccess: &logv1.RemoveAccess{Policy: a.text("policy"), AuthMethod: a.text("method"), Token: a.text("token")}}}
	case "token":
		c := &logv1.CreateToken{
			Accessor: a.text("id"), TtlNs: a.dur("ttl"), CreatedBy: a.text("by"), Bootstrap: a.text("bootstrap") != "", KnownBootstraps: a.num("known", 0),
		}
		if secret := a.text("secret"); secret != "" {
			hash := sha256.Sum256([]byte(secret))
			c.Hash = hash[:]
		}
		if policies := a.text("policies"); policies != "" {
			c.Policies = strings.Split(policies, ",")
		}
		return &logv1.Command{Verb: &logv1.Command_CreateToken{CreateToken: c}}
	case "set-access":
		return &logv1.Command{Verb: &logv1.Command_SetAccess{SetAccess: &logv1.SetAccess{Enabled: a.text("enabled") != ""}}}
	}
	return nil
}

// accessLine draws a command about rights.
func accessLine(n func(string, int) int) string {
	name := []string{"p", "q", "", "management"}[n("named", 3)]
	switch n("access", 7) {
	case 0, 1:
		return "access-policy name=" + name + " spec=" + []string{"x", "y", ""}[n("spec", 2)]
	case 2:
		return "auth-method name=" + name + " spec=" + []string{"x", ""}[n("spec", 1)]
	case 3:
		return "remove-access " + []string{"policy=p", "policy=q", "method=p", "token=a", "token=b", "token=a policy=p"}[n("removed", 5)]
	case 4:
		return "set-access enabled=" + []string{"", "yes"}[n("enabled", 1)]
	case 5:
		return "token id=root secret=root policies=management bootstrap=yes known=" + []string{"0", "1"}[n("known", 1)]
	}
	return "token id=" + []string{"a", "b"}[n("id", 1)] + " secret=" + []string{"s", "t"}[n("secret", 1)] + " policies=" + name +
		" ttl=" + []string{"0s", "5s", "20s"}[n("ttl", 2)]
}

// TestATokenCountsUntilItIsRevokedOrExpires: a command that was sent with a token is carried out
// only if the token is valid when it is applied, whenever it was proposed.
func TestATokenCountsUntilItIsRevokedOrExpires(t *testing.T) {
	s := newStory(t)
	one := func(line string) *logv1.Command { return parseCommand(t, line)[0] }
	with := func(token, line string) *logv1.Command {
		c := one(line)
		c.Token = token
		return c
	}
	reason := func(c *logv1.Command) string { return s.apply(t, c)[0].Refusal.GetReason() }
	s.apply(t, one("token id=root secret=root policies=management bootstrap=yes"), one("access-policy name=p spec=x"), one("token id=a secret=a policies=p ttl=10s"),
		one("token id=b secret=b policies=p"))
	if got := reason(with("a", "namespace name=one")); got != "" {
		t.Errorf("a valid token is refused: %s", got)
	}
	revoked := s.apply(t, one("remove-access token=b"), with("b", "namespace name=two"))
	if got := revoked[1].Refusal.GetReason(); got != "TOKEN_INVALID" {
		t.Errorf("a command behind the revocation in the same entry: %q", got)
	}
	if got := reason(with("nobody", "namespace name=two")); got != "TOKEN_INVALID" {
		t.Errorf("a token that never was: %q", got)
	}
	s.now += int64(10*time.Second) - 1
	if got := reason(with("a", "namespace name=three")); got != "" {
		t.Errorf("a nanosecond before it expires: %s", got)
	}
	s.now++
	if got := reason(with("a", "namespace name=four")); got != "TOKEN_INVALID" {
		t.Errorf("when it expires: %q", got)
	}
	if s.state.AccessToken("a") != nil {
		t.Error("an expired token is kept")
	}
	if got := reason(with("root", "set-access enabled=")); got != "" {
		t.Fatalf("not switched off: %s", got)
	}
	if got := reason(with("root", "namespace name=five")); got != "TOKEN_INVALID" {
		t.Errorf("when no tokens are accepted: %q", got)
	}
	if s.state.NamespaceCount() != 3 {
		t.Errorf("there are %d namespaces", s.state.NamespaceCount())
	}
}

// TestTokensThatExpireTogether: more of them than one entry forgets are refused all the same.
func TestTokensThatExpireTogether(t *testing.T) {
	s := newStory(t)
	s.model = nil
	var commands []*logv1.Command
	for i := range 2*workBudget + 1 {
		hash := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
		commands = append(commands, &logv1.Command{Verb: &logv1.Command_CreateToken{CreateToken: &logv1.CreateToken{
			Accessor: fmt.Sprintf("t%05d", i), Hash: hash[:], Policies: []string{state.ManagementPolicy}, TtlNs: 1, Bootstrap: i == 0,
		}}})
	}
	s.apply(t, commands...)
	s.now++
	c := parseCommand(t, "namespace name=late")[0]
	for _, accessor := range []string{"t00000", fmt.Sprintf("t%05d", 2*workBudget)} { // the first is forgotten, the last is not yet
		c.Token = accessor
		if got := s.apply(t, c)[0].Refusal.GetReason(); got != "TOKEN_INVALID" {
			t.Errorf("token %s: %q", accessor, got)
		}
	}
	if due, ok := nextDue(s.state); s.state.AccessTokenCount() != 1 || !ok || due > s.now {
		t.Errorf("%d expired tokens are left, and the next entry is due at %d", s.state.AccessTokenCount(), due)
	}
}
