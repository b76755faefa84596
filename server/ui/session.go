package ui

import (
	"crypto/rand"
	"crypto/sha256"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// cookieName is that of the cookie of a session. With this prefix browsers take it over TLS only,
	// for this host only, and not from a page of another host (RFC 6265bis, section 4.1.3.2).
	cookieName = "__Host-rota"
	// sessionLifetime is from the log-in to the end of a session, used or not.
	sessionLifetime = time.Hour
	// sessionsMax bounds the sessions of a server. Beyond it, the oldest one ends.
	sessionsMax = 1024
	// sessionsEach bounds those of one caller, so that nobody with a token ends those of others.
	sessionsEach = 16
)

// session is a browser that logged in.
type session struct {
	// bearer is what the browser logged in with. It is in the memory of this process only.
	bearer string
	// user is its caller as told from others, name that of the caller, to be shown.
	user, name string
	ends       time.Time
}

// sessions are those of this server: they end with the process. The key is the SHA-256 of the
// cookie, so a lookup takes no time that tells anything of other cookies.
type sessions struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]*session
}

func newSessions() *sessions { return &sessions{all: map[[sha256.Size]byte]*session{}} }

// begin starts a session and returns its cookie: 128 random bits and more.
func (s *sessions) begin(bearer, user, name string, now time.Time) (cookie string) {
	cookie = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, x := range s.all {
		if !now.Before(x.ends) {
			delete(s.all, key)
		}
	}
	if oldest, n := s.oldest(func(x *session) bool { return x.user == user }); n >= sessionsEach {
		delete(s.all, oldest)
	}
	if oldest, n := s.oldest(func(*session) bool { return true }); n >= sessionsMax {
		delete(s.all, oldest)
	}
	s.all[sha256.Sum256([]byte(cookie))] = &session{bearer, user, name, now.Add(sessionLifetime)}
	return cookie
}

// oldest returns the oldest of some sessions, and how many there are.
func (s *sessions) oldest(of func(*session) bool) (oldest [sha256.Size]byte, n int) {
	var ends time.Time
	for key, x := range s.all {
		if !of(x) {
			continue
		}
		if n++; n == 1 || x.ends.Before(ends) {
			oldest, ends = key, x.ends
		}
	}
	return oldest, n
}

// find returns the session of a request; nil if there is none or it has ended.
func (s *sessions) find(r *http.Request, now time.Time) *session {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[sha256.Sum256([]byte(c.Value))]
	if x == nil || !now.Before(x.ends) {
		return nil
	}
	return x
}

// end ends the session of a request.
func (s *sessions) end(r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, sha256.Sum256([]byte(c.Value)))
	}
}

const (
	// triesMax is how often an address may fail to log in within triesPeriod.
	triesMax    = 10
	triesPeriod = time.Minute
	// triersMax bounds the addresses that are remembered.
	triersMax = 4096
	// checksMax bounds the log-ins under way of all addresses that have failed too often.
	checksMax = 8
)

// tries counts failed log-ins of addresses. Tokens cannot be guessed; this keeps those who try
// from costing the server more than that. Others may have the same address, so an address that has
// failed too often may still log in, in a bounded number of log-ins at a time.
type tries struct {
	mu  sync.Mutex
	all map[string]*tried
}

type tried struct {
	failed int
	since  time.Time
}

func newTries() *tries { return &tries{all: map[string]*tried{}} }

// wait is how long an address must wait before it may try again; 0: it may.
func (t *tries) wait(from string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.all[from]; x != nil && x.failed >= triesMax {
		return max(0, triesPeriod-now.Sub(x.since))
	}
	return 0
}

// failed counts a failure.
func (t *tries) failed(from string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.all[from]
	if x == nil || now.Sub(x.since) >= triesPeriod {
		t.forget(now)
		x = &tried{since: now}
		t.all[from] = x
	}
	x.failed++
}

// forget makes room for one more address: it drops those whose time is over, or all of them if
// nothing else helps.
func (t *tries) forget(now time.Time) {
	if len(t.all) < triersMax {
		return
	}
	for from, x := range t.all {
		if now.Sub(x.since) >= triesPeriod {
			delete(t.all, from)
		}
	}
	if len(t.all) >= triersMax {
		clear(t.all)
	}
}

// addressOf is what log-ins are counted by: an IPv4 address, or the network of an IPv6 address, of
// which one client has many.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
