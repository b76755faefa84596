package gateway

import (
	"net/http"
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

// vLLM says 400 also when its engine has died. The stream goes on elsewhere, where it can.
func TestAnErrorThatIsNoRefusal(t *testing.T) {
	for _, d := range []rotav1.WorkerDialect{dialectVLLM, dialectOpenAI} {
		c, engines, g := world(t, d, nil)
		engines[0].set(once(3, sayRefusal))
		moveWhenFailed(t, c, "w1", "w2")
		j := join(t, readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":8}`)))
		if d == dialectVLLM && (j.text != generated("x", 8) || j.done != 1) || d == dialectOpenAI && !strings.HasPrefix(j.problem, "cannot_continue") {
			t.Errorf("%v: %+v", d, j)
		}
		until(t, "the report", func() bool { _, _, _, failed := c.reported(7); return failed["w1"] != "" })
	}
}

// A worker that says it again before it has generated anything means the request: it has not failed.
func TestARefusalThatIsRepeated(t *testing.T) {
	for _, d := range []rotav1.WorkerDialect{dialectVLLM, dialectOpenAI} {
		c, engines, g := world(t, d, nil)
		engines[0].set(func(_ *http.Request, i int) action {
			if i == 0 {
				return sayRefusal
			}
			return goOn
		})
		got := readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","stream":true}`))
		if !strings.Contains(got, "too long") {
			t.Errorf("%v: %s", d, got)
		}
		if err := g.Stop(); err != nil {
			t.Fatal(err)
		}
		if turns, _, _, failed := c.reported(7); turns != 0 || len(failed) != 0 || engines[0].count() != 2 {
			t.Errorf("%v: %d turns, %d requests, failed: %v", d, turns, engines[0].count(), failed)
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
		"one of two answers":       {dialectVLLM, sayEnd, "/v1/completions", `"prompt":"x","n":2`},
		"one answer of a batch":    {dialectVLLM, sayEnd, "/v1/completions", `"prompt":["x","y"]`},
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
		`{"type":"response.failed","response":{"error":null,"status":"failed"}}`,
		`{"error":{"message":"broken","code":500}}`,
	} {
		g := generation{b: b}
		if out, err := g.add(nil, []byte("event: x\ndata: "+data+"\n\n")); err == nil || len(out) > 0 || g.done {
			t.Errorf("%s: %q, %v, done: %v", data, out, err, g.done)
		}
	}
	for _, data := range []string{
		`{"type":"error","code":"invalid_prompt","message":"too long"}`,
		`{"type":"response.failed","response":{"error":{"code":"invalid_prompt"},"status":"failed"}}`,
		`{"error":{"message":"too long","code":400}}`,
	} {
		g := generation{b: b}
		g.at(sgLang)
		refused := "data: " + data + "\n\n"
		if out, err := g.add(nil, []byte(refused)); err != nil || string(out) != refused || g.refused != 400 || !g.done {
			t.Errorf("%s: %q, %v, refused with %d", data, out, err, g.refused)
		}
	}
}

// A stream without [DONE] is complete when all its answers are.
func TestAllAnswersEnd(t *testing.T) {
	end := func(i string) string { return `{"index":` + i + `,"text":"","finish_reason":"stop"}` }
	for body, events := range map[string][]string{
		`{"prompt":"x"}`:             {end("0")},
		`{"prompt":["x"],"n":2}`:     {end("1"), end("0")},
		`{"prompt":["x","y"]}`:       {`{"index":0,"text":"a","finish_reason":null}`, end("0"), end("1")},
		`{"prompt":[[1],[2]],"n":2}`: {end("2"), end("0") + "," + end("3"), end("1")},
		`{"prompt":[1,2],"n":null}`:  {end("0")},
	} {
		b, err := parseBody([]byte(body), completions)
		if err != nil {
			t.Fatal(err)
		}
		g := generation{b: b}
		for i, choices := range events {
			if g.finished() {
				t.Errorf("%s has finished before event %d", body, i)
			}
			if _, err := g.add(nil, []byte(`data: {"id":"x","choices":[`+choices+"]}\n\n")); err != nil {
				t.Fatal(err)
			}
		}
		if !g.finished() {
			t.Errorf("%s has not finished", body)
		}
	}
}
