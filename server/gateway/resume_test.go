package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// moveWhenFailed gives the trajectory to another worker as soon as the one is reported.
func moveWhenFailed(t *testing.T, c *fakeCluster, from, to string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c.mu.Lock()
			changed := c.changed
			c.mu.Unlock()
			if _, _, _, failed := c.reported(7); failed[from] != "" {
				c.route(7, to, 5)
				return
			}
			select {
			case <-changed:
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() { <-done })
}

// once does something before one token of the first request, and nothing else.
func once(at int, what action) func(*http.Request, int) action {
	var done atomic.Bool // requests may come at the same time
	return func(_ *http.Request, i int) action {
		if i == at && done.CompareAndSwap(false, true) {
			return what
		}
		return goOn
	}
}

// prompts are those of the two endpoints that can go on, and the text that they stand for.
var prompts = map[string]struct{ body, text string }{
	"/v1/completions":      {`"prompt":"he\u006clo \"x\" "`, `hello "x" `},
	"/v1/chat/completions": {`"messages":[{"role":"user","content":"hello"}]`, "<user>hello<assistant>"},
}

// A worker that fails in the middle of a stream: the client gets what one engine alone would have
// generated, no token twice, in a stream that looks like one.
func TestAStreamGoesOnAtAnotherWorker(t *testing.T) {
	for _, d := range []rotav1.WorkerDialect{dialectVLLM, dialectSGLang} {
		for _, how := range []action{cutOff, sayError} {
			for path, p := range prompts {
				t.Run(fmt.Sprint(d, how, path), func(t *testing.T) {
					c, engines, g := world(t, d, nil)
					engines[0].set(once(5, how))
					moveWhenFailed(t, c, "w1", "w2")
					resp := post(t, g, path, `{`+p.body+`,"stream":true,"max_tokens":12,"min_tokens":3,"stream_options":{"include_usage":true}}`)
					j := join(t, readAll(t, resp))
					if j.text != generated(p.text, 12) || j.finish != "length" || j.done != 1 || j.problem != "" {
						t.Errorf("got %+v, want the text %q", j, generated(p.text, 12))
					}
					if len(j.ids) != 1 || j.usage != 12 || path == "/v1/chat/completions" && j.roles != 1 {
						t.Errorf("the stream is not one: %+v", j)
					}
					if seen := engines[1].last(); seen["max_tokens"] != 7.0 || seen["min_tokens"] != 0.0 {
						t.Errorf("the second worker was asked for %v", seen)
					}
					until(t, "the report", func() bool {
						turns, tokens, _, _ := c.reported(7)
						return turns == 1 && tokens == 12
					})
				})
			}
		}
	}
}

// Before anything was generated, the whole request is sent again: first to the same worker.
func TestAWorkerThatFailsBeforeTheFirstToken(t *testing.T) {
	for _, stream := range []string{"true", "false"} {
		for _, d := range []rotav1.WorkerDialect{dialectOpenAI, dialectVLLM} {
			c, engines, g := world(t, d, nil)
			engines[0].set(once(-1, answer500))
			resp := post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":4,"stream":`+stream+`}`)
			if got := readAll(t, resp); resp.StatusCode != 200 || engines[0].count() != 2 || engines[1].count() != 0 {
				t.Errorf("%v, stream %s: %d %s", d, stream, resp.StatusCode, got)
			}
			if _, _, _, failed := c.reported(7); len(failed) != 0 {
				t.Errorf("failed: %v", failed)
			}

			// One time more if the first was on a connection that could have been idle for too long.
			engines[0].set(func(*http.Request, int) action { return cutOff })
			moveWhenFailed(t, c, "w1", "w2")
			resp = post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":4,"stream":`+stream+`}`)
			if got := readAll(t, resp); resp.StatusCode != 200 || engines[0].count() < 4 || engines[0].count() > 5 || engines[1].count() != 1 {
				t.Errorf("%v, stream %s: %d %s", d, stream, resp.StatusCode, got)
			}
		}
	}
}

