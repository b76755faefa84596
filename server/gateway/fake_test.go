package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// patience is for what must happen but may take its time on a slow machine.
const patience = time.Minute

// fakeCluster is what a gateway needs of servers, over a real socket.
type fakeCluster struct {
	rewards fakeRewards
	rotav1connect.UnimplementedWorkerServiceHandler
	rotav1connect.UnimplementedOperatorServiceHandler
	addr  string
	close func() error // ends the server

	mu       sync.Mutex
	state    *rotav1.WatchRoutesResponse // all of it
	watchers map[chan *rotav1.WatchRoutesResponse]bool
	cut      chan struct{}
	reports  map[string]*rotav1.ReportGenerationsRequest // by request ID
	refuse   int                                         // so many reports fail after they counted
	down     bool
	stale    bool // so is what new watches begin with
	watches  int  // that have begun
	changed  chan struct{}
}

func newCluster(t testing.TB) *fakeCluster {
	c := &fakeCluster{
		state: &rotav1.WatchRoutesResponse{}, watchers: map[chan *rotav1.WatchRoutesResponse]bool{},
		cut: make(chan struct{}), reports: map[string]*rotav1.ReportGenerationsRequest{}, changed: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewWorkerServiceHandler(c, codec.ForHandler()))
	mux.Handle(rotav1connect.NewOperatorServiceHandler(c, codec.ForHandler()))
	mux.Handle(rotav1connect.NewRewardServiceHandler(&c.rewards, codec.ForHandler()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.addr = l.Addr().String()
	srv := httpx.NewServer(mux)
	go srv.Serve(l)
	c.close = srv.Close
	t.Cleanup(func() { srv.Close() })
	return c
}

func (c *fakeCluster) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	return &rotav1.GetStatusResponse{LogTime: timestamppb.New(time.Unix(1_800_000_000, 0))}, nil
}

func (c *fakeCluster) WatchRoutes(ctx context.Context, _ *rotav1.WatchRoutesRequest, s *connect.ServerStream[rotav1.WatchRoutesResponse]) error {
	ch := make(chan *rotav1.WatchRoutesResponse, 1000)
	c.mu.Lock()
	if c.down {
		c.mu.Unlock()
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("no server"))
	}
	all := proto.CloneOf(c.state)
	cut, stale := c.cut, c.stale
	c.watches++
	c.watchers[ch] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, ch)
	}()
	// In two parts, of which only both together are all.
	all.Reset_, all.Stale = true, stale
	rest := &rotav1.WatchRoutesResponse{Complete: true, Stale: stale, Workers: all.Workers}
	all.Workers = nil
	for _, m := range []*rotav1.WatchRoutesResponse{all, rest} {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	for {
		select {
		case m := <-ch:
			if err := s.Send(m); err != nil {
				return err
			}
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell sends a change to all watches, and keeps it for later ones.
func (c *fakeCluster) tell(m *rotav1.WatchRoutesResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range m.Routes {
		i := 0
		for i < len(c.state.Routes) && c.state.Routes[i].TrajectoryId != r.TrajectoryId {
			i++
		}
		c.state.Routes = append(c.state.Routes[:i:i], c.state.Routes[min(i+1, len(c.state.Routes)):]...)
		c.state.Routes = append(c.state.Routes, r)
	}
	for _, w := range m.Workers {
		i := 0
		for i < len(c.state.Workers) && c.state.Workers[i].Spec.Name != w.Spec.Name {
			i++
		}
		c.state.Workers = append(c.state.Workers[:i:i], c.state.Workers[min(i+1, len(c.state.Workers)):]...)
		c.state.Workers = append(c.state.Workers, w)
	}
	for _, r := range m.Rewards {
		c.state.Rewards = slices.DeleteFunc(c.state.Rewards, func(o *rotav1.Reward) bool { return o.Spec.Name == r.Spec.Name })
		c.state.Rewards = append(c.state.Rewards, r)
	}
	for ch := range c.watchers {
		ch <- m
	}
}

func (c *fakeCluster) route(id uint64, worker string, priority uint32) {
	c.tell(&rotav1.WatchRoutesResponse{Routes: []*rotav1.Route{{TrajectoryId: id, Policy: "policy", Worker: worker, Priority: priority}}})
}

// breakWatch cuts all watches; while down, no other one begins.
func (c *fakeCluster) breakWatch(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.cut)
	c.cut, c.down = make(chan struct{}), down
}

// restart cuts all watches, and has others begin with what a server knows.
func (c *fakeCluster) restart(state *rotav1.WatchRoutesResponse, stale bool) {
	c.mu.Lock()
	c.state, c.stale, c.watches = state, stale, 0
	c.mu.Unlock()
	c.breakWatch(false)
}

// begun is how many watches have begun since a restart.
func (c *fakeCluster) begun() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watches
}

func (c *fakeCluster) ReportGenerations(_ context.Context, r *rotav1.ReportGenerationsRequest) (*rotav1.ReportGenerationsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.RequestId == "" || r.ExpireTime == nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("no request ID"))
	}
	c.reports[r.RequestId] = proto.CloneOf(r)
	close(c.changed)
	c.changed = make(chan struct{})
	if c.refuse > 0 {
		c.refuse--
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("lost"))
	}
	return &rotav1.ReportGenerationsResponse{}, nil
}

