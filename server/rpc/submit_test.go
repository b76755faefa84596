package rpc_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/client"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
	"rota/server/rpc"
)

// post is curl -X POST -H 'Content-Type: application/json' -d body.
func (w *world) post(method, body string) (status int, answer map[string]any) {
	w.t.Helper()
	resp, err := http.Post(w.url+"/rota.v1."+method, "application/json", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.ProtoMajor != 1 {
		w.t.Errorf("answered with %s", resp.Proto)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		answer = map[string]any{"raw": string(raw)}
	}
	return resp.StatusCode, answer
}

func TestCurlSubmitsAndGets(t *testing.T) {
	w := newWorld(t)
	status, answer := w.post("ActionService/SubmitActions", `{"actions": [{"command": {"argv": ["true"]}}], "requestId": "r1"}`)
	if status != 200 || fmt.Sprint(answer["ids"]) != "[1]" {
		t.Fatalf("submit: %d %v", status, answer)
	}
	if _, answer = w.post("ActionService/SubmitActions", `{"actions": [{"command": {"argv": ["true"]}}], "requestId": "r1"}`); answer["replayed"] != true {
		t.Errorf("the same request again: %v", answer)
	}
	status, answer = w.post("ActionService/GetAction", `{"id": "1"}`)
	action, _ := answer["action"].(map[string]any)
	if status != 200 || action["state"] != "ACTION_STATE_QUEUED" {
		t.Fatalf("get: %d %v", status, answer)
	}
	if s, _ := action["waitingFor"].(string); !strings.Contains(s, "waits for a node") {
		t.Errorf("waiting_for is %q", s)
	}
}

// Each of these is refused with a code, and leaves every table as it was but the
// clock and the request IDs.
func TestBadRequestsChangeNothing(t *testing.T) {
	w := newWorld(t)
	submit := func(request, spec string) string {
		return fmt.Sprintf(`{%s "actions": [%s]}`, request, spec)
	}
	good := `{"command": {"argv": ["true"]}}`
	if status, answer := w.post("ActionService/SubmitActions", submit(`"requestId": "taken",`, good)); status != 200 {
		t.Fatal(answer)
	}
	at := func(d time.Duration) string { return time.Unix(0, w.logTime()).Add(d).UTC().Format(time.RFC3339Nano) }
	cases := []struct{ name, method, body, wantCode, want string }{
		{"malformed", "ActionService/SubmitActions", `{"actions": [`, "invalid_argument", "unexpected"},
		{"empty", "ActionService/SubmitActions", ``, "invalid_argument", "send {}"},
		{"unknown field", "ActionService/SubmitActions", submit("", `{"command": {"argv": ["true"]}, "memory": 5}`), "invalid_argument", "memory"},
		{"unknown method", "ActionService/SubmitAction", submit("", good), "", "404"},
		{"invalid", "ActionService/SubmitActions", submit("", `{"command": {"argv": ["true"]}, "resources": {"cores": 600}}`), "invalid_argument", "actions[0].resources.cores must be at most 512, is 600"},
		{"oversized action", "ActionService/SubmitActions", submit("", `{"command": {"argv": ["echo", "`+strings.Repeat("x", 65<<10)+`"]}}`), "invalid_argument", "actions[0].command"},
		{"oversized request", "ActionService/SubmitActions", submit("", `{"name": "`+strings.Repeat("x", 5<<20)+`"}`), "resource_exhausted", "limit"},
		{"expired", "ActionService/SubmitActions", submit(`"requestId": "old", "expireTime": "`+at(-time.Second)+`",`, good), "deadline_exceeded", "expired"},
		{"remembered for too long", "ActionService/SubmitActions", submit(`"requestId": "long", "expireTime": "`+at(2*time.Hour)+`",`, good), "invalid_argument", "one hour"},
		{"ID of another request", "ActionService/SubmitActions", submit(`"requestId": "taken",`, good+","+good), "already_exists", "different request"},
		{"unknown namespace", "ActionService/SubmitActions", submit(`"namespace": "nowhere",`, good), "not_found", "nowhere"},
		{"unknown pool", "ActionService/SubmitActions", submit("", `{"command": {"argv": ["true"]}, "pool": "nowhere"}`), "not_found", "nowhere"},
		{"unknown trajectory", "ActionService/SubmitActions", submit("", `{"command": {"argv": ["true"]}, "trajectoryId": 99}`), "not_found", "99"},
		{"unknown action", "ActionService/GetAction", `{"id": 99}`, "not_found", "there is no action 99"},
		{"no action", "ActionService/GetAction", `{}`, "invalid_argument", "id is required"},
		{"unknown trajectory to close", "TrajectoryService/CloseTrajectory", `{"id": 99}`, "not_found", "99"},
		{"unknown node", "NodeService/DrainNode", `{"name": "nowhere"}`, "not_found", "nowhere"},
		{"forged page", "ActionService/ListActions", `{"pageToken": "AAAAAAAAAAAAAAAAAAAAAA"}`, "invalid_argument", "page_token"},
		{"list of nowhere", "ActionService/ListActions", `{"namespace": "nowhere"}`, "not_found", "nowhere"},
		{"report of an unknown node", "AgentService/ReportAttempts", `{"name": "nowhere", "incarnation": 1, "reports": [{"actionId": 1, "attempt": 1, "result": {"reason": "END_REASON_EXITED"}}]}`, "not_found", "nowhere"},
		{"report without result", "AgentService/ReportAttempts", `{"name": "n", "incarnation": 1, "reports": [{"actionId": 1, "attempt": 1}]}`, "invalid_argument", "reports[0].result is required"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := w.machine.Fork()
			status, answer := w.post(c.method, c.body)
			if code, _ := answer["code"].(string); code != c.wantCode || status < 400 {
				t.Errorf("answered %d %v, want %q", status, answer, c.wantCode)
			}
			if text := fmt.Sprint(status, answer); !strings.Contains(text, c.want) {
				t.Errorf("answered %v, want something about %q", answer, c.want)
			}
			sameTables(t, before, w.machine.Fork())
		})
	}
}

