package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	want := "create foreground streaming background measuring stdin terminal tooLong files watching listing connecting pausing snapshots forking timeout kill"
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

// TestE2BWhileTheLeaderIsLost: programs create sandboxes, and upload a file, by a server that
// follows while the leader is killed. All of that succeeds, and there is one sandbox for each
// call.
func TestE2BWhileTheLeaderIsLost(t *testing.T) {
	t.Parallel()
	templates := filepath.Join(t.TempDir(), "templates.json")
	if err := os.WriteFile(templates, []byte(`{"base": {"memory_bytes": 1048576}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1, ServerArgs: []string{"--e2b", "--e2b-templates", templates}})
	leader, url := w.leader(nil), "http://"+w.follower().Addr
	sandbox, err := w.createSandbox(url)
	if err != nil {
		t.Fatal(err)
	}
	half := make([]byte, 4<<20)
	body, sender := io.Pipe()
	uploaded := make(chan error, 1)
	go func() {
		uploaded <- w.post(url+"/files?path=large", "application/octet-stream", sandbox, body, nil)
	}()
	if _, err := sender.Write(half); err != nil {
		t.Fatal(err)
	}
	const creators, each = 4, 10
	var creating sync.WaitGroup
	begun, errs := make(chan struct{}, creators*each), make(chan error, creators*each)
	for range creators {
		creating.Go(func() {
			for range each {
				begun <- struct{}{}
				_, err := w.createSandbox(url)
				errs <- err
			}
		})
	}
	for range 2 * creators {
		<-begun
	}
	w.kill(leader)
	if _, err := sender.Write(half); err != nil {
		t.Fatal(err)
	}
	_ = sender.Close()
	if err := <-uploaded; err != nil {
		t.Errorf("upload: %v", err)
	}
	creating.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Errorf("create: %v", err)
		}
	}
	list, err := w.api.Trajectories.ListTrajectories(t.Context(), &rotav1.ListTrajectoriesRequest{PageSize: 1000})
	if err != nil || len(list.Trajectories) != creators*each+1 {
		t.Errorf("%d sandboxes are open after %d calls, %v", len(list.GetTrajectories()), creators*each+1, err)
	}
	resp, err := http.DefaultClient.Do(w.request(http.MethodHead, url+"/files?path=large", "", sandbox, http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.ContentLength != int64(2*len(half)) {
		t.Errorf("the file has %d bytes", resp.ContentLength)
	}
}

// createSandbox creates a sandbox and returns its name.
func (w *world) createSandbox(url string) (string, error) {
	var made struct {
		SandboxID string `json:"sandboxID"`
	}
	err := w.post(url+"/sandboxes", "application/json", "", strings.NewReader(`{"templateID":"base","timeout":3600}`), &made)
	return made.SandboxID, err
}

// post makes a request of the API of E2B.
func (w *world) post(url, contentType, sandbox string, body io.Reader, into any) error {
	resp, err := http.DefaultClient.Do(w.request(http.MethodPost, url, contentType, sandbox, body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("%s: %s", resp.Status, raw)
	case into == nil:
		return nil
	}
	return json.Unmarshal(raw, into)
}

func (w *world) request(method, url, contentType, sandbox string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(w.Context(), method, url, body)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	if sandbox != "" {
		req.Header.Set("E2b-Sandbox-Id", sandbox)
	}
	return req
}
