package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
)

// TestExamplesOfTheAPI runs the examples of docs/api.md, in the order of the file that the page is
// generated from: each does what it says, or is refused with the reason that the page has.
func TestExamplesOfTheAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "api", "internal", "docgen", "examples.txt"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "api.md"))
	if err != nil {
		t.Fatal(err)
	}
	run := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		method, rest, _ := strings.Cut(line, " ")
		body, reasons, _ := strings.Cut(rest, " ! ")
		if !bytes.Contains(page, []byte("rpc "+method+" '"+body+"'\n")) {
			t.Errorf("docs/api.md has no such example: run make generate\n%s", line)
		}
		got := reasonOf(t, "http://"+w.cluster.Addrs()[0]+"/rota.v1."+method, body)
		if want := strings.Split(reasons, "|"); !slices.Contains(want, got) {
			t.Errorf("%s %s\nrefused with %q, want %q", method, body, got, want)
		}
		run++
	}
	if run < 100 {
		t.Errorf("there are %d examples only", run)
	}
}

// TestRotaRunsInAnAction: what an action is told of itself says nothing to the rota that it runs.
func TestRotaRunsInAnAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	if out := w.must(w.addrs(), "run", "--", rotatest.Binary(t), "--addr", w.addrs(), "node", "list"); !strings.Contains(out, w.cluster.Agents[0].Name) {
		t.Errorf("nodes, as an action sees them: %s", out)
	}
}

// reasonOf makes a call as curl does, and returns the reason of its refusal; "": none.
func reasonOf(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		return ""
	}
	var refusal struct {
		Message string
		Details []struct {
			Debug struct{ Reason string }
		}
	}
	if err := json.Unmarshal(raw, &refusal); err != nil || len(refusal.Details) == 0 {
		return string(raw) // such as a field that does not exist
	}
	return refusal.Details[0].Debug.Reason
}
