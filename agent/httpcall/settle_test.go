package httpcall

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

// settled makes a call whose quotas are settled by rules, and returns what it says of them.
func settled(t *testing.T, url, rules string) (made, string) {
	t.Helper()
	text, err := Encode(&rotav1.HttpCall{Url: url})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "usage")
	env := map[string]string{Variable: text, usageVariable: path, SettleVariable: rules}
	var out, errs strings.Builder
	code := Main(t.Context(), func(name string) string { return env[name] }, &out, &errs)
	said, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return made{code, out.String(), errs.String()}, string(said)
}

// TestACallIsSettled: what the answer says that it used is told, and the answer is passed on as
// it is; whatever cannot be found out changes nothing of how the call ends.
func TestACallIsSettled(t *testing.T) {
	const usual = `{"usage":{"total_tokens":42,"cost":0.011}}`
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/usual":
			fmt.Fprint(w, usual)
		case "/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":7}}\n\ndata: [DONE]\n\n")
		case "/refused":
			http.Error(w, usual, http.StatusBadRequest)
		case "/long":
			fmt.Fprint(w, strings.Repeat(" ", answerBytesMax)+usual)
		case "/none":
			fmt.Fprint(w, "{}")
		}
	})
	for _, c := range []struct {
		path, rules, said, errors string
		code                      int
	}{
		{"/usual", "tokens=usage", "tokens 42\n", "", ExitOK},
		{"/usual", "tokens=usage.total_tokens\ncents=usage.cost*100", "tokens 42\ncents 2\n", "", ExitOK},
		{"/usual", "tokens=none\ncents=usage.cost*100", "cents 2\n", "", ExitOK},
		{"/stream", "tokens=usage", "tokens 7\n", "", ExitOK},
		{"/refused", "tokens=usage", "tokens 42\n", "status 400 is not accepted", ExitNotAccepted},
		{"/long", "tokens=usage", "", "the answer is longer than 8 MiB", ExitOK},
		{"/none", "tokens=usage", "", "has no number at usage, for quota tokens", ExitOK},
		{"/usual", "tokens=a..b", "", "is not a path", ExitOK},
		{"/usual", "", "", "", ExitOK},
	} {
		got, said := settled(t, s.URL+c.path, c.rules)
		if got.code != c.code || said != c.said || !strings.Contains(got.errors, c.errors) {
			t.Errorf("%s by %q: %q with exit code %d and %q, want %q with %d and %q", c.path, c.rules, said, got.code, got.errors, c.said, c.code, c.errors)
		}
		if c.path == "/usual" && got.out != usual {
			t.Errorf("%s by %q: the answer becomes %q", c.path, c.rules, got.out)
		}
	}
}
