package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// rewardServer is a replica: it answers what verl and slime send, after a little work.
const rewardServer = `
import http.server, json, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(call.get("work", 0.1))
        if self.path == "/classify":
            answer = {"data": [{"probs": [0.25]}], "model": call["model"], "activation": call["activation"]}
        elif self.path == "/v1/embeddings":
            answer = {"data": [{"embedding": [0.1, 0.75]}]}
        else:
            answer = 2 * int(call["label"])
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
`

// function registers the server above as a reward function.
func (w *world) function(name string, change func(*rotav1.RewardSpec)) {
	w.Helper()
	spec := &rotav1.RewardSpec{
		Name: name, Max: 4, Concurrency: 2, Idle: durationpb.New(time.Second), Timeout: durationpb.New(20 * time.Second), Retries: proto.Uint32(3),
		Command: &rotav1.Command{Argv: []string{"python3", "-c", rewardServer, "{{port}}"}, Env: map[string]string{"E2E_WORLD": w.dir}},
	}
	if change != nil {
		change(spec)
	}
	if _, err := w.api.Rewards.RegisterReward(w.Context(), &rotav1.RegisterRewardRequest{Spec: spec}); err != nil {
		w.Fatal(err)
	}
}

// reward returns a function as the cluster knows it; empty while no server answers.
func (w *world) reward(name string) *rotav1.Reward {
	resp, err := w.api.Rewards.GetReward(w.Context(), &rotav1.GetRewardRequest{Name: name})
	if err != nil {
		return &rotav1.Reward{Running: 1} // not known to be at rest
	}
	return resp.Reward
}

// replicaPids are the processes of the replicas that are ready.
func (w *world) replicaPids(name string) (pids []int) {
	for _, p := range w.reward(name).GetReplicas() {
		if p.State == rotav1.RewardReplicaState_REWARD_REPLICA_STATE_READY {
			pids = append(pids, processes(w.marker(), fmt.Sprintf("ROTA_ACTION_ID=%d", p.ActionId))...)
		}
	}
	return pids
}

// ask calls a function, and returns the status and the answer.
func ask(url, body string) (int, string, error) {
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(bytes.TrimSpace(answer)), err
}

// TestRewards: a function has no replica until it is called, as many as its calls need, and none
// when they are over. Replicas and the leader are killed meanwhile, and each call is answered once.
func TestRewards(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 2})
	w.function("math", nil)
	url := "http://" + w.gateway() + "/v1/rewards/math"
	if n := len(w.reward("math").Replicas); n != 0 {
		t.Fatalf("%d replicas before the first call", n)
	}

	const callers, each = 12, 12
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			for k := range each {
				label := i*each + k
				body, _ := json.Marshal(map[string]any{"prompt": "1+1=", "response": "2", "label": fmt.Sprint(label)})
				status, answer, err := ask(url, string(body))
				if err != nil || status != http.StatusOK || answer != fmt.Sprint(2*label) {
					t.Errorf("call %d: %v, status %d: %s", label, err, status, answer)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { calls.Wait(); close(done) }()
	w.until("replicas are ready", func() bool { return len(w.replicaPids("math")) >= 2 })
	w.signal(w.replicaPids("math")[0], syscall.SIGKILL)
	w.kill(w.leader(nil))
	w.until("a replica is ready without the old leader", func() bool {
		select {
		case <-done:
			return true
		default:
			return len(w.replicaPids("math")) >= 1
		}
	})
	if pids := w.replicaPids("math"); len(pids) > 0 {
		w.signal(pids[len(pids)-1], syscall.SIGKILL)
	}
	<-done

	w.until("all calls are counted", func() bool { return w.reward("math").Calls == callers*each })
	w.until("no replica is left", func() bool { r := w.reward("math"); return r.Running == 0 && len(r.Replicas) == 0 })
	w.until("no process is left", func() bool { return len(processes(w.marker())) == 0 })
	r := w.reward("math")
	if r.FailedCalls != 0 || r.CoreTime.AsDuration() <= 0 || r.CallTime.AsDuration() < callers*each*100*time.Millisecond || r.Starts < 3 {
		t.Errorf("in the end: %v", r)
	}
	if status, answer, err := ask(url, `{"label": "21"}`); err != nil || status != http.StatusOK || answer != "42" {
		t.Errorf("from zero again: %v, status %d: %s", err, status, answer)
	}
}

// What verl's reward loop sends to its router, and slime to its rm_url, reaches a replica byte for
// byte, and so does the answer.
func TestRewardProtocols(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	w.function("judge", func(s *rotav1.RewardSpec) {
		s.Max, s.Concurrency, s.Queue, s.Protocol = 1, 1, 1, rotav1.RewardProtocol_REWARD_PROTOCOL_VERL
	})
	url := "http://" + w.gateway() + "/v1/rewards/judge"
	for _, c := range []struct{ path, body, want string }{
		{"", `{"prompt": "1+1=", "response": "2", "label": "8"}`, "16"},
		{"/classify", `{"model": "rm", "input": "<|user|>", "activation": false}`, `{"data": [{"probs": [0.25]}], "model": "rm", "activation": false}`},
		{"/v1/embeddings", `{"model": "rm", "input": "<|user|>"}`, `{"data": [{"embedding": [0.1, 0.75]}]}`},
	} {
		if status, answer, err := ask(url+c.path, c.body); err != nil || status != http.StatusOK || answer != c.want {
			t.Errorf("%s: %v, status %d: %s, want %s", c.path, err, status, answer, c.want)
		}
	}
	// One call runs and one waits. verl gives up on a 4xx, so a third is told that there is no room by
	// a status on which it tries again.
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			if status, answer, err := ask(url, `{"label": "1", "work": 2}`); err != nil || status != http.StatusOK {
				t.Errorf("%v, status %d: %s", err, status, answer)
			}
		})
	}
	w.until("one call runs and one waits", func() bool { r := w.reward("judge"); return r.Running == 1 && r.Waiting == 1 })
	if status, answer, err := ask(url, `{"label": "1"}`); err != nil || status != http.StatusServiceUnavailable || !strings.Contains(answer, "queue_full") {
		t.Errorf("a full queue: %v, status %d: %s", err, status, answer)
	}
	calls.Wait()
	if status, answer, err := ask("http://"+strings.Split(url, "/")[2]+"/v1/rewards/nobody", `{}`); err != nil || status != http.StatusNotFound {
		t.Errorf("an unknown function: %v, status %d: %s", err, status, answer)
	}
	if _, err := w.api.Rewards.RemoveReward(t.Context(), &rotav1.RemoveRewardRequest{Name: "judge"}); err != nil {
		t.Fatal(err)
	}
	w.until("its process is gone", func() bool { return len(processes(w.marker())) == 0 })
}
