package agent

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/gen/rota/v1/rotav1connect"
)

// follower answers every request and says who leads.
func follower(t *testing.T, leader *string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if *leader != "" {
			w.Header().Set(leaderHeader, *leader)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestAgentsFollowTheLeader as those name it who do not lead, also to an address that
// was not known; but not to one that has just failed.
func TestAgentsFollowTheLeader(t *testing.T) {
	leader := ""
	a, b := follower(t, &leader), follower(t, new(string))
	s := newServers(hclog.NewNullLogger(), &http.Client{Transport: http.DefaultTransport}, false, []string{a}, "n")
	ask := func() {
		t.Helper()
		resp, err := s.http.Get("http://" + s.current().addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	ask()
	if got := s.current().addr; got != a {
		t.Fatalf("moved to %s, and no leader was named", got)
	}
	left := make(chan struct{})
	go func(srv *server) { s.leaves(t.Context(), srv); close(left) }(s.current())
	leader = b
	ask()
	if got := s.current().addr; got != b {
		t.Fatalf("the current server is %s, the leader %s", got, b)
	}
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Fatal("the stream was not told that another server is used")
	}

	s.failed(s.current())
	for range 3 {
		ask()
	}
	if got := s.current().addr; got != a {
		t.Errorf("followed the leader to %s, which has just failed", got)
	}
	s.avoid[b] = time.Now() // that was long ago
	ask()
	if got := s.current().addr; got != b {
		t.Errorf("the current server is %s, the leader %s", got, b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.leaves(ctx, s.current()) // returns
}

// TestACallThatTheAgentBreaksOff says nothing of the server, which is still the one that is called.
func TestACallThatTheAgentBreaksOff(t *testing.T) {
	s := newServers(hclog.NewNullLogger(), &http.Client{Transport: http.DefaultTransport}, false, []string{"127.0.0.1:1", "127.0.0.1:2"}, "n")
	first := s.current()
	ctx, cancel := context.WithCancel(t.Context())
	hangs := func(ctx context.Context, _ rotav1connect.AgentServiceClient) (int, error) {
		cancel()
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if _, err := call(ctx, s, time.Minute, hangs); err == nil || s.current() != first {
		t.Errorf("%v, and then %s is called", err, s.current().addr)
	}
	if _, err := call(t.Context(), s, time.Millisecond, hangs); err == nil || s.current() == first {
		t.Errorf("%v, and the server that did not answer is called again", err)
	}
}
