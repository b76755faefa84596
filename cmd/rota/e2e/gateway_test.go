package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
	"rota/internal/need"
)

// countingEngine stands in for a vLLM whose answer to any prompt is the numbers behind the last
// one in it. Before the token that dieAt names, once, it breaks the connection.
type countingEngine struct {
	*httptest.Server
	dieAt    int64
	died     atomic.Bool
	requests atomic.Int64
	priority atomic.Int64
}

func newCountingEngine(t *testing.T, dieAt int64) *countingEngine {
	e := &countingEngine{dieAt: dieAt}
	e.Server = httptest.NewServer(http.HandlerFunc(e.answer))
	t.Cleanup(e.Close)
	return e
}

func (e *countingEngine) answer(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Prompt    string
		Priority  int64
		MaxTokens int64 `json:"max_tokens"`
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil || r.URL.Path != "/v1/completions" {
		http.Error(w, "the engine of the test answers completions only", http.StatusBadRequest)
		return
	}
	e.requests.Add(1)
	e.priority.Store(q.Priority)
	words := strings.Fields(q.Prompt)
	next := int64(1)
	if len(words) > 0 {
		if n, err := fmt.Sscan(words[len(words)-1], &next); n == 1 && err == nil {
			next++
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := func(format string, args ...any) {
		fmt.Fprintf(w, format, args...)
		w.(http.Flusher).Flush()
	}
	for i := range q.MaxTokens {
		if e.dieAt == next && e.died.CompareAndSwap(false, true) {
			panic(http.ErrAbortHandler)
		}
		flush(`data: {"id":"cmpl-%p","created":1,"choices":[{"index":0,"text":" %d","finish_reason":null}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n\n", e, next, len(words), i+1)
		next++
	}
	flush(`data: {"id":"cmpl-%p","created":1,"choices":[{"index":0,"text":"","finish_reason":"length"}]}`+"\n\ndata: [DONE]\n\n", e)
}

// completionClient streams a completion with nothing but Python's standard library, and prints
// its text. It says "half" on standard error when it has half of the tokens.
const completionClient = `
import http.client, json, sys
c = http.client.HTTPConnection(sys.argv[1], timeout=60)
body = {"prompt": "count", "stream": True, "max_tokens": 30, "user": "trajectory-" + sys.argv[2]}
c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
r = c.getresponse()
assert r.status == 200, (r.status, r.read())
text, done, ids = "", False, set()
for line in r:
    line = line.decode().strip()
    if line == "data: [DONE]":
        done = True
    elif line.startswith("data: "):
        event = json.loads(line[6:])
        assert "error" not in event, event
        ids.add(event["id"])
        text += event["choices"][0]["text"]
assert done and len(ids) == 1, (done, ids)
print(text.strip())
`

// TestGateway: a stream whose worker dies goes on at another one, which the cluster has chosen
// because the gateway has reported the first; also while the leader changes.
func TestGateway(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1})
	engines := map[string]*countingEngine{"w1": newCountingEngine(t, 12), "w2": newCountingEngine(t, 12)}
	for name, e := range engines {
		_, err := w.api.Workers.RegisterWorker(t.Context(), &rotav1.RegisterWorkerRequest{Spec: &rotav1.WorkerSpec{
			Name: name, Policy: "policy", Url: e.URL, Dialect: rotav1.WorkerDialect_WORKER_DIALECT_VLLM,
			Profile: &rotav1.WorkerProfile{
				Prefill_1K: durationpb.New(10 * time.Millisecond),
				Points:     []*rotav1.WorkerProfilePoint{{BatchSize: 1, TokenTime: durationpb.New(10 * time.Millisecond)}},
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	addr := w.gateway()
	opened, err := w.api.Trajectories.OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{Generation: &rotav1.GenerationSpec{Policy: "policy", TaskClass: "count"}})
	if err != nil {
		t.Fatal(err)
	}
	id := opened.Trajectory.Id
	generation := func() *rotav1.Generation {
		resp, err := w.api.Trajectories.GetTrajectory(t.Context(), &rotav1.GetTrajectoryRequest{Id: id})
		if err != nil {
			return &rotav1.Generation{}
		}
		return resp.Trajectory.GetGeneration()
	}
	w.until("the trajectory has a worker", func() bool { return generation().GetWorker() != "" })
	first := generation().Worker
	// The engine that the trajectory is at breaks off; the other one must not.
	for name, e := range engines {
		e.died.Store(name != first)
	}

	out, err := exec.CommandContext(t.Context(), "python3", "-c", completionClient, addr, fmt.Sprint(id)).CombinedOutput()
	var want strings.Builder
	for i := range 30 {
		fmt.Fprint(&want, i+1, " ")
	}
	if got := strings.TrimSpace(string(out)); err != nil || got != strings.TrimSpace(want.String()) {
		t.Fatalf("%v: %s, want %s", err, out, &want)
	}
	w.until("the turn is known", func() bool { return generation().GetTurns() == 1 })
	if g := generation(); g.OutputTokens != 30 || g.Worker == first {
		t.Errorf("%v, and was at %s", g, first)
	}

	// Without a leader the gateway goes on, and reports later.
	ctx := t.Context()
	leader, err := w.cluster.Leader(ctx, w.api)
	if err != nil {
		t.Fatal(err)
	}
	leader.Kill()
	if out, err := exec.CommandContext(ctx, "python3", "-c", completionClient, addr, fmt.Sprint(id)).CombinedOutput(); err != nil {
		t.Errorf("without a leader: %v: %s", err, out)
	}
	w.until("the second turn is known", func() bool { g := generation(); return g.GetTurns() == 2 && g.GetOutputTokens() == 60 })
}

// gateway starts one for the servers of the world, and returns its address when it has routes.
func (w *world) gateway() string {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p := devcluster.NewProcess("gateway", addr, w.dir, rotatest.Binary(w), "gateway", "--listen", addr, "--servers", strings.Join(w.cluster.Addrs(), ","))
	if err := p.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { p.Stop(10 * time.Second) })
	w.until("the gateway has routes", func() bool {
		resp, err := http.Get("http://" + addr + "/health")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK
	})
	return addr
}
