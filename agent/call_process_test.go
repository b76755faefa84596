package agent

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/httpcall"
	"rota/agent/plan"
)

// call grants an HTTP call to the node, without cores of its own.
func (c *cluster) call(action uint64, call *rotav1.HttpCall, timeout time.Duration, quotas ...*rotav1.QuotaKey) plan.Key {
	c.t.Helper()
	c.until("registration", func(c *cluster) bool { return len(c.registered) > 0 })
	key := plan.Key{Action: action, Attempt: 1}
	c.change(func() {
		key.Incarnation = c.incarnation
		a := assignment(action)
		a.Command, a.Cpus, a.Http, a.RunTimeout = nil, nil, call, durationpb.New(timeout)
		a.QuotaKeys = quotas
		c.desired[key] = a
	})
	return key
}

// modelServer is called: it answers /wake_up at once, /busy with 503 and /slow when it is
// told to.
type modelServer struct {
	*httptest.Server
	slow chan struct{}

	mu    sync.Mutex
	calls map[string]int // by path and token
}

func newEngine(t *testing.T) *modelServer {
	e := &modelServer{slow: make(chan struct{}), calls: map[string]int{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		e.calls[r.URL.String()+" "+r.Header.Get("Rota-Token")+" "+r.Header.Get("X-Key")]++
		e.mu.Unlock()
		switch r.URL.Path {
		case "/limited":
			w.Header().Set("Retry-After", "7")
			http.Error(w, "slow down", http.StatusTooManyRequests)
		case "/busy":
			http.Error(w, "loading", http.StatusServiceUnavailable)
		case "/slow":
			select {
			case <-e.slow:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, "woken")
	}))
	t.Cleanup(e.Close)
	return e
}

// count is how many calls have arrived at a path from an attempt.
func (e *modelServer) count(path string, key plan.Key, header string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[path+" "+key.String()+" "+header]
}

func exited(r *rotav1.ActionResult, code int32) bool {
	return r.Reason == rotav1.EndReason_END_REASON_EXITED && r.ExitCode == code
}

func TestHTTPCalls(t *testing.T) {
	c, e := newCluster(t, 1), newEngine(t)
	newProcess(t, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	wakes := c.call(1, &rotav1.HttpCall{Method: "POST", Url: e.URL + "/wake_up?tags=weights"}, time.Minute)
	busy := c.call(2, &rotav1.HttpCall{Url: e.URL + "/busy"}, 0)
	refused := c.call(3, &rotav1.HttpCall{Url: "http://" + nobody}, 0)
	late := c.call(4, &rotav1.HttpCall{Url: e.URL + "/slow"}, 300*time.Millisecond)

	r := c.result(wakes)
	if !exited(r, 0) || string(r.StdoutTail) != "woken" || string(r.StderrTail) != "HTTP/1.1 200 OK\n" {
		t.Errorf("a call that is accepted: %v", r)
	}
	if n := e.count("/wake_up?tags=weights", wakes, ""); n != 1 {
		t.Errorf("it arrived with its token %d times: %v", n, e.calls)
	}
	r = c.result(busy)
	if !exited(r, httpcall.ExitNotAccepted) || string(r.StdoutTail) != "loading\nwoken" || !strings.Contains(string(r.StderrTail), "status 503 is not accepted") {
		t.Errorf("a call that is not accepted: %v", r)
	}
	r = c.result(refused)
	if !exited(r, httpcall.ExitNoConn) || !strings.Contains(string(r.StderrTail), "could not connect to "+nobody) {
		t.Errorf("a call of nobody: %v", r)
	}
	if r = c.result(late); r.Reason != rotav1.EndReason_END_REASON_TIMEOUT {
		t.Errorf("a call without an answer: %v", r)
	}
}

// TestARefusedCallIsReported: with how long the other side asked to wait, if the call uses quotas.
func TestARefusedCallIsReported(t *testing.T) {
	c, e := newCluster(t, 1), newEngine(t)
	newProcess(t, c)
	quota := &rotav1.QuotaKey{Quota: "api", Key: 1}
	call := func(action uint64, path string, quotas ...*rotav1.QuotaKey) *rotav1.Throttle {
		key := c.call(action, &rotav1.HttpCall{Url: e.URL + path}, 0, quotas...)
		c.result(key)
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.throttles[key]
	}
	if got := call(1, "/limited", quota); got.GetRetryAfter().AsDuration() != 7*time.Second {
		t.Errorf("a refused call reports %v", got)
	}
	if got := call(2, "/limited"); got != nil {
		t.Errorf("a refused call without quotas reports %v", got)
	}
	if got := call(3, "/wake_up", quota); got != nil {
		t.Errorf("an accepted call reports %v", got)
	}
}

// TestACallOutlivesItsAgent and is not made again; nor do its headers show on its
// command line.
func TestACallOutlivesItsAgent(t *testing.T) {
	c, e := newCluster(t, 1), newEngine(t)
	p := newProcess(t, c)
	key := c.call(1, &rotav1.HttpCall{Url: e.URL + "/slow", Headers: map[string]string{"X-Key": "a-secret"}}, 0)
	for limit := time.Now().Add(20 * time.Second); e.count("/slow", key, "a-secret") == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the call does not arrive")
		}
	}
	if line := commandLines(t); strings.Contains(line, "a-secret") || !strings.Contains(line, "\x00"+httpcall.Command+"\x00") {
		t.Errorf("command lines: %q", line)
	}
	p.kill()
	p.start()
	close(e.slow)
	if r := c.result(key); !exited(r, 0) || string(r.StdoutTail) != "woken" {
		t.Errorf("reported %v", r)
	}
	if n := e.count("/slow", key, "a-secret"); n != 1 {
		t.Errorf("it was made %d times", n)
	}
}

// commandLines are those of all processes.
func commandLines(t *testing.T) string {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range procs {
		b, _ := os.ReadFile(path) // it may have ended
		all.Write(b)
	}
	return all.String()
}
