package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"rota/api/httpx"
)

// leaderHeader is set by servers that are not the leader and know who is.
const leaderHeader = "Rota-Leader"

// leaderAvoid is how long a leader that could not be reached at the address it
// advertises is not tried again for being the leader.
const leaderAvoid = 3 * time.Second

// servers sends each request to the server that is current. It is the HTTP
// client of all services, so that they need not know about servers at all.
type servers struct {
	http   connect.HTTPClient
	scheme string
	token  func() (string, error)

	mu      sync.Mutex
	addrs   []string // as configured
	current string
	avoid   map[string]time.Time // until when, for addresses that failed
	// known are the addresses that have answered before.
	known map[string]bool
}

func newServers(config Config) *servers {
	s := &servers{
		http: config.HTTP, scheme: "http", token: config.Token,
		addrs: slices.Clone(config.Addrs), current: config.Addrs[0],
		avoid: map[string]time.Time{}, known: map[string]bool{},
	}
	if config.TLS != nil {
		s.scheme = "https"
	}
	return s
}

// baseURL is what services are told; Do puts the real host in.
func (s *servers) baseURL() string { return s.scheme + "://rota" }

// attempt is passed in the context of one try of a call, to learn which server
// it went to.
type attempt struct{ addr string }

type attemptKey struct{}

// Do sends a request to the current server. If that cannot be reached, the next
// one becomes current.
func (s *servers) Do(r *http.Request) (*http.Response, error) {
	addr := s.pick()
	if a, ok := r.Context().Value(attemptKey{}).(*attempt); ok {
		a.addr = addr
	}
	r.URL.Host, r.Host = addr, addr
	if err := s.identify(r, addr); err != nil {
		return nil, err
	}
	resp, err := s.http.Do(r)
	if err != nil {
		if r.Context().Err() == nil {
			s.failed(addr)
		}
		return nil, err
	}
	s.answers(addr)
	if leader := resp.Header.Get(leaderHeader); leader != "" {
		s.leaderIs(leader)
	}
	return resp, nil
}

// errTokenInClear: who sees the token on its way can use it.
var errTokenInClear = errors.New("a token is only sent with TLS or to a loopback address: give the CA of the servers")

// identify puts the token of the client into a request.
func (s *servers) identify(r *http.Request, addr string) error {
	if s.token == nil {
		return nil
	}
	token, err := s.token()
	if err != nil || token == "" {
		return err
	}
	if err := s.mayHear(addr); err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// mayHear refuses to send a token to an address in clear.
func (s *servers) mayHear(addr string) error {
	if host, _, _ := net.SplitHostPort(addr); s.scheme != "https" && !httpx.OnLoopback(host) {
		return fmt.Errorf("%s: %w", addr, errTokenInClear)
	}
	return nil
}

// checkToken says at once what would go wrong with the token of each call.
func (s *servers) checkToken() error {
	if s.token == nil {
		return nil
	}
	token, err := s.token()
	if err != nil || token == "" {
		return err
	}
	for _, addr := range s.addrs {
		if err := s.mayHear(addr); err != nil {
			return err
		}
	}
	return nil
}

func (s *servers) answers(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[addr] = true
}

// answered reports whether an address has ever answered a request.
func (s *servers) answered(addr string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[addr]
}

func (s *servers) pick() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// failed makes another server current, unless another caller has done so.
func (s *servers) failed(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.avoid[addr] = now.Add(leaderAvoid)
	if s.current != addr {
		return
	}
	at := slices.Index(s.addrs, addr)
	for i := range s.addrs {
		next := s.addrs[(at+1+i)%len(s.addrs)]
		if next != addr && now.After(s.avoid[next]) {
			s.current = next
			return
		}
	}
	// All have failed lately: go round.
	s.current = s.addrs[(at+1)%len(s.addrs)]
}

// leaderIs makes the leader current, unless it has just failed.
func (s *servers) leaderIs(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if addr != s.current && time.Now().After(s.avoid[addr]) {
		s.current = addr
	}
}

func withAttempt(ctx context.Context) (context.Context, *attempt) {
	a := new(attempt)
	return context.WithValue(ctx, attemptKey{}, a), a
}
