package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
	"rota/fsm/state"
)

// Where the generated text cannot be put behind the prompt, a request does not go on: the engine
// would begin again, and the client would get the same tokens twice.
func TestPromptsThatCannotGoOn(t *testing.T) {
	for _, c := range []struct {
		end  endpoint
		body string
	}{
		{completions, `{"prompt":["a","b"]}`},
		{completions, `{"prompt":[[1,2,3]]}`},
		{completions, `{"prompt":[]}`},
		{completions, `{"prompt":null,"prompt_embeds":"x"}`},
		{completions, `{"prompt":"a","echo":1}`},
		{chat, `{"messages":[{"role":"assistant","content":[{"type":"text","text":"x"}]}],"continue_final_message":true}`},
		{chat, `{"messages":[{"role":"assistant","content":"x","content":"y"}],"continue_final_message":true}`},
		{chat, `{"messages":[],"continue_final_message":true}`},
		{completions, `{"prompt":"a","return_token_ids":true,"stop":["x"]}`},
		{chat, `{"messages":[],"logprobs":true,"stop":"x"}`},
		{completions, `{"prompt":"a","regex":"[0-9]+"}`},
		{completions, `{"prompt":"a","ebnf":"root ::= x"}`},
		{completions, `{"prompt":"a","json_schema":"{}"}`},
		{chat, `{"messages":[],"structural_tag":"{}"}`},
		{chat, `{"messages":[],"sampling_params":{"top_k":1,"regex":"[0-9]+"}}`},
		{chat, `{"messages":[],"sampling_params":"regex"}`},
		{chat, `{"messages":[{"role":"assistant","content":"x"}],"continue_final_message":1}`},
	} {
		b, err := parseBody([]byte(c.body), c.end)
		if err != nil {
			t.Fatal(err)
		}
		g := generation{b: b, began: true, text: []byte("b"), ids: []byte("3"), idsOfAll: true, now: 1}
		g.at(vLLM)
		if g.continuable() {
			t.Errorf("%s can go on", c.body)
		}
	}
	b, err := parseBody([]byte(`{"prompt":"a","regex":null,"sampling_params":{"top_k":1,"ebnf":null},"stop":"x","return_token_ids":false}`), completions)
	if err != nil {
		t.Fatal(err)
	}
	g := generation{b: b, began: true, text: []byte("b"), now: 1}
	if g.at(sgLang); !g.continuable() {
		t.Error("a request without any of that cannot go on")
	}
}

// What the gateway cannot read of a stream, the client has all the same.
func TestDataOfSeveralLines(t *testing.T) {
	b, err := parseBody([]byte(`{"messages":[],"stream":true}`), chat)
	if err != nil {
		t.Fatal(err)
	}
	g := generation{b: b}
	g.at(vLLM)
	event := "data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"x\"}}]}\n\n"
	if out, err := g.add(nil, []byte(event)); err != nil || string(out) != event || g.continuable() {
		t.Errorf("%q, %v, can go on: %v", out, err, g.continuable())
	}
	g = generation{b: b}
	g.at(vLLM)
	if out, err := g.add(nil, []byte(": ping\n\n")); err != nil || string(out) != ": ping\n\n" || !g.continuable() {
		t.Errorf("a comment: %q, %v, can go on: %v", out, err, g.continuable())
	}
}

// SGLang ends all requests whose names begin with the one that it is told.
func TestNoNameOfARequestBeginsWithAnother(t *testing.T) {
	_, engines, g := world(t, dialectSGLang, nil)
	for range 40 {
		readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":1}`))
	}
	for _, own := range []string{"a", "ab", "a"} { // also if clients give them names of their own
		readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":1,"rid":"`+own+`"}`))
	}
	engines[0].set(once(-1, cutOff)) // and one that is sent twice
	readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":1,"rid":"b"}`))
	engines[0].mu.Lock()
	defer engines[0].mu.Unlock()
	if last := engines[0].seen[44]["rid"].(string); len(engines[0].seen) != 45 || !strings.HasSuffix(last, "-b") {
		t.Fatalf("%d requests", len(engines[0].seen))
	}
	for i, one := range engines[0].seen {
		for j, other := range engines[0].seen {
			if i != j && strings.HasPrefix(one["rid"].(string), other["rid"].(string)) {
				t.Errorf("%v begins with %v", one["rid"], other["rid"])
			}
		}
	}
}