// sameTables compares what a refused request must not change.
func sameTables(t *testing.T, before, after *state.State) {
	t.Helper()
	b, a := *before.Meta(), *after.Meta()
	b.Now, b.Applied = a.Now, a.Applied
	if !reflect.DeepEqual(a, b) {
		t.Errorf("meta changed from %+v to %+v", b, a)
	}
	if before.Counts() != after.Counts() || before.QueuedBytes() != after.QueuedBytes() {
		t.Errorf("counts changed from %+v to %+v", before.Counts(), after.Counts())
	}
}

func TestBatchedSubmissionsAreRefusedOneByOne(t *testing.T) {
	w := newWorld(t)
	resp, err := w.actions().BatchSubmitActions(t.Context(), &rotav1.BatchSubmitActionsRequest{Requests: []*rotav1.SubmitActionsRequest{
		{RequestId: "a", Actions: []*rotav1.ActionSpec{spec("true"), spec("true")}},
		{RequestId: "b", Actions: []*rotav1.ActionSpec{{}}},
		{RequestId: "c", Namespace: "nowhere", Actions: []*rotav1.ActionSpec{spec("true")}},
		{RequestId: "a", Actions: []*rotav1.ActionSpec{spec("true"), spec("true")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := resp.Results
	if ids := r[0].GetResponse().GetIds(); len(ids) != 2 || ids[1] != ids[0]+1 {
		t.Errorf("first: %v", r[0])
	}
	if e := r[1].GetError(); e.GetReason() != "INVALID" || !strings.HasPrefix(e.Message, "actions[0].command is required") {
		t.Errorf("second: %v", r[1])
	}
	if e := r[2].GetError(); e.GetReason() != "NAMESPACE_NOT_FOUND" || connect.Code(e.Code) != connect.CodeNotFound {
		t.Errorf("third: %v", r[2])
	}
	if again := r[3].GetResponse(); !again.GetReplayed() || again.Ids[0] != r[0].GetResponse().Ids[0] {
		t.Errorf("fourth: %v", r[3])
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		err    error
		code   connect.Code
		reason string
		retry  bool
		say    string
	}{
		{errUnknownOutcome, connect.CodeUnavailable, "UNKNOWN_OUTCOME", true, "repeat it with the same request_id"},
		{errNoLeader, connect.CodeUnavailable, "NO_LEADER", true, "try again"},
		{io.ErrUnexpectedEOF, connect.CodeInternal, "INTERNAL", false, "the log of server s1"},
	} {
		w.lost = func(*logv1.Command) error { return c.err }
		_, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{spec("true")}})
		d := client.Detail(err)
		if connect.CodeOf(err) != c.code || d.GetReason() != c.reason || (d.RetryDelay != nil) != c.retry || !strings.Contains(d.Message, c.say) {
			t.Errorf("%v becomes %v with %v", c.err, err, d)
		}
	}
}

func TestCompressedBombsAreRefused(t *testing.T) {
	w := newWorld(t)
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	z.Write(bytes.Repeat([]byte(" "), 64<<20))
	z.Close()
	size := body.Len()
	req, _ := http.NewRequest("POST", w.url+"/rota.v1.ActionService/SubmitActions", &body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests { // Connect's status for RESOURCE_EXHAUSTED
		t.Errorf("64 MiB of blanks in %d bytes are answered with %d", size, resp.StatusCode)
	}
}

// nullProposer accepts everything at once, to measure what is around Raft.
type nullProposer struct{ *world }

func (nullProposer) Propose(_ context.Context, commands ...*logv1.Command) ([]*logv1.Result, error) {
	results := make([]*logv1.Result, len(commands))
	for i := range results {
		results[i] = &logv1.Result{FirstId: 1, Count: 1}
	}
	return results, nil
}

func BenchmarkSubmitActions(b *testing.B) {
	w := newWorld(b, func(d *rpc.Deps) { d.Replica = nullProposer{d.Replica.(*world)} })
	req := &rotav1.SubmitActionsRequest{
		RequestId: "r", ExpireTime: timestamppb.New(time.Unix(0, w.logTime()).Add(time.Minute)),
		Actions: []*rotav1.ActionSpec{spec("go", "test", "-count=1", "./...")},
	}
	b.Run("handler", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.server.SubmitActions(b.Context(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
	actions := w.actions()
	b.Run("HTTP", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := actions.SubmitActions(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
