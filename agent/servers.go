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

// servers knows all servers and which of them is used now. Any of them will
// do; all calls go to the same one, so that one failure moves them all on.
type servers struct {
	log  hclog.Logger
	http *http.Client
	tls  bool

	mu  sync.Mutex
	all []*server
	cur int
}

// newServers begins with a server that depends on the node's name, so that
// agents spread over servers.
func newServers(log hclog.Logger, client *http.Client, tls bool, addrs []string, node string) *servers {
	s := &servers{log: log, http: client, tls: tls}
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
	s.cur = max(0, slices.Index(s.all, srv))
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
	if len(s.all) > 0 && s.all[s.cur%len(s.all)] == srv {
		s.cur = (s.cur + 1) % len(s.all)
	}
}

// call tries one call on the current server and moves on if it fails.
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
		if !business(err) {
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