// reported sums what was said about a trajectory, and returns failed workers.
func (c *fakeCluster) reported(id uint64) (turns uint32, tokens uint64, tool time.Duration, failed map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failed = map[string]string{}
	for _, r := range c.reports {
		for _, g := range r.Generations {
			if g.TrajectoryId == id {
				turns, tokens, tool = turns+g.Turns, tokens+g.OutputTokens, tool+g.ToolTime.AsDuration()
			}
		}
		for _, w := range r.Workers {
			failed[w.Worker] = w.Message
		}
	}
	return turns, tokens, tool, failed
}

// until waits for a condition, which is looked at again and again.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// token is what the fake engine generates behind a text: the same behind the same text.
func token(text string) string {
	h := fnv.New32a()
	io.WriteString(h, text)
	words := []string{"wheel ", "turn\n", "\"quoted\" ", "é", "😀", "roster ", "\\ ", "go"}
	return words[h.Sum32()%uint32(len(words))]
}

// generated are the first n tokens behind a text.
func generated(text string, n int) string {
	begin := len(text)
	for range n {
		text += token(text)
	}
	return text[begin:]
}

// fakeEngine answers as an engine of a dialect does.
type fakeEngine struct {
	*httptest.Server
	dialect rotav1.WorkerDialect
	name    string

	mu     sync.Mutex
	seen   []map[string]any
	header []http.Header
	aborts []string
	// before is called before the i-th token of a request, or with -1 before the answer; what it
	// returns is done instead.
	before func(r *http.Request, i int) action
	gone   chan struct{} // receives when a client is gone
}

type action int

const (
	goOn action = iota
	cutOff
	answer500
	answer400
	sayError
	sayRefusal
	sayAbort
	sayNothing // more: the stream ends without an end
	sayEnd     // of one answer, and nothing more
)

