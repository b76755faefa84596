package ui

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// oneToken is an API that knows one token, until it is revoked.
type oneToken struct {
	rotav1connect.UnimplementedAccessServiceHandler
	token   string
	revoked bool
}

func (o *oneToken) GetAccess(ctx context.Context, _ *rotav1.GetAccessRequest) (*rotav1.GetAccessResponse, error) {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	if o.revoked || info.RequestHeader().Get("Authorization") != "Bearer "+o.token {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("there is no such token"))
	}
	return &rotav1.GetAccessResponse{CallerKind: "token", Caller: "the accessor"}, nil
}

// entry is a page over TLS, and a browser that may have a cookie.
type entry struct {
	ui     *UI
	api    *oneToken
	cookie *http.Cookie
}

func newEntry() *entry {
	api := &oneToken{token: "rota_secret"}
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewAccessServiceHandler(api, codec.ForHandler()))
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api.revoked {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
	return &entry{api: api, ui: New(Options{API: guarded, Counts: func() Counts { return Counts{} }, Logger: hclog.NewNullLogger()})}
}

func (e *entry) send(method, path, origin string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://s1:7400"+path, strings.NewReader(form.Encode()))
	r.TLS = &tls.ConnectionState{}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	if e.cookie != nil {
		r.AddCookie(e.cookie)
	}
	w := httptest.NewRecorder()
	e.ui.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if e.cookie = c; c.MaxAge < 0 {
			e.cookie = nil
		}
	}
	return w
}

func (e *entry) logIn(token, origin string) int {
	return e.send(http.MethodPost, "/ui/login", origin, url.Values{"token": {token}}).Code
}

// mustEnd: an open page is told that there is no session, and not to ask again.
func (e *entry) mustEnd(t *testing.T, what string) {
	t.Helper()
	w := e.send(http.MethodGet, "/ui/live/overview", "", nil)
	want := "event: content\ndata: " + sessionEnded + "\n\nevent: end\ndata:\n\n"
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.String() != want {
		t.Errorf("an open page %s: %d %s", what, w.Code, w.Body)
	}
}

const origin = "https://s1:7400"

// TestLogIn: a token opens the page, its cookie is of the safe kind and holds no secret, and log-out
// ends it at the server as well.
func TestLogIn(t *testing.T) {
	e := newEntry()
	for _, path := range []string{"/ui/", "/ui/actions", "/ui/actions/7", "/ui/history.json"} {
		if w := e.send(http.MethodGet, path, "", nil); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/ui/login" {
			t.Errorf("%s without a session: %d to %q", path, w.Code, w.Header().Get("Location"))
		}
	}
	e.mustEnd(t, "without a session")
	if w := e.send(http.MethodGet, "/ui/login", "", nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `name="token"`) ||
		w.Header().Get("Referrer-Policy") != "same-origin" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("the form: %d %v", w.Code, w.Header())
	}
	if code := e.logIn("rota_secret", origin); code != http.StatusSeeOther || e.cookie == nil {
		t.Fatalf("log-in answers %d, cookie %v", code, e.cookie)
	}
	c := e.cookie
	if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.Name != "__Host-rota" ||
		c.MaxAge != int(sessionLifetime.Seconds()) || strings.Contains(c.Value, "secret") {
		t.Errorf("the cookie is %+v", c)
	}
	if w := e.send(http.MethodGet, "/ui/nodes", "", nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "the accessor") {
		t.Errorf("a page with the session: %d %s", w.Code, w.Body)
	}
	if w := e.send(http.MethodPost, "/ui/logout", "https://elsewhere", nil); w.Code != http.StatusForbidden {
		t.Errorf("log-out from another site answers %d", w.Code)
	}
	if w := e.send(http.MethodPost, "/ui/logout", origin, nil); w.Code != http.StatusSeeOther || e.cookie != nil {
		t.Errorf("log-out answers %d and leaves %v", w.Code, e.cookie)
	}
	e.cookie = c // of someone who kept it
	if w := e.send(http.MethodGet, "/ui/", "", nil); w.Code != http.StatusSeeOther {
		t.Errorf("the cookie after the log-out: %d", w.Code)
	}
}

