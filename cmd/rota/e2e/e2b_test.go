package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// TestE2B: the official SDK of E2B for JavaScript opens sandboxes, runs commands, streams, writes
// to standard inputs and a terminal, handles and watches files, lists, and ends, all at a server
// with no more than its URL and a key: any key first, and then a token, which the cluster insists
// on from then on.
func TestE2B(t *testing.T) {
	t.Parallel()
	dir := need.NodePackages(t, "testdata/e2b")
	need.Tool(t, "bash")
	w := newWorld(t, patient, devcluster.Config{Servers: 2, Agents: 1, ServerArgs: []string{"--e2b"}})
	w.useE2B(dir, "any")
	made, err := w.api.Access.BootstrapToken(t.Context(), &rotav1.BootstrapTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	w.useE2B(dir, made.Secret)
	out, err := w.e2b(t.Context(), dir, "any").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Unauthorized") {
		t.Errorf("without a token: %v %s", err, out)
	}
}

// useE2B has the SDK do all that it can with a key.
func (w *world) useE2B(dir, key string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 5*patience)
	defer cancel()
	client := w.e2b(ctx, dir, key)
	var complaint bytes.Buffer
	client.Stderr = &complaint
	out, err := client.Output()
	want := "create foreground streaming background stdin terminal tooLong files watching listing connecting pausing timeout kill"
	if said := strings.Join(strings.Fields(string(out)), " "); err != nil || said != want {
		w.Fatalf("it did %q, %v\n%s", said, err, &complaint)
	}
}

// e2b is the program that uses the SDK.
func (w *world) e2b(ctx context.Context, dir, key string) *exec.Cmd {
	client := exec.CommandContext(ctx, "node", "client.mjs", "http://"+w.cluster.Servers[1].Addr, key)
	client.Dir = dir
	return client
}
