package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	dialectOpenAI = rotav1.WorkerDialect_WORKER_DIALECT_OPENAI
	dialectVLLM   = rotav1.WorkerDialect_WORKER_DIALECT_VLLM
	dialectSGLang = rotav1.WorkerDialect_WORKER_DIALECT_SGLANG
)

// direct asks an engine without a gateway.
func direct(t *testing.T, e *fakeEngine, path, body string) string {
	t.Helper()
	resp, err := http.Post(e.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return readAll(t, resp)
}

// A client gets, byte for byte, what the engine would have told it, but for the number in the ID.
func TestAnswersPassThrough(t *testing.T) {
	bodies := map[string]string{
		"chat stream":            `{"model":"policy","messages":[{"role":"user","content":"hello"}],"stream":true}`,
		"chat stream with usage": `{"model":"policy","messages":[{"role":"user","content":"hello"}],"stream":true,"stream_options":{"include_usage":true}}`,
		"usage in each event":    `{"model":"policy","messages":[],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`,
		"chat":                   `{"model":"policy","messages":[{"role":"user","content":"hello"}],"n":1,"odd":{"a":[1,2,{"b":"}"}]}}`,
		"tool calls":             `{"model":"policy","messages":[{"role":"user","content":"hello"}],"stream":true,"test_tool_calls":true}`,
	}
	for _, d := range []rotav1.WorkerDialect{dialectOpenAI, dialectVLLM, dialectSGLang} {
		_, engines, g := world(t, d, nil)
		for name, body := range bodies {
			got := readAll(t, post(t, g, "/v1/chat/completions", body))
			n := engines[0].count()
			want := direct(t, engines[0], "/v1/chat/completions", body)
			want = strings.ReplaceAll(want, fmt.Sprint("w1-", n+1), fmt.Sprint("w1-", n))
			// The number of digits is the fake's "created".
			if len(fmt.Sprint(n)) == len(fmt.Sprint(n+1)) && got != want {
				t.Errorf("%v, %s:\n%s\nwant\n%s", d, name, got, want)
			}
		}
		body := `{"model":"policy","prompt":"hello","stream":true,"max_tokens":5}`
		if got := join(t, readAll(t, post(t, g, "/v1/completions", body))); got.text != generated("hello", 5) || got.done != 1 || got.usage != 0 {
			t.Errorf("%v, completions: %+v", d, got)
		}
	}
}

// What the gateway sets, and what it leaves alone.
func TestRequestsPassThrough(t *testing.T) {
	body := `{ "prompt":"x", "unknown":{"k":[1,2]}, "priority":5, "logprobs":null, "tools":[{"type":"function"}] , "return_token_ids":true}`
	for d, want := range map[rotav1.WorkerDialect]any{dialectOpenAI: 5.0, dialectVLLM: -1234.0, dialectSGLang: 1234.0} {
		_, engines, g := world(t, d, nil)
		resp := post(t, g, "/v1/completions", body, "X-Other", "kept", "Authorization", "Bearer secret")
		readAll(t, resp)
		if resp.StatusCode != 200 || resp.Header.Get("Rota-Worker") != "w1" {
			t.Errorf("%v: status %d, header %v", d, resp.StatusCode, resp.Header)
		}
		seen := engines[0].last()
		if seen["priority"] != want || seen["model"] != "policy" || fmt.Sprint(seen["unknown"]) != "map[k:[1 2]]" || seen["return_token_ids"] != true || fmt.Sprint(seen["tools"]) != "[map[type:function]]" {
			t.Errorf("%v: the engine has seen %v", d, seen)
		}
		h := engines[0].header[0]
		if h.Get("X-Other") != "kept" || h.Get("Authorization") != "" || h.Get(trajectoryHeader) != "" || !strings.HasPrefix(h.Get("X-Request-Id"), "rota-") {
			t.Errorf("%v: the engine has seen the header %v", d, h)
		}
		if rid, _ := seen["rid"].(string); strings.HasPrefix(rid, "rota-") != (d == dialectSGLang) {
			t.Errorf("%v: rid %q", d, rid)
		}
	}
}

func TestWaysToNameATrajectory(t *testing.T) {
	_, _, g := world(t, dialectVLLM, nil)
	const path = "/v1/completions"
	for name, c := range map[string]struct {
		body   string
		header []string
		status int
		says   string
	}{
		"header":          {`{"prompt":"x"}`, nil, 200, ""},
		"header, prefix":  {`{"prompt":"x"}`, []string{trajectoryHeader, "trajectory-7"}, 200, ""},
		"user":            {`{"prompt":"x","user":"trajectory-7"}`, []string{trajectoryHeader, ""}, 200, ""},
		"key":             {`{"prompt":"x"}`, []string{trajectoryHeader, "", "Authorization", "Bearer trajectory-7"}, 200, ""},
		"all":             {`{"prompt":"x","user":"trajectory-7"}`, []string{"Authorization", "bearer trajectory-7"}, 200, ""},
		"another user":    {`{"prompt":"x","user":"alice"}`, nil, 200, ""},
		"none":            {`{"prompt":"x"}`, []string{trajectoryHeader, ""}, 400, "Rota-Trajectory"},
		"two":             {`{"prompt":"x","user":"trajectory-8"}`, nil, 400, "7 and 8"},
		"not a number":    {`{"prompt":"x"}`, []string{trajectoryHeader, "seven"}, 400, "seven"},
		"wrong user":      {`{"prompt":"x","user":"trajectory-x"}`, []string{trajectoryHeader, ""}, 400, "user"},
		"unknown":         {`{"prompt":"x"}`, []string{trajectoryHeader, "99"}, 404, "trajectory 99 is not known"},
		"escaped user":    {`{"prompt":"x","us\u0065r":"trajectory-7"}`, []string{trajectoryHeader, ""}, 200, ""},
		"key of no shape": {`{"prompt":"x"}`, []string{trajectoryHeader, "", "Authorization", "Bearer sk-1"}, 400, "names no trajectory"},
	} {
		resp := post(t, g, path, c.body, c.header...)
		if got := readAll(t, resp); resp.StatusCode != c.status || !strings.Contains(got, c.says) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, got)
		}
	}
}

