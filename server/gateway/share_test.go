package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// The limit of bytes counts what workers answer, what they are sent, and what replicas answer. None of
// that is a failure of theirs.
func TestAnswersHaveBytes(t *testing.T) {
	const bytesMax = 3 << 20
	big := strings.Repeat("x", 2*bytesMax)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, `data: {"id":"x","choices":[{"index":0,"text":"a"}]}`+"\n\n")
			w.(http.Flusher).Flush()
			fmt.Fprintf(w, `data: {"id":"x","choices":[{"index":0,"text":"%s"}]}`+"\n\n", big)
			return
		}
		fmt.Fprintf(w, `{"choices":[{"index":0,"text":"%s"}]}`, big)
	}))
	defer engine.Close()
	a := newAgent(t)
	a.set(1, true, says(big))
	c, g := rewardWorld(t, a.function(nil, 1), func(c *Config) { c.BodyBytesMax, c.BytesMax = bytesMax/3, bytesMax })
	c.tell(&rotav1.WatchRoutesResponse{Workers: []*rotav1.Worker{{
		Spec:  &rotav1.WorkerSpec{Name: "w1", Policy: "policy", Url: engine.URL, Dialect: dialectVLLM},
		State: rotav1.WorkerState_WORKER_STATE_UP,
	}}})
	c.route(7, "w1", 0)
	until(t, "the route", func() bool { return g.table.entryOf(7).worker == "w1" })
	for name, req := range map[string]struct {
		path, body string
		status     int
	}{
		"an answer":             {"/v1/completions", `{"prompt":"x"}`, http.StatusTooManyRequests},
		"an event":              {"/v1/completions", `{"prompt":"x","stream":true}`, http.StatusOK},
		"an answer of a reward": {"/v1/rewards/f", `{}`, http.StatusTooManyRequests},
	} {
		resp := post(t, g, req.path, req.body)
		if got := readAll(t, resp); resp.StatusCode != req.status || !strings.Contains(got, "too_many_bytes") {
			t.Errorf("%s: %d %.300s", name, resp.StatusCode, got)
		}
		until(t, "nothing is held any more", func() bool { return g.bytes.Load() == 0 })
	}
	if _, _, _, failed := c.reported(7); len(failed) > 0 || readyReplicas(g) != 1 {
		t.Errorf("failed: %v; %d replicas are ready", failed, readyReplicas(g))
	}
}

// A body of the largest size passes at a gateway that has no other, however it comes.
func TestALargestBodyPasses(t *testing.T) {
	const most = 5<<20 + 7
	_, engines, g := world(t, dialectVLLM, func(c *Config) { c.BodyBytesMax, c.BytesMax = most, 2*most+headBytes })
	for _, stream := range []string{"false", "true"} {
		for _, chunked := range []bool{false, true} {
			body := `{"stream":` + stream + `,"prompt":"`
			// The model becomes another one, and what follows it does not fit by chance.
			end := `","model":"x","metadata":"` + strings.Repeat("y", 20<<10) + `"}`
			body += strings.Repeat("x", most-len(body)-len(end)) + end
			req := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set(trajectoryHeader, "7")
			req.Header.Set("X-Long", strings.Repeat("x", 50<<10))
			if chunked {
				req.ContentLength = -1
			}
			w := httptest.NewRecorder()
			if g.generate(w, req, completions); w.Code != http.StatusOK || strings.Contains(w.Body.String(), problemType) {
				t.Errorf("a stream: %s, chunked: %v: %d %.300s", stream, chunked, w.Code, w.Body)
			}
		}
	}
	if engines[0].count() != 4 || g.bytes.Load() != 0 {
		t.Errorf("%d requests, %d bytes are still counted", engines[0].count(), g.bytes.Load())
	}
	for more, want := range map[int64]bool{0: true, -1: false} {
		cfg := Config{Servers: []string{"127.0.0.1:1"}, BodyBytesMax: most, BytesMax: 2*most + headBytes + more}
		if err := cfg.check(); (err == nil) != want {
			t.Errorf("%d bytes more: %v", more, err)
		}
	}
}

// A full gateway refuses new requests. Those that run go on, also at another worker.
func TestAFullGatewayEndsNoStream(t *testing.T) {
	const bytesMax, forOthers = 8 << 20, 8<<20 - 8<<20/bodiesLeave
	c, engines, g := world(t, dialectVLLM, func(c *Config) { c.BodyBytesMax, c.BytesMax = bytesMax/4, bytesMax })
	reached, full := make(chan struct{}), make(chan struct{})
	cut := once(3, cutOff)
	engines[0].set(func(r *http.Request, i int) action {
		what := cut(r, i)
		if what == cutOff {
			close(reached)
			<-full
		}
		return what
	})
	moveWhenFailed(t, c, "w1", "w2")
	prompt := strings.Repeat("x", bytesMax/4-100)
	resp := post(t, g, "/v1/completions", `{"stream":true,"max_tokens":8,"prompt":"`+prompt+`"}`)
	<-reached
	g.bytes.Add(forOthers)
	if got := readAll(t, post(t, g, "/v1/completions", `{"prompt":"x"}`)); !strings.Contains(got, "too_many_bytes") {
		t.Errorf("a new request: %.300s", got)
	}
	g.bytes.Add(bytesMax)
	close(full)
	if j := join(t, readAll(t, resp)); j.text != generated(prompt, 8) || j.done != 1 || engines[1].count() != 1 {
		t.Errorf("%d requests went on: %+v", engines[1].count(), j)
	}
	until(t, "only others are counted", func() bool { return g.bytes.Load() == forOthers+bytesMax })
}

// Bodies leave room to what runs, and what is refused is not counted while its client is told.
func TestBodiesLeaveRoom(t *testing.T) {
	var all atomic.Int64
	s := &share{all: &all, max: 8 << 20}
	body := func(n int) error {
		_, err := s.read(iotest.HalfReader(strings.NewReader(strings.Repeat("x", n))), ofBody, -1, 7<<20+1)
		return err
	}
	if err := body(7 << 20); err == nil || all.Load() != 0 {
		t.Errorf("%v, %d bytes are counted", err, all.Load())
	}
	if err := body(3 << 20); err != nil || all.Load() == 0 {
		t.Errorf("%v, %d bytes are counted", err, all.Load())
	}
	all.Add(8 << 20)
	if err := s.hold(ofEvents, smallBytes); err != nil {
		t.Errorf("a small buffer: %v", err)
	}
	if err := s.hold(ofEvents, smallBytes+1); err == nil {
		t.Error("a large buffer is no error")
	}
	if s.end(); all.Load() != 8<<20 {
		t.Errorf("%d bytes are counted", all.Load())
	}
}

// A stream has its body in memory once: what was sent is not kept for the events.
func TestAStreamCountsItsBodyOnce(t *testing.T) {
	_, engines, g := world(t, dialectVLLM, nil)
	var counted atomic.Int64
	engines[0].set(func(_ *http.Request, i int) action {
		if i == 8 { // the client has the first events long since
			counted.Store(max(counted.Load(), g.bytes.Load()))
		}
		time.Sleep(time.Millisecond)
		return goOn
	})
	const size = 512 << 10
	body := `{"stream":true,"prompt":"` + strings.Repeat("x", size) + `"}`
	for range 10 { // a pool forgets at times
		readAll(t, post(t, g, "/v1/completions", body))
	}
	if n := counted.Load(); n < size || n > size*5/4 {
		t.Errorf("a stream of %d bytes counts as %d", size, n)
	}
}