// TestOtherSitesLogNobodyIn: a form counts only if it comes from a page of this server.
func TestOtherSitesLogNobodyIn(t *testing.T) {
	for _, from := range []string{"", "null", "https://elsewhere", "http://s1:7400", "https://s1", "https://s1:7400.elsewhere"} {
		e := newEntry()
		if code := e.logIn("rota_secret", from); code != http.StatusForbidden || e.cookie != nil {
			t.Errorf("a form of %q: %d, cookie %v", from, code, e.cookie)
		}
	}
}

// TestFailedLogInsAreBounded: an address that fails too often is told to wait. A good token of the same
// address logs in all the same, as long as not too many log-ins are under way there.
func TestFailedLogInsAreBounded(t *testing.T) {
	e := newEntry()
	for i, token := range []string{"", "rota_other", "two words", "a\nb"} {
		if code := e.logIn(token, origin); code != http.StatusUnauthorized || e.cookie != nil {
			t.Errorf("token %d: %d", i, code)
		}
	}
	for range triesMax - 4 {
		e.logIn("rota_other", origin)
	}
	w := e.send(http.MethodPost, "/ui/login", origin, url.Values{"token": {"rota_other"}})
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || e.cookie != nil {
		t.Errorf("one try too many: %d %v", w.Code, w.Header())
	}
	if code := e.logIn("rota_secret", origin); code != http.StatusSeeOther || e.cookie == nil {
		t.Errorf("a good token after the failures of others: %d", code)
	}
	for held := true; held; {
		_, held = e.ui.checks.Take("192.0.2.1")
	}
	if code := e.logIn("rota_secret", origin); code != http.StatusTooManyRequests {
		t.Errorf("one log-in too many at a time: %d", code)
	}
	now := time.Now()
	if e.ui.tries.wait("192.0.2.1", now.Add(triesPeriod)) != 0 || e.ui.tries.wait("198.51.100.7", now) != 0 {
		t.Error("another address waits, or this one does for ever")
	}
	big := e.send(http.MethodPost, "/ui/login", origin, url.Values{"token": {strings.Repeat("x", loginBytesMax)}})
	if big.Code == http.StatusOK || big.Code == http.StatusSeeOther {
		t.Errorf("a form without end answers %d", big.Code)
	}
	for i := range 3 * triersMax {
		e.ui.tries.failed(string(rune(i)), now)
	}
	if n := len(e.ui.tries.all); n > triersMax {
		t.Errorf("%d addresses are remembered", n)
	}
}

// TestSessionsEnd: with their time, with their token, and when there are too many.
func TestSessionsEnd(t *testing.T) {
	e := newEntry()
	e.logIn("rota_secret", origin)
	e.api.revoked = true
	e.mustEnd(t, "whose token is revoked")
	if len(e.ui.sessions.all) != 0 {
		t.Error("the session of the revoked token is kept")
	}
	s, now := newSessions(), time.Now()
	request := func(cookie string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/ui/", nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: cookie})
		return r
	}
	first := s.begin("a", "jwt a", "", now)
	if s.find(request(first), now.Add(sessionLifetime-1)) == nil || s.find(request(first), now.Add(sessionLifetime)) != nil {
		t.Error("a session does not last as long as it should")
	}
	for i := range 2 * sessionsEach {
		s.begin(fmt.Sprint("renewed", i), "jwt greedy", "", now.Add(time.Duration(i+1)))
	}
	if len(s.all) != 1+sessionsEach || s.find(request(first), now) == nil {
		t.Errorf("%d sessions, and one of another token is among them: %t", len(s.all), s.find(request(first), now) != nil)
	}
	for i := range sessionsMax {
		s.begin("b", fmt.Sprint("token b", i), "", now.Add(time.Duration(2*sessionsEach+i+1)))
	}
	if len(s.all) != sessionsMax || s.find(request(first), now) != nil {
		t.Errorf("%d sessions, and the oldest is among them: %t", len(s.all), s.find(request(first), now) != nil)
	}
	s.begin("c", "token c", "", now.Add(2*sessionLifetime))
	if len(s.all) != 1 {
		t.Errorf("%d sessions after the time of all but one", len(s.all))
	}
}

// TestAddressesOfOneClient: an IPv6 client has a whole network to try from.
func TestAddressesOfOneClient(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8::1:2]:5": "2001:db8::/64", "[fe80::1%eth0]:5": "fe80::/64", "odd": "odd",
	} {
		if got := addressOf(&http.Request{RemoteAddr: from}); got != want {
			t.Errorf("%s counts as %s, want %s", from, got, want)
		}
	}
}
