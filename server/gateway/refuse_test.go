package gateway

import (
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

// A worker that refuses to go on with an answer has not failed. Otherwise one request could take many
// workers out of service.
func TestAWorkerThatRefusesToGoOn(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	engines[0].set(once(3, cutOff))
	engines[1].set(once(-1, answer400))
	moveWhenFailed(t, c, "w1", "w2")
	got := readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","stream":true}`))
	if j := join(t, got); !strings.HasPrefix(j.problem, "cannot_continue") || !strings.Contains(j.problem, "too long") || j.done != 0 {
		t.Errorf("%s", got)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if turns, _, _, failed := c.reported(7); turns != 0 || failed["w2"] != "" || engines[1].count() != 1 {
		t.Errorf("%d turns, %d requests, failed: %v", turns, engines[1].count(), failed)
	}
}

// Nor has one that refuses a request in its stream: the client hears from the engine why.
func TestARequestThatIsRefusedInItsStream(t *testing.T) {
	for _, at := range []int{0, 3} {
		c, engines, g := world(t, dialectSGLang, nil)
		engines[0].set(once(at, sayRefusal))
		got := readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","stream":true}`))
		if events := strings.Split(got, "\n\n"); len(events) != at+2 || !strings.Contains(events[at], "too long") {
			t.Errorf("%s", got)
		}
		if err := g.Stop(); err != nil {
			t.Fatal(err)
		}
		if turns, _, _, failed := c.reported(7); turns != 0 || len(failed) != 0 || engines[0].count() != 1 {
			t.Errorf("%d turns, %d requests, failed: %v", turns, engines[0].count(), failed)
		}
	}
}

// A stream that cannot go on and ends early is no answer.
func TestAnEndThatIsNone(t *testing.T) {
	for name, c := range map[string]struct {
		d    rotav1.WorkerDialect
		how  action
		path string
		body string
	}{
		"an error of OpenAI":       {dialectOpenAI, sayError, "/v1/chat/completions", `"messages":[]`},
		"an error in a tool call":  {dialectVLLM, sayError, "/v1/chat/completions", `"messages":[],"test_tool_calls":true`},
		"the end in a tool call":   {dialectVLLM, sayNothing, "/v1/chat/completions", `"messages":[],"test_tool_calls":true`},
		"the end of a response":    {dialectVLLM, sayNothing, "/v1/responses", `"prompt":"x"`},
		"the end of a whole batch": {dialectVLLM, sayNothing, "/v1/completions", `"prompt":["x","y"]`},
	} {
		cluster, engines, g := world(t, c.d, nil)
		engines[0].set(once(3, c.how))
		got := readAll(t, post(t, g, c.path, `{`+c.body+`,"stream":true}`))
		if !strings.Contains(got, "cannot_continue") || strings.Contains(got, "[DONE]") {
			t.Errorf("%s: %s", name, got)
		}
		if err := g.Stop(); err != nil {
			t.Fatal(err)
		}
		if turns, _, _, failed := cluster.reported(7); turns != 0 || failed["w1"] == "" {
			t.Errorf("%s: %d turns, failed: %v", name, turns, failed)
		}
	}
}

// The API of responses has events of its own for errors.
func TestAResponseThatFails(t *testing.T) {
	b, err := parseBody([]byte(`{"input":"x","stream":true}`), responses)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{
		`{"type":"error","code":"server_error","message":"broken"}`,
		`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error"}}}`,
		`{"error":{"message":"broken","code":500}}`,
	} {
		g := generation{b: b}
		if out, err := g.add(nil, []byte("event: x\ndata: "+data+"\n\n")); err == nil || len(out) > 0 || g.done {
			t.Errorf("%s: %q, %v, done: %v", data, out, err, g.done)
		}
	}
	g := generation{b: b}
	refused := "data: " + `{"error":{"message":"too long","code":400}}` + "\n\n"
	if out, err := g.add(nil, []byte(refused)); err != nil || string(out) != refused || g.refused != 400 || !g.done {
		t.Errorf("%q, %v, refused with %d", out, err, g.refused)
	}
}
