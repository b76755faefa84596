package observe

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/telemetry/tracing/receiver"
)

// TestOneActionIsOneTrace from the client to the process: by the Go client, by a header, and of a
// client that has no trace.
func TestOneActionIsOneTrace(t *testing.T) {
	r := receiver.New(t)
	w := newWorld(t, 3, "--otlp-endpoint", r.URL)
	w.restartAgent("--otlp-endpoint", r.URL)

	const traceID, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	ctx := client.WithTraceparent(t.Context(), "00-"+traceID+"-"+span+"-01")
	file := filepath.Join(t.TempDir(), "context")
	if _, err := w.api.Submit(ctx, &rotav1.ActionSpec{
		Command: &rotav1.Command{Argv: []string{"sh", "-c", "echo $TRACEPARENT >" + file + ".new; mv " + file + ".new " + file + "; sleep 0.05"}},
	}); err != nil {
		t.Fatal(err)
	}
	spans := w.trace(r, traceID)
	for child, parent := range map[string]string{
		"commit": "submit", "queue": "submit", "dispatch": "submit", "attempt": "dispatch", "start": "attempt", "process": "attempt", "report": "attempt",
	} {
		if spans[child].Parent != spans[parent].ID {
			t.Errorf("%s is under span %q, want %s (%s)", child, spans[child].Parent, parent, spans[parent].ID)
		}
	}
	if spans["submit"].Parent != span || spans["submit"].Service != "rota-server" || spans["attempt"].Service != "rota-agent" {
		t.Errorf("%+v", spans)
	}
	if p := spans["process"]; p.EndNS-p.StartNS < 50e6 {
		t.Errorf("the process took %d ns", p.EndNS-p.StartNS)
	}
	got, err := os.ReadFile(file)
	if want := "00-" + traceID + "-" + spans["attempt"].ID + "-01\n"; err != nil || string(got) != want {
		t.Errorf("the command has the context %q, want %q; %v", got, want, err)
	}

	const other = "0af7651916cd43dd8448eb211c80319d"
	body := `{"actions":[{"command":{"argv":["true"]}}]}`
	req, err := http.NewRequest(http.MethodPost, "http://"+w.cluster.Servers[1].Addr+"/rota.v1.ActionService/SubmitActions", bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", "00-"+other+"-"+span+"-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	resp.Body.Close()
	if spans := w.trace(r, other); spans["submit"].Parent != span {
		t.Errorf("by header: %+v", spans)
	}

	before := r.Traces()
	w.work() // four actions, each of which is a trace of its own
	w.until("four traces have begun", func() bool { return len(r.Traces()) == len(before)+4 })
}

// trace waits until the trace of an action has all its spans.
func (w *world) trace(r *receiver.Receiver, id string) (spans map[string]receiver.Span) {
	w.Helper()
	w.until("all spans of "+id+" have arrived", func() bool {
		spans = r.Spans(id)
		return len(spans) >= 8
	})
	return spans
}

// restartAgent starts the agent again, with more flags.
func (w *world) restartAgent(args ...string) {
	w.Helper()
	agent := w.cluster.Agents[0]
	w.cluster.StopAgents()
	agent.Args = append(agent.Args, args...)
	if err := agent.Start(); err != nil {
		w.Fatal(err)
	}
	w.until("the agent is ready", func() bool {
		status, text := w.get(w.agent, "/readyz")
		return status == http.StatusOK && !strings.Contains(text, "reason")
	})
}