// A request that makes each worker answer with an error is not sent to all of them.
func TestARequestThatNoWorkerAnswers(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	for _, e := range engines {
		e.set(func(*http.Request, int) action { return answer500 })
	}
	moveWhenFailed(t, c, "w1", "w2")
	resp := post(t, g, "/v1/completions", `{"prompt":"x","stream":true}`)
	if got := readAll(t, resp); resp.StatusCode != 500 || !strings.Contains(got, "broken") {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	if _, _, _, failed := c.reported(7); failed["w2"] != "" {
		t.Error("the second worker was reported, too")
	}
}

// Nor can an engine go on that does not know how, after one that could.
func TestAStreamThatItsNextWorkerCannotGoOnWith(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	engines[1].dialect = dialectOpenAI
	up := rotav1.WorkerState_WORKER_STATE_UP
	c.tell(&rotav1.WatchRoutesResponse{Workers: []*rotav1.Worker{engines[0].worker(up), engines[1].worker(up)}})
	engines[0].set(once(3, cutOff))
	moveWhenFailed(t, c, "w1", "w2")
	got := readAll(t, post(t, g, "/v1/chat/completions", `{"messages":[],"stream":true}`))
	if !strings.Contains(got, "cannot_continue") || !strings.Contains(got, "w2") {
		t.Errorf("%s", got)
	}
}

func TestAWorkerThatNobodyListensAt(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	engines[0].Close()
	moveWhenFailed(t, c, "w1", "w2")
	resp := post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":4}`)
	if got := readAll(t, resp); resp.StatusCode != 200 || resp.Header.Get("Rota-Worker") != "w2" {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	if _, _, _, failed := c.reported(7); !strings.Contains(failed["w1"], "refused") {
		t.Errorf("reported: %v", failed)
	}
}

// Where another worker could only guess, the client is told.
func TestAStreamThatCannotGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		d    rotav1.WorkerDialect
		body string
		path string
	}{
		"OpenAI":        {dialectOpenAI, `"messages":[]`, "/v1/chat/completions"},
		"tool calls":    {dialectVLLM, `"messages":[],"test_tool_calls":true`, "/v1/chat/completions"},
		"two answers":   {dialectVLLM, `"messages":[],"n":2`, "/v1/chat/completions"},
		"grammar":       {dialectVLLM, `"messages":[],"response_format":{"type":"json_object"}`, "/v1/chat/completions"},
		"echo":          {dialectVLLM, `"prompt":"x","echo":true`, "/v1/completions"},
		"logprobs":      {dialectSGLang, `"prompt":"x","logprobs":1`, "/v1/completions"},
		"token prompt":  {dialectVLLM, `"prompt":[1,2,3]`, "/v1/completions"},
		"the responses": {dialectVLLM, `"prompt":"x"`, "/v1/responses"},
	} {
		_, engines, g := world(t, c.d, nil)
		engines[0].set(once(3, cutOff))
		resp := post(t, g, c.path, `{`+c.body+`,"stream":true}`)
		got := readAll(t, resp)
		if !strings.Contains(got, "cannot_continue") || strings.Contains(got, "[DONE]") || !strings.Contains(got, "w1 failed") {
			t.Errorf("%s: %s", name, got)
		}
		if strings.HasSuffix(c.path, "responses") && !strings.Contains(got, "event: error\n") {
			t.Errorf("%s: no event of the API of responses: %s", name, got)
		}
		if engines[1].count() != 0 {
			t.Errorf("%s: the second worker was asked", name)
		}
	}
}