// The time that a client has to read ends with what it has read: neither a stream that pauses nor the
// next answer on the same connection is cut off.
func TestPausesAreNotTheClients(t *testing.T) {
	const limit = 100 * time.Millisecond
	c, engines, g := world(t, dialectVLLM, func(c *Config) { c.ClientTimeout, c.Wait = limit, 5*limit })
	h2 := httpx.NewClient(nil)
	defer h2.CloseIdleConnections()
	h1 := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer h1.CloseIdleConnections()
	ask := func(cl *http.Client, body string) (int, string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.Addr()+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(trajectoryHeader, "7")
		resp, err := cl.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw), err
	}
	for i, cl := range []*http.Client{h1, h2} {
		pause := once(4, cutOff)
		engines[0].set(func(r *http.Request, i int) action {
			if pause(r, i) == cutOff {
				time.Sleep(3 * limit)
			}
			return goOn
		})
		if _, got, err := ask(cl, `{"prompt":"x","stream":true,"max_tokens":8}`); err != nil || join(t, got).text != generated("x", 8) {
			t.Errorf("HTTP/%d: a stream that pauses: %q, %v", i+1, got, err)
		}
	}
	c.route(7, "", 0)
	until(t, "the route is gone", func() bool { return g.table.entryOf(7).worker == "" })
	for i, cl := range []*http.Client{h1, h2} {
		if status, got, err := ask(cl, `{"prompt":"x"}`); err != nil || status != http.StatusServiceUnavailable {
			t.Errorf("HTTP/%d: a request that waits for longer: %d %q, %v", i+1, status, got, err)
		}
	}
}

