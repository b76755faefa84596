package httpcall

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// made is what became of a call.
type made struct {
	code        int
	out, errors string
}

// call makes a call as attempt 2 of action 41.
func call(ctx context.Context, t *testing.T, c *rotav1.HttpCall) made {
	t.Helper()
	text, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{Variable: text, "ROTA_ACTION_ID": "41", "ROTA_TOKEN_ATTEMPT": "2", "ROTA_FENCING_TOKEN": "41.2.7"}
	var out, errs strings.Builder
	code := Main(ctx, func(name string) string { return env[name] }, &out, &errs)
	return made{code, out.String(), errs.String()}
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestACallIsMadeAsItIsDescribed(t *testing.T) {
	var got string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = fmt.Sprintf("%s %s host=%s key=%s agent=%s action=%s attempt=%s token=%s body=%s", r.Method, r.URL, r.Host,
			r.Header.Get("X-Key"), r.UserAgent(), r.Header.Get("Rota-Action"), r.Header.Get("Rota-Attempt"), r.Header.Get("Rota-Token"), body)
		fmt.Fprint(w, "answer")
	})
	const rest = "action=41 attempt=2 token=41.2.7 body="
	for _, c := range []struct {
		name string
		call *rotav1.HttpCall
		want string
	}{
		{"a plain one", &rotav1.HttpCall{Url: "/a?b={{cores}}"}, "GET /a?b={{cores}} host=" + s.Listener.Addr().String() + " key= agent=rota " + rest},
		{"a body is posted", &rotav1.HttpCall{Url: "/", Body: []byte("x")}, "POST / host=" + s.Listener.Addr().String() + " key= agent=rota " + rest + "x"},
		{"all of it", &rotav1.HttpCall{
			Method: "PUT", Url: "/", Body: []byte("x"), Headers: map[string]string{"x-key": "k", "host": "h", "User-Agent": "u"},
		}, "PUT / host=h key=k agent=u " + rest + "x"},
	} {
		c.call.Url = s.URL + c.call.Url
		m := call(t.Context(), t, c.call)
		if m.code != ExitOK || m.out != "answer" || m.errors != "HTTP/1.1 200 OK\n" {
			t.Errorf("%s: %+v", c.name, m)
		}
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestTheStatusDecides(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
		fmt.Fprint(w, "body")
	})
	for _, c := range []struct {
		status int
		accept []uint32
		code   int
		says   string
	}{
		{200, nil, ExitOK, ""}, {299, nil, ExitOK, ""}, {300, nil, ExitNotAccepted, "only 200 to 299"},
		{500, nil, ExitNotAccepted, "500 Internal Server Error\nrota: status 500 is not accepted"},
		{404, []uint32{200, 404}, ExitOK, ""}, {201, []uint32{200, 404}, ExitNotAccepted, "only 200, 404"},
	} {
		m := call(t.Context(), t, &rotav1.HttpCall{Url: fmt.Sprintf("%s/%d", s.URL, c.status), Accept: c.accept})
		if m.code != c.code || m.out != "body" || !strings.Contains(m.errors, c.says) || c.says == "" && strings.Contains(m.errors, "rota:") {
			t.Errorf("%d of %v: %+v", c.status, c.accept, m)
		}
	}
}

// TestRefusalsForTheRateAreTold where the quota of the call can learn of them.
func TestRefusalsForTheRateAreTold(t *testing.T) {
	const sent = "Wed, 25 Nov 2026 10:00:00 GMT"
	for _, c := range []struct {
		status int
		after  string
		want   string
	}{
		{429, "", "refused\n"}, {429, "7", "7\n"}, {429, "0", "refused\n"}, {429, "soon", "refused\n"}, {429, "-3", "refused\n"},
		{429, "Wed, 25 Nov 2026 10:01:30 GMT", "90\n"}, {429, "Wed, 25 Nov 2026 09:00:00 GMT", "refused\n"},
		{503, "7", "7\n"}, {503, "", ""}, {500, "7", ""}, {200, "7", ""}, {404, "", ""},
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", sent)
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.status)
		})
		text, err := Encode(&rotav1.HttpCall{Url: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "throttle")
		env := map[string]string{Variable: text, throttleVariable: path}
		var out, errs strings.Builder
		Main(t.Context(), func(name string) string { return env[name] }, &out, &errs)
		if got, _ := os.ReadFile(path); string(got) != c.want {
			t.Errorf("status %d, Retry-After %q: it tells %q, want %q (%s)", c.status, c.after, got, c.want, errs.String())
		}
	}
}