type engineRequest struct {
	Model    string
	Stream   bool
	Prompt   any
	Messages []struct {
		Role    string
		Content string
	}
	MaxTokens     *int  `json:"max_tokens"`
	ContinueFinal bool  `json:"continue_final_message"`
	AddPrompt     *bool `json:"add_generation_prompt"`
	Options       struct {
		Usage bool `json:"include_usage"`
		Each  bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	ToolCalls bool `json:"test_tool_calls"`
}

func newEngine(t testing.TB, name string, d rotav1.WorkerDialect) *fakeEngine {
	e := &fakeEngine{dialect: d, name: name, gone: make(chan struct{}, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/", e.generate)
	abort := func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.aborts = append(e.aborts, r.URL.Path+" "+string(raw))
	}
	switch d {
	case rotav1.WorkerDialect_WORKER_DIALECT_VLLM:
		mux.HandleFunc("POST /abort_requests", abort)
	case rotav1.WorkerDialect_WORKER_DIALECT_SGLANG:
		mux.HandleFunc("POST /abort_request", abort)
	}
	e.Server = httptest.NewServer(mux)
	t.Cleanup(func() { e.CloseClientConnections(); e.Close() })
	return e
}

func (e *fakeEngine) worker(state rotav1.WorkerState) *rotav1.Worker {
	return &rotav1.Worker{Spec: &rotav1.WorkerSpec{Name: e.name, Policy: "policy", Url: e.URL, Dialect: e.dialect}, State: state}
}

// text is what the engine goes on behind.
func (q *engineRequest) text() string {
	if s, ok := q.Prompt.(string); ok {
		return s
	}
	var b strings.Builder
	for i, m := range q.Messages {
		b.WriteString("<" + m.Role + ">" + m.Content)
		if i == len(q.Messages)-1 && q.ContinueFinal {
			return b.String()
		}
	}
	return b.String() + "<assistant>"
}

func (e *fakeEngine) do(r *http.Request, i int) action {
	e.mu.Lock()
	before := e.before
	e.mu.Unlock()
	if before == nil {
		return goOn
	}
	return before(r, i)
}

func (e *fakeEngine) generate(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var q engineRequest
	var all map[string]any
	if json.Unmarshal(raw, &q) != nil || json.Unmarshal(raw, &all) != nil {
		http.Error(w, `{"error":{"message":"bad body"}}`, http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	e.seen, e.header = append(e.seen, all), append(e.header, r.Header.Clone())
	n := len(e.seen)
	e.mu.Unlock()
	defer func() {
		if r.Context().Err() != nil {
			e.gone <- struct{}{}
		}
	}()
	did := e.do(r, -1)
	switch did {
	case cutOff:
		panic(http.ErrAbortHandler)
	case answer500:
		http.Error(w, `{"error":{"message":"broken"}}`, http.StatusInternalServerError)
		return
	case answer400:
		http.Error(w, `{"error":{"message":"too long"}}`, http.StatusBadRequest)
		return
	}
	s := &fakeStream{e: e, w: w, r: r, q: q, id: fmt.Sprintf("%s-%d", e.name, n), chat: strings.HasSuffix(r.URL.Path, "/chat/completions")}
	if q.Stream {
		s.run()
		return
	}
	text, finish, n := q.text(), "length", s.max()
	if did == sayAbort {
		finish, n = "abort", n/2
	}
	out := generated(text, n)
	w.Header().Set("Content-Type", "application/json")
	message := map[string]any{"index": 0, "finish_reason": finish, "text": out}
	if s.chat {
		message = map[string]any{"index": 0, "finish_reason": finish, "message": map[string]any{"role": "assistant", "content": out}}
	}
	json.NewEncoder(w).Encode(map[string]any{"id": s.id, "created": 5, "model": q.Model, "choices": []any{message},
		"usage": s.usage(len(text), n)})
}

// fakeStream is one streaming answer.
type fakeStream struct {
	e    *fakeEngine
	w    http.ResponseWriter
	r    *http.Request
	q    engineRequest
	id   string
	chat bool
}

func (s *fakeStream) max() int {
	if s.q.MaxTokens != nil {
		return *s.q.MaxTokens
	}
	return 16
}

func (s *fakeStream) usage(prompt, n int) map[string]any {
	return map[string]any{"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n}
}

// event writes an event as vLLM's Python would.
func (s *fakeStream) event(choices string, usage map[string]any) {
	model, _ := json.Marshal(s.q.Model)
	fmt.Fprintf(s.w, `data: {"id": "%s", "object": "chunk", "created": %d, "model": %s, "choices": [%s]`, s.id, len(s.id), model, choices)
	if usage != nil {
		u, _ := json.Marshal(usage)
		fmt.Fprintf(s.w, `, "usage": %s`, u)
	}
	io.WriteString(s.w, "}\n\n")
	s.w.(http.Flusher).Flush()
}

func (s *fakeStream) each(prompt, n int) map[string]any {
	if s.q.Options.Each {
		return s.usage(prompt, n)
	}
	return nil
}

func (s *fakeStream) run() {
	s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	text := s.q.text()
	prompt := len(text)
	if s.chat {
		s.event(`{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}`, s.each(prompt, 0))
	}
	for i := range s.max() {
		switch s.e.do(s.r, i) {
		case cutOff:
			io.WriteString(s.w, `data: {"id": "half`)
			s.w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case sayError:
			io.WriteString(s.w, `data: {"error": {"message": "engine died", "code": 500}}`+"\n\ndata: [DONE]\n\n")
			return
		case sayRefusal:
			io.WriteString(s.w, `data: {"error": {"message": "too long", "code": 400}}`+"\n\ndata: [DONE]\n\n")
			return
		case sayNothing:
			return
		case sayEnd:
			s.event(`{"index": 0, "text": "", "finish_reason": "stop"}`, nil)
			return
		case sayAbort:
			s.event(`{"index": 0, "delta": {"content": ""}, "finish_reason": "abort"}`, nil)
			io.WriteString(s.w, "data: [DONE]\n\n")
			return
		}
		if s.r.Context().Err() != nil {
			return
		}
		tok := token(text)
		text += tok
		raw, _ := json.Marshal(tok)
		switch {
		case s.q.ToolCalls:
			s.event(fmt.Sprintf(`{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": %s}}]}, "finish_reason": null}`, raw), s.each(prompt, i+1))
		case s.chat:
			s.event(fmt.Sprintf(`{"index": 0, "delta": {"content": %s}, "finish_reason": null}`, raw), s.each(prompt, i+1))
		default:
			s.event(fmt.Sprintf(`{"index": 0, "text": %s, "finish_reason": null}`, raw), s.each(prompt, i+1))
		}
	}
	if s.chat {
		s.event(`{"index": 0, "delta": {}, "finish_reason": "length"}`, s.each(prompt, s.max()))
	} else {
		s.event(`{"index": 0, "text": "", "finish_reason": "length"}`, s.each(prompt, s.max()))
	}
	if s.q.Options.Usage {
		s.event("", s.usage(prompt, s.max()))
	}
	io.WriteString(s.w, "data: [DONE]\n\n")
}

func (e *fakeEngine) set(before func(*http.Request, int) action) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before = before
}

func (e *fakeEngine) last() map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[len(e.seen)-1]
}

func (e *fakeEngine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.seen)
}

func (e *fakeEngine) abortCalls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.aborts...)
}