// A worker that sends nothing is left; one that is only slow to this request is not.
func TestAWorkerThatHangs(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, func(c *Config) { c.TokenTimeout = 300 * time.Millisecond })
	hang := once(4, cutOff)
	engines[0].set(func(r *http.Request, i int) action {
		if hang(r, i) == cutOff {
			<-r.Context().Done()
		}
		return goOn
	})
	moveWhenFailed(t, c, "w1", "w2")
	j := join(t, readAll(t, post(t, g, "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":9}`)))
	if j.text != generated("x", 9) || j.done != 1 {
		t.Errorf("%+v", j)
	}
	if _, _, _, failed := c.reported(7); !strings.Contains(failed["w1"], "sends nothing") {
		t.Errorf("reported: %v", failed)
	}
}

// TestRequestsDoNotHideAWorkerThatHangs: only what it sends says that it is there.
func TestRequestsDoNotHideAWorkerThatHangs(t *testing.T) {
	f := &flight{limit: time.Hour, worker: &worker{}}
	con, other := net.Pipe()
	defer con.Close()
	defer other.Close()
	if err := f.use(con); err != nil {
		t.Fatal(err)
	}
	if heard := f.worker.heard.Load(); heard != 0 || f.heard.Load() == 0 {
		t.Errorf("the worker was heard at %d, its request at %d", heard, f.heard.Load())
	}
	_ = f.leave()
}

// A stream that is suspended ends in its engine and goes on later, at whatever worker it is given.
func TestSuspendAndResume(t *testing.T) {
	for _, d := range []rotav1.WorkerDialect{dialectVLLM, dialectSGLang} {
		for _, policy := range []bool{false, true} {
			c, engines, g := world(t, d, nil)
			reached := make(chan struct{})
			wait := once(6, cutOff)
			engines[0].set(func(r *http.Request, i int) action {
				if wait(r, i) == cutOff {
					close(reached)
					<-r.Context().Done()
				}
				return goOn
			})
			resp := post(t, g, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hello"}],"stream":true,"max_completion_tokens":40}`)
			<-reached
			hold := &rotav1.WatchRoutesResponse{Routes: []*rotav1.Route{{TrajectoryId: 7, Policy: "policy", Worker: "w1", Suspended: true}}}
			free := &rotav1.WatchRoutesResponse{Routes: []*rotav1.Route{{TrajectoryId: 7, Policy: "policy", Worker: "w2"}}}
			if policy {
				hold = &rotav1.WatchRoutesResponse{SuspendedPolicies: []string{"policy"}}
				free = &rotav1.WatchRoutesResponse{ResumedPolicies: []string{"policy"}}
			}
			c.tell(hold)
			<-engines[0].gone
			until(t, "the abort", func() bool { return len(engines[0].abortCalls()) == 1 })
			c.tell(free)
			j := join(t, readAll(t, resp))
			e := engines[1]
			if policy {
				e = engines[0]
			}
			seen := e.last()
			left, _ := seen["max_completion_tokens"].(float64)
			// The gateway may be suspended before it has read all that the engine had written.
			before := 40 - int(left)
			if before < 1 || before > 6 || seen["continue_final_message"] != true || seen["add_generation_prompt"] != false {
				t.Errorf("%v: asked for %v", d, seen)
			}
			// The fake does not know max_completion_tokens: each worker generates 16.
			if want := generated("<user>hello<assistant>", before+16); j.text != want || j.done != 1 || len(j.ids) != 1 || j.roles != 1 {
				t.Errorf("%v, policy %v: %+v, want %q", d, policy, j, want)
			}
		}
	}
}