func TestHostileBodies(t *testing.T) {
	_, engines, g := world(t, dialectVLLM, func(c *Config) { c.BodyBytesMax = 1 << 20; c.BytesMax = 8 << 20 })
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for name, c := range map[string]struct {
		body   string
		status int
		header []string
	}{
		"empty":            {``, 400, nil},
		"no JSON":          {`hello`, 400, nil},
		"an array":         {`[{"prompt":"x"}]`, 400, nil},
		"cut":              {`{"prompt":"x`, 400, nil},
		"two objects":      {`{"prompt":"x"}{"prompt":"y"}`, 400, nil},
		"a missing comma":  {`{"prompt":"x" "n":1}`, 400, nil},
		"a missing colon":  {`{"prompt" "x"}`, 400, nil},
		"mixed brackets":   {`{"prompt":[1,2}}`, 400, nil},
		"deep":             {`{"a":` + deep + `,"prompt":"x"}`, 400, nil},
		"duplicate":        {`{"stream":false,"prompt":"x","stream":true}`, 400, nil},
		"hidden duplicate": {`{"stream":false,"prompt":"x","str\u0065am":true}`, 400, nil},
		"stream as text":   {`{"prompt":"x","stream":"true"}`, 400, nil},
		"stream as number": {`{"prompt":"x","stream":1}`, 400, nil},
		"user as number":   {`{"prompt":"x","user":7}`, 400, nil},
		"model as list":    {`{"prompt":"x","model":["policy"]}`, 400, nil},
		"negative limit":   {`{"prompt":"x","max_tokens":-1}`, 400, nil},
		"broken limit":     {`{"prompt":"x","max_tokens":1.5}`, 400, nil},
		"n as text":        {`{"prompt":"x","n":"2"}`, 400, nil},
		"options":          {`{"prompt":"x","stream_options":[]}`, 400, nil},
		"odd options":      {`{"prompt":"x","stream_options":{"include_usage":"yes"}}`, 400, nil},
		"huge":             {`{"prompt":"` + strings.Repeat("x", 1<<20) + `"}`, 413, nil},
		"compressed":       {`{"prompt":"x"}`, 415, []string{"Content-Encoding", "gzip"}},
		"a form":           {`{"prompt":"x"}`, 415, []string{"Content-Type", "text/plain"}},
		"an empty object":  {`{ }`, 200, nil},
	} {
		resp := post(t, g, "/v1/completions", c.body, c.header...)
		if got := readAll(t, resp); resp.StatusCode != c.status || c.status != 200 && !strings.Contains(got, problemType) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, got)
		}
	}
	if n := engines[0].count(); n != 1 {
		t.Errorf("the engine has seen %d requests, want the one that is good", n)
	}
	if n := g.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

