package agent

import (
	"context"
	"errors"
	"hash/fnv"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"rota/api/backoff"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// errNoServer means that no server's address is known.
var errNoServer = errors.New("no server is known: give addresses, or a gossip peer to find them by")

// How often the addresses of servers are asked for, and before there is any.
const (
	discoverEvery = 2 * time.Second
	discoverFirst = 50 * time.Millisecond
)

// server is one address and how to call it.
type server struct {
	addr   string
	client rotav1connect.AgentServiceClient
}

const (
	// leaderHeader is set by servers that do not lead and know who does.
	leaderHeader = "Rota-Leader"
	// leaderAvoid is how long a server that failed is not followed for being the leader:
	// this node may be cut off from that one only.
	leaderAvoid = 30 * time.Second
)

// servers knows all servers and which of them is used now. Any of them will do, and the
// leader is best: it sends what is new to this node as soon as it is committed, and a
// report takes no detour. All calls go to the same server, so that one failure moves them
// all on.
type servers struct {
	log  hclog.Logger
	http *http.Client
	tls  bool

	mu    sync.Mutex
	all   []*server
	cur   int
	avoid map[string]time.Time // until when, by address
	moved chan struct{}        // closed and replaced whenever another server is used
}

// newServers begins with a server that depends on the node's name, so that
// agents spread over servers until they hear who leads.
func newServers(log hclog.Logger, client *http.Client, tls bool, addrs []string, node string) *servers {
	s := &servers{log: log, tls: tls, avoid: map[string]time.Time{}, moved: make(chan struct{})}
	noting := *client
	noting.Transport = leaderNoter{client.Transport, s}
	s.http = &noting
	s.add(addrs)
	if len(s.all) > 0 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(node))
		s.cur = int(h.Sum32() % uint32(len(s.all)))
	}
	return s
}

// add learns addresses. None is ever forgotten: a server that gossip has lost
// sight of may be the one that can still be reached.
func (s *servers) add(addrs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, addr := range addrs {
		if addr == "" || slices.ContainsFunc(s.all, func(o *server) bool { return o.addr == addr }) {
			continue
		}
		s.all = append(s.all, &server{addr: addr, client: rotav1connect.NewAgentServiceClient(s.http,
			httpx.BaseURL(addr, s.tls), connect.WithAcceptCompression("gzip", nil, nil))})
	}
}

// discover keeps asking for addresses.
func (s *servers) discover(ctx context.Context, ask func(context.Context) []string) {
	for {
		s.add(ask(ctx))
		wait := discoverEvery
		if s.count() == 0 {
			wait = discoverFirst
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

func (s *servers) current() *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return nil
	}
	return s.all[s.cur%len(s.all)]
}

func (s *servers) list() []*server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// use makes a server the one that is called first.
func (s *servers) use(srv *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.move(max(0, slices.Index(s.all, srv)))
}

// move makes a server the current one, by its place. The lock is held.
func (s *servers) move(to int) {
	if to != s.cur {
		s.cur = to
		close(s.moved)
		s.moved = make(chan struct{})
	}
}

// leaderIs makes the leader the current server, unless it has failed lately.
func (s *servers) leaderIs(addr string) {
	s.add([]string{addr})
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().After(s.avoid[addr]) {
		s.move(slices.IndexFunc(s.all, func(o *server) bool { return o.addr == addr }))
	}
}

// leaves returns when another server than srv is used, or ctx is done.
func (s *servers) leaves(ctx context.Context, srv *server) {
	for {
		s.mu.Lock()
		current, moved := s.all[s.cur%len(s.all)], s.moved
		s.mu.Unlock()
		if current != srv {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// leaderNoter hears who leads from the answers of those who do not.
type leaderNoter struct {
	next    http.RoundTripper
	servers *servers
}

// RoundTrip implements http.RoundTripper.
func (n leaderNoter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.next.RoundTrip(r)
	if err == nil {
		if leader := resp.Header.Get(leaderHeader); leader != "" {
			n.servers.leaderIs(leader)
		}
	}
	return resp, err
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (n leaderNoter) CloseIdleConnections() {
	if c, ok := n.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (s *servers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// failed moves on to the next server, unless somebody has done so already.
func (s *servers) failed(srv *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if srv != nil {
		s.avoid[srv.addr] = time.Now().Add(leaderAvoid)
	}
	if len(s.all) > 0 && s.all[s.cur%len(s.all)] == srv {
		s.move((s.cur + 1) % len(s.all))
	}
}

// call tries one call on the current server and moves on if it fails. A call that the agent itself breaks
// off says nothing of the server.
func call[T any](ctx context.Context, s *servers, timeout time.Duration,
	fn func(context.Context, rotav1connect.AgentServiceClient) (T, error),
) (T, error) {
	var zero T
	srv := s.current()
	if srv == nil {
		return zero, errNoServer
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	v, err := fn(ctx, srv.client)
	if err != nil {
		if !business(err) && !errors.Is(ctx.Err(), context.Canceled) {
			s.failed(srv)
		}
		return zero, err
	}
	return v, nil
}

// callAll tries one call on all servers at the same time, takes the first answer
// and stays with the server that gave it.
func callAll[T any](ctx context.Context, s *servers, timeout time.Duration,
	fn func(context.Context, rotav1connect.AgentServiceClient) (T, error),
) (v T, err error) {
	type answer struct {
		srv *server
		v   T
		err error
	}
	all := s.list()
	if len(all) == 0 {
		return v, errNoServer
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers := make(chan answer, len(all))
	for _, srv := range all {
		go func() {
			v, err := fn(ctx, srv.client)
			answers <- answer{srv, v, err}
		}()
	}
	for range all {
		a := <-answers
		if a.err == nil {
			s.use(a.srv)
			return a.v, nil
		}
		err = a.err
	}
	return v, err
}

// business says that the cluster has refused the call, so that another server
// would say the same.
func business(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeAlreadyExists,
		connect.CodePermissionDenied, connect.CodeResourceExhausted:
		return true
	}
	return false
}

// rounds is how long to wait before trying again: not at all before every server had
// its turn, then longer and longer.
type rounds struct {
	backoff.Backoff
	failures int
}

func newRounds(least, most time.Duration) *rounds {
	return &rounds{Backoff: backoff.Backoff{Least: max(least, time.Millisecond), Most: max(most, time.Millisecond)}}
}

func (r *rounds) reset() {
	r.failures = 0
	r.Reset()
}

// next is the wait after one more failure, when there are so many servers.
func (r *rounds) next(servers int) time.Duration {
	if r.failures++; r.failures < servers {
		return 0
	}
	return r.Next()
}

// untilHeard calls send until a server has answered, or the context ends: then it returns false.
// An older server, which does not know the call, counts as one that has answered. Of failures
// in a row the first is warned of.
func (a *agent) untilHeard(ctx context.Context, pause *rounds, send func() error, warn func(error)) bool {
	for warned := false; ; warned = true {
		err := send()
		if err == nil || connect.CodeOf(err) == connect.CodeUnimplemented {
			pause.reset()
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if !warned {
			warn(err)
		}
		if backoff.Sleep(ctx, pause.next(a.servers.count())) != nil {
			return false
		}
	}
}