// TestFailuresSayWhetherAnythingWasAskedFor: what was sent is never sent again, and
// the URL, which may hold a key, is not told.
func TestFailuresSayWhetherAnythingWasAskedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	l.Close()
	var asked atomic.Int32
	hangsUp := serve(t, func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	})
	breaksOff := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		fmt.Fprint(w, "half")
	})
	for _, c := range []struct {
		name, url string
		code      int
		says      string
	}{
		{"nobody listens", nobody, ExitNoConn, "could not connect to"},
		{"no answer", hangsUp.URL, ExitNoAnswer, "nobody knows"},
		{"half an answer", breaksOff.URL, ExitNoAnswer, "broke off"},
		{"no URL", "file:///etc/passwd", ExitBadCall, "http:// or https://"},
	} {
		m := call(t.Context(), t, &rotav1.HttpCall{Url: c.url + "/?key=secret"})
		if m.code != c.code || !strings.Contains(m.errors, c.says) || strings.Contains(m.errors, "secret") {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("a call was sent %d times", n)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	arrived := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	begun := time.Now()
	if m := call(ctx, t, &rotav1.HttpCall{Url: s.URL}); m.code != ExitNoAnswer || time.Since(begun) > 10*time.Second {
		t.Errorf("after %v: %+v", time.Since(begun), m)
	}
}

func TestRedirects(t *testing.T) {
	show := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s key=%q attempt=%s", r.URL.Path, r.Header.Get("X-Key"), r.Header.Get("Rota-Attempt"))
	}
	other := serve(t, show)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/near":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/far":
			http.Redirect(w, r, other.URL+"/there", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		default:
			show(w, r)
		}
	})
	for _, c := range []struct {
		path   string
		accept []uint32
		code   int
		out    string
	}{
		{"/near", nil, ExitOK, `/there key="k" attempt=2`},
		{"/far", nil, ExitOK, `/there key="" attempt=2`},
		{"/near", []uint32{302}, ExitOK, "Found"},
		{"/loop", nil, ExitNotAccepted, "Found"},
		{"/file", nil, ExitNotAccepted, "Found"},
	} {
		m := call(t.Context(), t, &rotav1.HttpCall{Url: s.URL + c.path, Headers: map[string]string{"X-Key": "k"}, Accept: c.accept})
		if m.code != c.code || !strings.Contains(m.out, c.out) {
			t.Errorf("%s, accepting %v: %+v", c.path, c.accept, m)
		}
	}
}

// TestNoRedirectLeavesHTTPS tries the rule alone: the call's client trusts no
// certificate of a test.
func TestNoRedirectLeavesHTTPS(t *testing.T) {
	at := func(url string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, url, nil)
		r.Response = &http.Response{StatusCode: http.StatusFound}
		return r
	}
	for _, c := range []struct {
		from, to string
		want     error
	}{
		{"https://a/", "http://a/", http.ErrUseLastResponse}, {"https://a/", "https://b/", nil}, {"http://a/", "https://a/", nil},
	} {
		if err := follow(&rotav1.HttpCall{}, at(c.to), []*http.Request{at(c.from)}); err != c.want {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
}

func TestWhatIsNoCallIsRefused(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "no base64": "?", "no call": "/w=="} {
		var out, errs strings.Builder
		if code := Main(t.Context(), func(string) string { return text }, &out, &errs); code != ExitBadCall || !strings.HasPrefix(errs.String(), "rota: ") {
			t.Errorf("%s: %d, %s", name, code, errs.String())
		}
	}
}

// TestTheLongestCallFitsIntoItsVariable, which Linux limits to 128 KiB with its name.
func TestTheLongestCallFitsIntoItsVariable(t *testing.T) {
	text, err := Encode(&rotav1.HttpCall{Url: strings.Repeat("u", 64<<10)})
	if err != nil || len(Variable)+1+len(text)+1 > 128<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
