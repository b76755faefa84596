package e2b

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// TestFork: each fork is a sandbox like the first one or says what is wrong with it, and the snapshot of
// all of them is gone afterwards.
func TestFork(t *testing.T) {
	c, server, _ := world(t)
	c.labels = map[string]string{templateLabel: baseTemplate, "run": "9"}
	var opened atomic.Int32
	c.before = func(_ context.Context, method string, req any) error {
		if method == "OpenTrajectory" && opened.Add(1) == 2 {
			return refusal(connect.CodeResourceExhausted, "NODE_FULL", 0)
		}
		return nil
	}
	status, body, _ := call(t, "POST", server.URL+"/sandboxes/t7/fork", strings.NewReader(`{"count": 3, "timeout": 60}`), "Content-Type", "application/json")
	var got []forked
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusCreated || len(got) != 3 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	failed := 0
	for _, one := range got {
		switch {
		case one.Error != nil && one.Sandbox == nil:
			failed++
			if one.Error.Code != http.StatusTooManyRequests {
				t.Errorf("the fork that failed: %+v", one.Error)
			}
		case one.Sandbox == nil || one.Sandbox.SandboxID != "t7" || one.Sandbox.TemplateID != baseTemplate:
			t.Errorf("a fork: %+v", one.Sandbox)
		}
	}
	if failed != 1 || c.kept != nil {
		t.Errorf("%d forks failed, the snapshot is %v", failed, c.kept)
	}
	if req := c.opened; req.SnapshotId != 3 || req.Namespace != "team" || req.Labels["run"] != "9" || req.Timeout.AsDuration().Seconds() != 60 || req.Spec != nil {
		t.Errorf("opened with %v", req)
	}
}

// TestForkRefused: what is refused makes no sandbox and leaves no snapshot.
func TestForkRefused(t *testing.T) {
	for _, x := range []struct {
		body   string
		fails  bool
		status int
	}{
		{`{"count": 0}`, false, http.StatusBadRequest},
		{`{"count": 65}`, false, http.StatusBadRequest},
		{`{"count": -1}`, false, http.StatusBadRequest},
		{`{"timeout": 0}`, false, http.StatusBadRequest},
		{`{"count": "many"}`, false, http.StatusBadRequest},
		{`{}`, true, http.StatusInternalServerError},
		{``, false, http.StatusCreated},
	} {
		c, server, _ := world(t)
		c.before = func(_ context.Context, method string, _ any) error {
			if method == "GetSnapshot" && x.fails {
				c.kept.State = rotav1.SnapshotState_SNAPSHOT_STATE_FAILED
			}
			return nil
		}
		var body io.Reader
		if x.body != "" {
			body = strings.NewReader(x.body)
		}
		status, answer, _ := call(t, "POST", server.URL+"/sandboxes/t7/fork", body, "Content-Type", "application/json")
		if made := c.opened != nil; status != x.status || made != (status == http.StatusCreated) || c.kept != nil {
			t.Errorf("%s: %d %s, opened %v, snapshot %v", x.body, status, answer, c.opened, c.kept)
		}
	}
	_, server, _ := world(t)
	if status, answer, _ := call(t, "POST", server.URL+"/sandboxes/t8/fork", nil); status != http.StatusNotFound {
		t.Errorf("a sandbox that has ended: %d %s", status, answer)
	}
}

// TestForkWithoutItsCaller: a caller that leaves before the answer leaves no sandbox and no snapshot, though
// one of the forks has a node already.
func TestForkWithoutItsCaller(t *testing.T) {
	c, server, _ := world(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	c.state = rotav1.TrajectoryState_TRAJECTORY_STATE_PENDING
	closed, deleted := make(chan struct{}, 2), make(chan struct{}, 1)
	var asked atomic.Int32
	c.before = func(ctx context.Context, method string, _ any) error {
		switch method {
		case "GetTrajectory": // of the sandbox, of a fork that has a node, and of one that has none yet
			if asked.Add(1) == 3 {
				leave()
				<-ctx.Done()
			}
		case "CloseTrajectory":
			closed <- struct{}{}
		case "DeleteSnapshot":
			deleted <- struct{}{}
		}
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/sandboxes/t7/fork", strings.NewReader(`{"count": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Error("there was an answer")
	}
	<-closed
	<-closed
	<-deleted
}
