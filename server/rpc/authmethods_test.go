package rpc_test

import (
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

// TestWhereKeysOfAnIssuerMayBe: what a method says of them fits together, and names the field that does not.
func TestWhereKeysOfAnIssuerMayBe(t *testing.T) {
	s := newSecured(t)
	for text, m := range map[string]*rotav1.AuthMethod{
		"":                                      {JwksCaFile: "/etc/ca.crt"},
		"jwks_ca_file must be an absolute path": {JwksCaFile: "ca.crt"},
		"jwks_ca_file and jwks_file exclude":    {JwksCaFile: "/etc/ca.crt", JwksFile: "/etc/keys.json"},
		"jwks_file must be an absolute path":    {JwksFile: "keys.json"},
		"jwks_url and jwks_file exclude":        {JwksUrl: "https://issuer.example/keys", JwksFile: "/etc/keys.json"},
		"jwks_url must be a URL with https":     {JwksUrl: "http://issuer.example/keys", JwksCaFile: "/etc/ca.crt"},
	} {
		m.Name, m.Issuer, m.Audiences = "m", "https://issuer.example", []string{"rota"}
		m.Mappings = []*rotav1.ClaimMapping{{Claim: "sub", Pattern: "s", Policies: []string{"management"}}}
		_, err := s.root.Access.PutAuthMethod(t.Context(), &rotav1.PutAuthMethodRequest{Method: m})
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %q", m, err, text)
		}
	}
	resp, err := s.root.Access.GetAuthMethod(t.Context(), &rotav1.GetAuthMethodRequest{Name: "m"})
	if err != nil || resp.Method.JwksCaFile != "/etc/ca.crt" {
		t.Errorf("%v, %v", resp, err)
	}
}
