package server_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
	"rota/api/pki"
)

// browser has no certificate, keeps cookies and follows redirects.
type browser struct {
	s    *secure
	http *http.Client
}

func (s *secure) browser() *browser {
	s.t.Helper()
	conf, err := pki.ClientConfig(pki.Files{CA: pki.FilesIn(s.dir, "root").CA}, pki.RoleServer)
	if err != nil {
		s.t.Fatal(err)
	}
	h := httpx.NewClient(conf)
	s.t.Cleanup(h.CloseIdleConnections)
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &browser{s, &http.Client{Transport: h.Transport, Jar: jar}}
}

// open reads a page, or sends a form if there is one.
func (b *browser) open(path string, form url.Values) (status int, at, body string) {
	b.s.t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(b.s.t.Context(), method, "https://"+b.s.addr+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.s.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Origin", "https://"+b.s.addr)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.http.Do(r)
	if err != nil {
		b.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Request.URL.Path, string(raw)
}

// TestABrowserLogsInWithAToken: the page shows what the token may read, and nothing else of the
// server takes the session.
func TestABrowserLogsInWithAToken(t *testing.T) {
	s := newSecure(t)
	operator := s.client("root", "")
	secret, err := s.bootstrap(operator)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Access.PutAccessPolicy(t.Context(), &rotav1.PutAccessPolicyRequest{Policy: &rotav1.AccessPolicy{
		Name: "nodes-only", Rules: []*rotav1.AccessRule{{Namespace: "*", Noun: "node", Verbs: []string{"read"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	narrow, err := operator.Access.CreateToken(t.Context(), &rotav1.CreateTokenRequest{Policies: []string{"nodes-only"}})
	if err != nil {
		t.Fatal(err)
	}

	b := s.browser()
	if status, at, body := b.open("/ui/quotas", nil); status != http.StatusOK || at != "/ui/login" || !strings.Contains(body, "<form") {
		t.Fatalf("a stranger gets %d at %s:\n%s", status, at, body)
	}
	if status, _, body := b.open("/ui/login", url.Values{"token": {secret[:len(secret)-2] + "AA"}}); status != http.StatusUnauthorized || !strings.Contains(body, "no such token") {
		t.Errorf("a wrong token: %d\n%s", status, body)
	}
	if status, at, body := b.open("/ui/login", url.Values{"token": {narrow.Secret}}); status != http.StatusOK || at != "/ui/" || !strings.Contains(body, narrow.Token.AccessorId) {
		t.Fatalf("log-in leads to %d at %s:\n%s", status, at, body)
	}
	if _, _, body := b.open("/ui/nodes", nil); strings.Contains(body, `class="error"`) {
		t.Errorf("what the token may read:\n%s", body)
	}
	if _, _, body := b.open("/ui/quotas", nil); !strings.Contains(body, `class="error"`) {
		t.Errorf("what the token may not read:\n%s", body)
	}
	if _, _, body := b.open("/ui/history.json", nil); body != "[]" {
		t.Errorf("numbers of all namespaces: %s", body)
	}
	for _, path := range []string{"/metrics", "/debug/log", "/readyz"} {
		if status, _, _ := b.open(path, nil); status != http.StatusForbidden {
			t.Errorf("%s takes the session: %d", path, status)
		}
	}
	if status, _, _ := b.open("/rota.v1.NodeService/ListNodes", url.Values{}); status == http.StatusOK {
		t.Error("the API takes the session")
	}
	if _, err := operator.Access.RevokeToken(t.Context(), &rotav1.RevokeTokenRequest{AccessorId: narrow.Token.AccessorId}); err != nil {
		t.Fatal(err)
	}
	if _, at, _ := b.open("/ui/nodes", nil); at != "/ui/login" {
		t.Errorf("a session of a revoked token stays at %s", at)
	}
	if _, at, _ := b.open("/ui/login", url.Values{"token": {secret}}); at != "/ui/" {
		t.Errorf("log-in again leads to %s", at)
	}
	if _, _, body := b.open("/ui/history.json", nil); body == "[]" {
		t.Error("a token that may read everything sees no charts")
	}
	if _, at, _ := b.open("/ui/logout", url.Values{}); at != "/ui/login" {
		t.Errorf("log-out leads to %s", at)
	}
	if _, at, _ := b.open("/ui/", nil); at != "/ui/login" {
		t.Errorf("after the log-out, the page is at %s", at)
	}
}

// TestAServerStopsWithAPageOpen at once: it does not use up the time that it has to stop.
func TestAServerStopsWithAPageOpen(t *testing.T) {
	s := newSecure(t)
	secret, err := s.bootstrap(s.client("root", ""))
	if err != nil {
		t.Fatal(err)
	}
	b := s.browser()
	if _, at, _ := b.open("/ui/login", url.Values{"token": {secret}}); at != "/ui/" {
		t.Fatalf("log-in leads to %s", at)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.addr+"/ui/live/overview", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s.stop()
	if took := time.Since(begun); took >= 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	s.start()
}