// What an engine aborts while its policy is suspended is not the end of the answer.
func TestAnEngineThatAbortsWhenSuspended(t *testing.T) {
	held := true
	b, err := parseBody([]byte(`{"messages":[],"stream":true}`), chat)
	if err != nil {
		t.Fatal(err)
	}
	g := generation{b: b, held: func() bool { return held }}
	g.at(vLLM)
	aborted := []byte(`data: {"id":"x","choices":[{"index":0,"delta":{"content":""},"finish_reason":"abort"}]}` + "\n\n")
	if out, err := g.add(nil, aborted); !errors.Is(err, errAborted) || len(out) > 0 || g.finish != nil {
		t.Errorf("%q, %v", out, err)
	}
	held = false
	if out, err := g.add(nil, aborted); err != nil || string(out) != string(aborted) || string(g.finish) != "abort" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestAWholeAnswerThatIsCutShort: also without a stream, the client gets the whole text, once the policy
// goes on.
func TestAWholeAnswerThatIsCutShort(t *testing.T) {
	for path, prompt := range prompts {
		c, engines, g := world(t, dialectVLLM, nil)
		reached, suspended := make(chan struct{}), make(chan struct{})
		first := once(-1, sayAbort)
		engines[0].set(func(r *http.Request, i int) action {
			did := first(r, i)
			if did == sayAbort {
				close(reached)
				<-suspended
			}
			return did
		})
		answered := make(chan *http.Response)
		go func() { answered <- post(t, g, path, "{"+prompt.body+`,"max_tokens":9}`) }()
		<-reached
		c.tell(&rotav1.WatchRoutesResponse{SuspendedPolicies: []string{"policy"}})
		until(t, "the suspension", func() bool { return g.table.isHeld(&flight{id: 7, policy: "policy"}) })
		close(suspended)
		select {
		case resp := <-answered:
			t.Errorf("%s: answered while the policy is suspended: %s", path, readAll(t, resp))
			continue
		case <-time.After(100 * time.Millisecond):
		}
		c.tell(&rotav1.WatchRoutesResponse{ResumedPolicies: []string{"policy"}})
		got := readAll(t, <-answered)
		if !strings.Contains(got, strconv.Quote(generated(prompt.text, 9))) || strings.Contains(got, "abort") || engines[0].count() != 2 {
			t.Errorf("%s: after %d requests: %s", path, engines[0].count(), got)
		}
	}
}

// Another worker goes on behind the tokens whose text the client has, and generates the others again.
func TestTokensWithoutTheirTextAreGeneratedAgain(t *testing.T) {
	for stop, goesOn := range map[string]bool{"": true, `,"stop":null`: true, `,"stop":["x"]`: false} {
		b, err := parseBody([]byte(`{"prompt":[1,2],"stream":true`+stop+`}`), completions)
		if err != nil {
			t.Fatal(err)
		}
		g := generation{b: b}
		g.at(vLLM)
		for _, choice := range []string{`"text":"","token_ids":[3]`, `"text":"a","token_ids":[4,5]`, `"text":"b","token_ids":[6]`, `"text":"","token_ids":[7]`} {
			if _, err := g.add(nil, []byte(`data: {"id":"x","choices":[{"index":0,`+choice+`}]}`+"\n\n")); err != nil {
				t.Fatal(err)
			}
		}
		if g.continuable() != goesOn {
			t.Errorf("stop%s: it can go on: %v", stop, !goesOn)
		}
		g.workerEnds()
		if got := string(g.promptEdit().with); got != ",3,4,5,6" {
			t.Errorf("it goes on behind %s", got)
		}
	}
}

// The end of a trajectory ends its requests.
func TestATrajectoryThatEnds(t *testing.T) {
	for _, stream := range []bool{true, false} {
		c, engines, g := world(t, dialectVLLM, nil)
		reached := make(chan struct{})
		engines[0].set(func(r *http.Request, i int) action {
			if i == 2 || i == -1 && !stream {
				close(reached)
				<-r.Context().Done()
			}
			return goOn
		})
		answered := make(chan *http.Response)
		go func() {
			answered <- post(t, g, "/v1/completions", fmt.Sprintf(`{"prompt":"x","stream":%v}`, stream))
		}()
		<-reached
		c.tell(&rotav1.WatchRoutesResponse{EndedTrajectoryIds: []uint64{7}})
		resp := <-answered
		if got := readAll(t, resp); !strings.Contains(got, "trajectory_ended") || !stream && resp.StatusCode != http.StatusGone {
			t.Errorf("stream %v: %d %s", stream, resp.StatusCode, got)
		}
		<-engines[0].gone
		resp = post(t, g, "/v1/completions", `{"prompt":"x"}`)
		if got := readAll(t, resp); resp.StatusCode != http.StatusGone {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
	}
}

// Requests wait for a worker, and for so long as they may.
func TestRequestsWait(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	c.route(7, "", 0)
	c.route(8, "w1", 0)
	until(t, "the route", func() bool { return g.table.entryOf(8).worker == "w1" && g.table.entryOf(7).worker == "" })
	answered := make(chan *http.Response)
	go func() { answered <- post(t, g, "/v1/completions", `{"prompt":"x"}`) }()
	until(t, "it waits", func() bool { return g.table.waiting(7) == 1 })
	c.route(7, "w2", 0)
	if resp := <-answered; resp.StatusCode != 200 || resp.Header.Get("Rota-Worker") != "w2" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}

	down := engines[0].worker(rotav1.WorkerState_WORKER_STATE_DOWN)
	c.tell(&rotav1.WatchRoutesResponse{Workers: []*rotav1.Worker{down}})
	impatient := start(t, c, func(c *Config) { c.Wait = 30 * time.Millisecond })
	until(t, "routes", func() bool { _, _, ready := impatient.table.counts(); return ready })
	resp := post(t, impatient, "/v1/completions", `{"prompt":"x"}`, trajectoryHeader, "8")
	if got := readAll(t, resp); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(got, "no_worker") {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
}

// entryOf and waiting look into the table.
func (t *table) entryOf(id uint64) entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[id]; e != nil {
		return *e
	}
	return entry{}
}

func (t *table) waiting(id uint64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiters[id])
}