// A query over HTTP/2 may have what would end the first line of a request to a worker.
func TestQueriesThatAreNoneInHTTP1(t *testing.T) {
	for query, ok := range map[string]bool{"a=b%20c&d": true, "": true, "a HTTP/1.0": false, "a\tb": false, "é": false} {
		if no := checkQuery(query); (no == nil) != ok {
			t.Errorf("%q: %v", query, no)
		}
	}
	_, engines, g := world(t, dialectVLLM, nil)
	con, err := net.Dial("tcp", g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer con.Close()
	fmt.Fprintf(con, "POST /v1/completions?a\xc3\xa9 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nRota-Trajectory: 7\r\nContent-Length: 14\r\n\r\n"+`{"prompt":"x"}`)
	resp, err := http.ReadResponse(bufio.NewReader(con), nil)
	if err != nil || resp.StatusCode != http.StatusBadRequest || engines[0].count() != 0 {
		t.Errorf("%v, %v, %d requests", resp, err, engines[0].count())
	}
}

// A trajectory may be suspended between the choice of a worker and the moment from which it can be
// stopped.
func TestSuspendedBeforeItIsSent(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	b, err := parseBody([]byte(`{"prompt":"x","stream":true}`), completions)
	if err != nil {
		t.Fatal(err)
	}
	f := &flight{id: 7}
	to, err := g.table.acquire(t.Context(), f, failedAt{}, time.Now().Add(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer g.table.release(f)
	c.tell(&rotav1.WatchRoutesResponse{SuspendedPolicies: []string{"policy"}})
	until(t, "the suspension", func() bool { return g.table.isHeld(f) })
	call := &call{g: g, b: b, f: f, gen: generation{b: b, held: func() bool { return g.table.isHeld(f) }}}
	if err := call.attempt(to); err == nil || err.Error() != errSuspended.Error() && err.Error() != errPublishing.Error() || engines[0].count() != 0 {
		t.Errorf("%v, %d requests", err, engines[0].count())
	}
}

// Servers refuse a report that says too much: then all that it says is lost.
func TestReportsAreWhatServersTake(t *testing.T) {
	const trajectories, workers, serversTake, serversTakeWorkers = 5000, 150, 1024, 64
	var sent []*rotav1.ReportGenerationsRequest
	send := func(_ context.Context, r *rotav1.ReportGenerationsRequest) error {
		sent = append(sent, r)
		return nil
	}
	cfg := Config{ReportInterval: time.Hour, ReportTurns: 1 << 20, Logger: hclog.NewNullLogger()}
	r := newReporter(send, &cfg, func() {})
	for id := range uint64(trajectories) {
		r.begins(id+1, "w1")
		r.ends(id+1, "w1", portion{tokens: 1 << 59, context: 1 << 59, ended: true, finish: "st\x01\xffop" + strings.Repeat("é!", 1000)})
		r.ends(id+1, "w1", portion{tokens: 1 << 59})
	}
	for i := range workers {
		r.failed(fmt.Sprint("w", i), "broken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.run(ctx)
	seen, failed := map[uint64]bool{}, map[string]bool{}
	for _, req := range sent {
		if len(req.Generations) > serversTake || len(req.Workers) > serversTakeWorkers {
			t.Errorf("%d trajectories and %d workers in one report", len(req.Generations), len(req.Workers))
		}
		for _, g := range req.Generations {
			seen[g.TrajectoryId] = true
			if len(g.FinishReason) > 64 || !strings.HasPrefix(g.FinishReason, "stop!") || max(g.OutputTokens, g.ContextTokens) > state.LengthTokensMax {
				t.Fatalf("%v", g)
			}
		}
		for _, w := range req.Workers {
			failed[w.Worker] = true
		}
	}
	if len(seen) != trajectories || len(failed) != workers {
		t.Errorf("%d trajectories and %d workers were reported", len(seen), len(failed))
	}
}

func TestLinesAboutOneConnectionStayThere(t *testing.T) {
	h := http.Header{"Connection": {"close, X-Hop", "x-other"}, "X-Hop": {"1"}, "X-Other": {"2"}, "X-Mine": {"3"}, "Authorization": {"Bearer secret"}}
	if got := string(passedOn(h, "key")); got != "X-Mine: 3\r\nAuthorization: Bearer key\r\n" {
		t.Errorf("%q", got)
	}
}

// A key that is not read locks its client out, and nobody is told.
func TestEachLineOfAFileOfKeysIsRead(t *testing.T) {
	first, last := "a-key-after-a-mark-of-order", "the-key-in-the-last-line"
	k, err := loadKeys(writeFile(t, "\ufeff"+first+"\r\n# "+strings.Repeat("x", 1<<17)+"\n"+last))
	if err != nil || len(k) != 2 || !k.has(first) || !k.has(last) {
		t.Errorf("%d keys, %v", len(k), err)
	}
}

// A stream that is silent for long has comments, between events, and no request is lost by them.
func TestLongSilencesHaveComments(t *testing.T) {
	_, engines, g := world(t, dialectVLLM, func(c *Config) { c.KeepAlive = 20 * time.Millisecond })
	silent := make(chan struct{})
	engines[0].set(func(_ *http.Request, i int) action {
		if i == 3 {
			<-silent
		}
		return goOn
	})
	resp := post(t, g, "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":5}`)
	var got strings.Builder
	lines := bufio.NewReader(resp.Body)
	comments := 0
	for {
		line, err := lines.ReadString('\n')
		if line == strings.TrimSuffix(comment, "\n") {
			if comments++; comments == 3 {
				close(silent)
			}
		}
		got.WriteString(line)
		if err != nil {
			break
		}
	}
	text := strings.ReplaceAll(got.String(), comment, "")
	if j := join(t, text); j.text != generated("x", 5) || j.done != 1 || comments < 3 {
		t.Errorf("%d comments, and %q", comments, text)
	}
}

// A handler that panics leaves nothing behind that counts.
func TestAPanicLeavesNothingCounted(t *testing.T) {
	_, _, g := world(t, dialectVLLM, nil)
	w := panicking{httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt":"x","stream":true,"max_tokens":5}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(trajectoryHeader, "7")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		g.generate(w, r, completions)
	}()
	if requests, bytes := g.requests.Load(), g.bytes.Load(); requests != 0 || bytes != 0 {
		t.Errorf("%d requests with %d bytes are counted", requests, bytes)
	}
	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	for _, worker := range g.table.workers {
		if n := worker.running.Load(); n != 0 {
			t.Errorf("%s runs %d requests", worker.name, n)
		}
	}
	if n := len(g.table.entries[7].flights); n != 0 {
		t.Errorf("trajectory 7 has %d requests", n)
	}
}

// panicking is a client whose answer cannot be written.
type panicking struct{ *httptest.ResponseRecorder }

func (panicking) Write([]byte) (int, error) { panic("it cannot be written") }
