package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/api/httpx"
)

// The port of an attempt outlives the agent, and goes with the attempt.
func TestPorts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ports")
	a, b := plan.Key{Action: 7, Attempt: 1, Incarnation: 3}, plan.Key{Action: 8, Attempt: 2, Incarnation: 3}
	all := func(plan.Key) bool { return true }
	p, err := openPorts(dir, all)
	if err != nil {
		t.Fatal(err)
	}
	one, err := p.choose(a)
	two, other := p.choose(b)
	again, third := p.choose(a)
	if err != nil || other != nil || third != nil || one == 0 || one == two || again != one {
		t.Fatalf("ports %d, %d and %d: %v, %v, %v", one, two, again, err, other, third)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 { // under a lock of the agent
		t.Errorf("%v: %d files before the attempts start", err, len(left))
	}
	if err := errors.Join(p.keep(a), p.keep(b), p.keep(plan.Key{Action: 9})); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "7.1"), []byte("80"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err = openPorts(dir, func(k plan.Key) bool { return k == b }); err != nil {
		t.Fatal(err)
	}
	if p.get(a) != 0 || p.get(b) != two {
		t.Errorf("after a restart: %d and %d, want none and %d", p.get(a), p.get(b), two)
	}
	p.forget([]plan.Key{a, b})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 || p.get(b) != 0 {
		t.Errorf("%v: %d files are left", err, len(left))
	}
}

// An attempt that is given up while its port is written does not start.
func TestAnAttemptThatIsGivenUpWhileTheDiskHangs(t *testing.T) {
	p, err := openPorts(t.TempDir(), func(plan.Key) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	key := plan.Key{Action: 7, Attempt: 1, Incarnation: 3}
	_, err = p.choose(key)
	if err := errors.Join(err, syscall.Mkfifo(p.file(key), 0o600)); err != nil { // who writes to it waits for a reader
		t.Fatal(err)
	}
	s := &steps{agent: &agent{specs: specifier{ports: p}, forks: &forks{}}, work: t.Context()}
	ctx, giveUp := context.WithCancelCause(t.Context())
	started := make(chan error)
	go func() {
		started <- s.startSpec(ctx, &link{supervisor: newSupervisor(t)}, runtime.Spec{Key: key}, work{})
	}()
	time.Sleep(20 * time.Millisecond)
	giveUp(errAbandoned)
	if text, err := os.ReadFile(p.file(key)); err != nil || len(text) == 0 {
		t.Errorf("%q, %v", text, err)
	}
	if err := <-started; !errors.Is(err, runtime.ErrInvalidSpec) {
		t.Error(err)
	}
}

func TestCommandsThatListenGetAPort(t *testing.T) {
	p, err := openPorts(t.TempDir(), func(plan.Key) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	s := specifier{ports: p}
	key := plan.Key{Action: 7, Attempt: 1, Incarnation: 3}
	spec := runtime.Spec{Key: key, Argv: []string{"serve", "--port={{port}}"}, Env: []string{"URL=http://127.0.0.1:{{port}}/"}}
	if err := s.listens(&spec); err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(p.get(key))
	if port == "0" || !slices.Equal(spec.Argv, []string{"serve", "--port=" + port}) || !slices.Equal(spec.Env, []string{"URL=http://127.0.0.1:" + port + "/", "ROTA_PORT=" + port}) {
		t.Errorf("port %s: %q %q", port, spec.Argv, spec.Env)
	}
	quiet := runtime.Spec{Key: plan.Key{Action: 8, Attempt: 1}, Argv: []string{"work", "{{ports}}"}}
	if err := s.listens(&quiet); err != nil || p.get(quiet.Key) != 0 || len(quiet.Env) != 0 {
		t.Errorf("%v: a command that does not ask has port %d and %q", err, p.get(quiet.Key), quiet.Env)
	}
}

// Who asks whether a replica is ready cannot make the agent ask another host or port.
func TestProbesStayAtTheReplica(t *testing.T) {
	asked := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	defer other.Close()
	host := strings.TrimPrefix(other.URL, "http://")
	r := &replicas{http: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"@" + host + "/health", "//" + host + "/health", other.URL, "health", "\x00"} {
		if err := r.probe(t.Context(), "127.0.0.1:1", path); !errors.Is(err, errProbe) {
			t.Errorf("%q: %v", path, err)
		}
	}
	name, port, _ := net.SplitHostPort(host)
	if err := r.probe(t.Context(), net.JoinHostPort(name, port[:1]), port[1:]+"/health"); !errors.Is(err, errProbe) {
		t.Errorf("another port is asked: %v", err)
	}
	if err := r.probe(t.Context(), host, "/health?full=1"); err != nil {
		t.Error(err)
	}
	if path := <-asked; path != "/health" || len(asked) != 0 {
		t.Errorf("%s was asked, and %d more", path, len(asked))
	}
}

// Calls reach an attempt that runs, as they are, and no other.
func TestReplicasAreCalled(t *testing.T) {
	p, err := openPorts(t.TempDir(), func(plan.Key) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	key, runs := plan.Key{Action: 7, Attempt: 1, Incarnation: 3}, true
	port, err := p.choose(key)
	if err != nil {
		t.Fatal(err)
	}
	agent := httptest.NewServer(newReplicas(p, func(action uint64, attempt uint32) (plan.Key, bool) {
		return key, runs && action == key.Action && attempt == key.Attempt
	}))
	defer agent.Close()
	ask := func(method, path string) (int, string, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, agent.URL+httpx.ReplicaPath+path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header.Get(httpx.ReplicaHeader), string(text)
	}
	expect := func(method, path string, status int, why, text string) {
		t.Helper()
		if gotStatus, gotWhy, gotText := ask(method, path); gotStatus != status || gotWhy != why || !strings.Contains(gotText, text) {
			t.Errorf("%s %s: status %d %s: %s", method, path, gotStatus, gotWhy, gotText)
		}
	}
	expect("POST", "7/1/call/score", http.StatusBadGateway, httpx.ReplicaFailed, "refused")

	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Skipf("another process took the port: %v", err)
	}
	healthy := http.StatusServiceUnavailable
	replica := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set(httpx.ReplicaHeader, "pretended")
		if r.URL.Path == "/health" {
			w.WriteHeader(healthy)
			healthy = http.StatusOK
		}
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL.RequestURI(), r.Host, body)
	})}
	go replica.Serve(l)
	defer replica.Close()
	expect("GET", "7/1/ready", http.StatusNoContent, "", "")
	expect("GET", "7/1/ready?probe=/health", http.StatusNoContent, "", "") // at the second question
	expect("POST", "7/1/call/a/b%2Fc?x=1", http.StatusOK, "", fmt.Sprintf("POST /a/b%%2Fc?x=1 127.0.0.1:%d body", port))
	expect("POST", "7/1/call/", http.StatusOK, "", "POST / ")
	expect("POST", "7/2/call/", http.StatusNotFound, httpx.ReplicaGone, "does not run here")
	expect("POST", "seven/1/call/", http.StatusNotFound, httpx.ReplicaGone, "no attempt")
	runs = false
	expect("POST", "7/1/call/", http.StatusNotFound, httpx.ReplicaGone, "does not run here")
}