// start runs a gateway of a cluster for the test.
func start(t testing.TB, c *fakeCluster, change func(*Config)) *Gateway {
	t.Helper()
	cfg := Config{Listen: "127.0.0.1:0", Servers: []string{c.addr}, ReportInterval: 10 * time.Millisecond, Wait: patience, Drain: 10 * time.Second, Logger: hclog.NewNullLogger()}
	if change != nil {
		change(&cfg)
	}
	g, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Stop() })
	return g
}

// world is a cluster with two engines of a dialect and a gateway; trajectory 7 is at the first.
func world(t testing.TB, d rotav1.WorkerDialect, change func(*Config)) (*fakeCluster, [2]*fakeEngine, *Gateway) {
	t.Helper()
	c := newCluster(t)
	engines := [2]*fakeEngine{newEngine(t, "w1", d), newEngine(t, "w2", d)}
	up := rotav1.WorkerState_WORKER_STATE_UP
	c.tell(&rotav1.WatchRoutesResponse{Workers: []*rotav1.Worker{engines[0].worker(up), engines[1].worker(up)}})
	c.route(7, "w1", 1234)
	g := start(t, c, change)
	until(t, "routes", func() bool { _, _, ready := g.table.counts(); return ready })
	return c, engines, g
}

// post sends a request of trajectory 7, or of another one with the header.
func post(t testing.TB, g *Gateway, path, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(trajectoryHeader, "7")
	for i := 0; i < len(header); i += 2 {
		if req.Header.Del(header[i]); header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func readAll(t testing.TB, resp *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// joined is the text of a stream, and what else matters of its events.
type joined struct {
	text, finish, problem string
	ids                   map[string]bool
	roles, done, usage    int
}

func join(t testing.TB, stream string) (j joined) {
	t.Helper()
	j.ids = map[string]bool{}
	for _, ev := range strings.Split(stream, "\n\n") {
		data, ok := strings.CutPrefix(ev, "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			j.done++
			continue
		}
		var v struct {
			ID      string
			Created int
			Error   *struct{ Message, Code string }
			Choices []struct {
				Text   string
				Delta  struct{ Role, Content string }
				Finish string `json:"finish_reason"`
			}
			Usage *struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			t.Fatalf("event %q: %v", data, err)
		}
		if v.Error != nil {
			j.problem = v.Error.Code + ": " + v.Error.Message
			continue
		}
		j.ids[fmt.Sprint(v.ID, " ", v.Created)] = true
		for _, c := range v.Choices {
			j.text += c.Text + c.Delta.Content
			j.finish += c.Finish
			if c.Delta.Role != "" {
				j.roles++
			}
		}
		if v.Usage != nil {
			j.usage = v.Usage.Completion
		}
	}
	return j
}
