package rights

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

const example = `# What the search team may do.
in search-*
  action read submit cancel
  trajectory *   # all of it
in *
  node read
`

func TestAPolicy(t *testing.T) {
	rules, err := Parse(example)
	if err != nil || len(rules) != 3 {
		t.Fatalf("%v, %v", rules, err)
	}
	s := NewSet(rules)
	for _, test := range []struct {
		noun, verb, namespace string
		want                  bool
	}{
		{"action", Read, "search-1", true},
		{"action", Cancel, "search-", true},
		{"action", Operate, "search-1", false},
		{"action", Read, "search", false},
		{"action", Read, "default", false},
		{"action", Read, "", false},
		{"trajectory", Operate, "search-1", true},
		{"node", Read, "", true},
		{"node", Operate, "", false},
		{"quota", Read, "", false},
		{Access, Read, "", false},
		{"nothing", Read, "search-1", false},
	} {
		if got := s.Allows(test.noun, test.verb, test.namespace); got != test.want {
			t.Errorf("%s %s in %q: %v", test.verb, test.noun, test.namespace, got)
		}
	}
	if !s.AllowsSomewhere("action", Read) || s.AllowsSomewhere("job", Read) || !s.AllowsSomewhere("node", Read) || s.AllowsSomewhere("node", Operate) {
		t.Error("what is allowed somewhere is not")
	}
	if zero := (Set{}); zero.Allows("action", Read, "a") || zero.AllowsSomewhere("action", Read) {
		t.Error("without a rule something is allowed")
	}
	if c := ClientDefault(); !c.Allows("action", Submit, "") || c.Allows("node", Operate, "") || c.AllowsSomewhere(Access, Read) {
		t.Error("a client's certificate allows other things than it should")
	}
	if all := Join(s, Everything()); !all.Allows(Access, Operate, "") {
		t.Error("sets do not add up")
	}
}

func TestPoliciesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"action read":                        "line 1",
		"in a\n  nobody read":                `no noun "nobody"`,
		"in a\n  action write":               `no verb "write"`,
		"in a\n  action":                     "needs verbs",
		"in a\n  node read":                  "in *",
		"in A\n  action read":                `pattern "A"`,
		"in a*b\n  action read":              `pattern "a*b"`,
		strings.Repeat("#", PolicyTextMax+1): "split it",
		"in a\n" + strings.Repeat("action read\n", RulesMax+1): "split it",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: what is read as a policy is written so that it is read as the same.
func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add("in read\nnamespace *\n")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Parse(text)
		if err != nil {
			return
		}
		if err := Check(rules); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		again, err := Parse(Format(rules))
		if err != nil || len(again) != len(rules) {
			t.Fatalf("%q becomes %q: %v", text, Format(rules), err)
		}
		for i := range rules {
			if !proto.Equal(rules[i], again[i]) {
				t.Fatalf("%v becomes %v", rules[i], again[i])
			}
		}
	})
}

func TestSecrets(t *testing.T) {
	secret, hash := NewSecret()
	other, _ := NewSecret()
	again, err := HashSecret(secret)
	first, second := NewAccessor(), NewAccessor()
	if err != nil || !SameHash(hash, again) || len(hash) != 32 || secret == other || !IsSecret(secret) || first == second {
		t.Errorf("%q has hash %x, then %x, %v", secret, hash, again, err)
	}
	if bytes.Contains(hash, []byte(secret)) || SameHash(hash, hash[:31]) {
		t.Error("the hash says too much, or a part of it counts")
	}
	for _, wrong := range []string{"", "rota_", secret[:len(secret)-1], secret + "A", "rotb_" + secret[5:], secret[:10] + "\n" + secret[11:], secret + "\n"} {
		if _, err := HashSecret(wrong); !errors.Is(err, ErrSecret) {
			t.Errorf("%q is taken for a secret: %v", wrong, err)
		}
	}
}

// FuzzBearer: no header makes it panic, and what is returned can stand in a header.
func FuzzBearer(f *testing.F) {
	f.Add("Bearer rota_x")
	f.Add("bearer  a")
	f.Add("Basic a")
	f.Fuzz(func(t *testing.T, header string) {
		token, err := Bearer(header)
		if err != nil && token != "" || strings.ContainsAny(token, " \r\n\t") || (header == "") != (token == "" && err == nil) {
			t.Errorf("%q: %q, %v", header, token, err)
		}
		_, _ = HashSecret(token)
	})
}

func TestTheTokenOfAClient(t *testing.T) {
	t.Setenv(EnvToken, " rota_env\n")
	if got, err := FromEnvironment(""); got != "rota_env" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	path := filepath.Join(t.TempDir(), "token")
	for _, test := range []struct {
		content string
		mode    os.FileMode
		want    string
	}{{"rota_file\n", 0o600, "rota_file"}, {"rota_file\n", 0o644, ""}, {"\n", 0o600, ""}} {
		if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, test.mode); err != nil {
			t.Fatal(err)
		}
		if got, err := FromEnvironment(path); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q with mode %v: %q, %v", test.content, test.mode, got, err)
		}
	}
	if rule := (&rotav1.AccessRule{}); CheckRule(rule) == nil {
		t.Error("an empty rule is none")
	}
}