// Without a server the last routes are used, and a stream is not disturbed when they come again.
func TestTheWatchIsLost(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	c.breakWatch(true)
	until(t, "the gateway has noticed", func() bool { return !g.live.Load() })
	reached, goes := make(chan struct{}), make(chan struct{})
	engines[0].set(func(_ *http.Request, i int) action {
		if i == 4 {
			close(reached)
			<-goes
		}
		return goOn
	})
	resp := post(t, g, "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":8}`)
	<-reached
	c.breakWatch(false)
	until(t, "routes again", g.live.Load)
	c.route(9, "w2", 0)
	until(t, "the new route", func() bool { return g.table.entryOf(9).worker == "w2" })
	close(goes)
	if j := join(t, readAll(t, resp)); j.text != generated("x", 8) || j.done != 1 {
		t.Errorf("%+v", j)
	}
	resp = post(t, g, "/v1/completions", `{"prompt":"x"}`, trajectoryHeader, "9")
	if resp.Header.Get("Rota-Worker") != "w2" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

// A report whose answer was lost is sent again under its own ID.
func TestReports(t *testing.T) {
	c, _, g := world(t, dialectVLLM, nil)
	c.mu.Lock()
	c.refuse = 2
	c.mu.Unlock()
	for i := range 20 {
		stream := fmt.Sprint(i%2 == 0)
		readAll(t, post(t, g, "/v1/chat/completions", `{"messages":[],"max_tokens":3,"stream":`+stream+`}`))
	}
	until(t, "the reports", func() bool { turns, tokens, tool, _ := c.reported(7); return turns == 20 && tokens == 60 && tool > 0 })
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	if turns, tokens, _, _ := c.reported(7); turns != 20 || tokens != 60 {
		t.Errorf("%d turns, %d tokens", turns, tokens)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.reports {
		for _, x := range r.Generations {
			if x.Turns > 0 && (x.FinishReason != "length" || x.ContextTokens == 0 || x.Worker != "w1") {
				t.Errorf("%v", x)
			}
		}
	}
}

// A gateway that stops lets streams end, takes no further requests, and reports what is left.
func TestStop(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, func(c *Config) { c.ReportInterval = time.Hour })
	reached, goes := make(chan struct{}), make(chan struct{})
	engines[0].set(func(_ *http.Request, i int) action {
		if i == 4 {
			close(reached)
			<-goes
		}
		return goOn
	})
	resp := post(t, g, "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":8}`)
	<-reached
	stopped := make(chan error)
	go func() { stopped <- g.Stop() }()
	until(t, "it stops", g.draining.Load)
	close(goes)
	if j := join(t, readAll(t, resp)); j.text != generated("x", 8) || j.done != 1 {
		t.Errorf("%+v", j)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if turns, tokens, _, _ := c.reported(7); turns != 1 || tokens != 8 {
		t.Errorf("%d turns, %d tokens", turns, tokens)
	}
}

func TestTooManyRequests(t *testing.T) {
	_, engines, g := world(t, dialectVLLM, func(c *Config) { c.RequestsMax = 1 })
	reached, goes := make(chan struct{}), make(chan struct{})
	engines[0].set(func(_ *http.Request, i int) action {
		if i == 1 {
			close(reached)
			<-goes
		}
		return goOn
	})
	first := post(t, g, "/v1/completions", `{"prompt":"x","stream":true}`)
	<-reached
	resp := post(t, g, "/v1/completions", `{"prompt":"x"}`)
	if got := readAll(t, resp); resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	close(goes)
	if j := join(t, readAll(t, first)); j.done != 1 {
		t.Errorf("%+v", j)
	}
}

// Requests without a trajectory go to the worker with the fewest.
func TestLeastLoaded(t *testing.T) {
	_, engines, g := world(t, dialectVLLM, func(c *Config) { c.LeastLoaded = true })
	goes := make(chan struct{})
	block := func(_ *http.Request, i int) action {
		if i == -1 {
			<-goes
		}
		return goOn
	}
	engines[0].set(block)
	engines[1].set(block)
	answers := make(chan string)
	for range 4 {
		go func() {
			resp := post(t, g, "/v1/completions", `{"model":"policy","prompt":"x"}`, trajectoryHeader, "")
			answers <- resp.Header.Get("Rota-Worker")
		}()
	}
	until(t, "all are there", func() bool { return engines[0].count()+engines[1].count() == 4 })
	close(goes)
	got := map[string]int{}
	for range 4 {
		got[<-answers]++
	}
	if got["w1"] != 2 || got["w2"] != 2 {
		t.Errorf("%v", got)
	}
	for body, status := range map[string]int{`{"prompt":"x"}`: 400, `{"prompt":"x","model":"other"}`: 404} {
		g.cfg.Wait = 10 * time.Millisecond
		resp := post(t, g, "/v1/completions", body, trajectoryHeader, "")
		if got := readAll(t, resp); resp.StatusCode != status {
			t.Errorf("%s: %d %s", body, resp.StatusCode, got)
		}
	}
}