func TestWhatIsNotOffered(t *testing.T) {
	_, _, g := world(t, dialectVLLM, nil)
	for _, path := range []string{"/v1/embeddings", "/sleep", "/abort_requests", "/v1/", "/"} {
		resp := post(t, g, path, "{}")
		if got := readAll(t, resp); resp.StatusCode != 404 || !strings.Contains(got, "/v1/chat/completions") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, got)
		}
	}
	for path, want := range map[string]string{
		"/v1/models": `"id":"policy"`, "/v1/models/policy": `"object":"model"`, "/health": `"watch_live":true`, "/metrics": "rota_gateway_requests",
		"/v1/models/other": "model_not_found", "/v1/completions": "method_not_allowed",
	} {
		resp, err := http.Get("http://" + g.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp); !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
		resp.Body.Close()
	}
}

// A connection that the engine has closed meanwhile is no failure of the worker.
func TestConnectionsThatWereClosedWhileIdle(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	for range 3 {
		resp := post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":2}`)
		if got := readAll(t, resp); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, got)
		}
		engines[0].CloseClientConnections()
	}
	until(t, "reports", func() bool { turns, _, _, _ := c.reported(7); return turns == 3 })
	if _, _, _, failed := c.reported(7); len(failed) > 0 {
		t.Errorf("reported as failed: %v", failed)
	}
}

// A request that is sent again, because its connection was closed, can be suspended while it waits.
func TestSuspendedAfterItIsSentAgain(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":2}`))
	g.table.mu.Lock()
	p := g.table.workers["w1"].pool
	g.table.mu.Unlock()
	until(t, "an idle connection", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.idle) == 1
	})
	engines[0].CloseClientConnections()
	sent := make(chan struct{})
	wait := once(-1, cutOff)
	engines[0].set(func(r *http.Request, i int) action {
		if wait(r, i) == cutOff {
			close(sent)
			<-r.Context().Done()
		}
		return goOn
	})
	answer := make(chan string)
	go func() {
		answer <- readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":4}`))
	}()
	<-sent
	c.tell(&rotav1.WatchRoutesResponse{SuspendedPolicies: []string{"policy"}})
	select {
	case <-engines[0].gone:
	case <-time.After(10 * time.Second):
		t.Fatal("it is not suspended")
	}
	c.tell(&rotav1.WatchRoutesResponse{ResumedPolicies: []string{"policy"}})
	if j := join(t, <-answer); j.text != generated("x", 4) || j.done != 1 {
		t.Errorf("%+v", j)
	}
}

// The connection of the client's end is passed on to the engine.
func TestAClientThatGoesAway(t *testing.T) {
	for _, d := range []rotav1.WorkerDialect{dialectVLLM, dialectSGLang} {
		_, engines, g := world(t, d, nil)
		engines[0].set(func(r *http.Request, i int) action {
			if i == 3 {
				<-r.Context().Done()
			}
			return goOn
		})
		resp := post(t, g, "/v1/chat/completions", `{"messages":[],"stream":true}`)
		if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		<-engines[0].gone
		until(t, "the abort", func() bool { return len(engines[0].abortCalls()) == 1 })
		name := engines[0].header[0].Get("X-Request-Id")
		want := `/abort_requests {"request_ids":["chatcmpl-` + name + `"]}`
		if d == dialectSGLang {
			want = `/abort_request {"rid":"` + name + `"}`
		}
		if got := engines[0].abortCalls()[0]; got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
		until(t, "the request is forgotten", func() bool { return g.requests.Load() == 0 })
	}
}

// A client that reads slowly gets all of it.
func TestASlowClient(t *testing.T) {
	_, _, g := world(t, dialectVLLM, nil)
	resp := post(t, g, "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":3000}`)
	var got bytes.Buffer
	buf := make([]byte, 700)
	for {
		n, err := resp.Body.Read(buf)
		got.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if j := join(t, got.String()); j.text != generated("x", 3000) || j.done != 1 {
		t.Errorf("%d bytes of text, done %d", len(j.text), j.done)
	}
}
