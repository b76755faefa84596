package httpx_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"rota/api/httpx"
	"rota/api/pki"
)

// serve runs a server for the test and returns its address.
func serve(t *testing.T, conf *tls.Config, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if conf != nil {
		conf = conf.Clone()
		conf.NextProtos = []string{"h2", "http/1.1"}
		l = tls.NewListener(l, conf)
	}
	srv := httpx.NewServer(h)
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return addr
}

// sayProtocol answers with the protocol and the role of the caller.
func sayProtocol(w http.ResponseWriter, r *http.Request) {
	role, _ := pki.PeerRole(r.TLS)
	fmt.Fprintf(w, "%s %s", r.Proto, role)
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPlainClientsUseHTTP2FromTheFirstByte(t *testing.T) {
	url := httpx.BaseURL(serve(t, nil, sayProtocol), false)
	c := httpx.NewClient(nil)
	defer c.CloseIdleConnections()
	if got := get(t, c, url); got != "HTTP/2.0 " {
		t.Errorf("got %q", got)
	}
	// curl and browsers still work.
	if got := get(t, http.DefaultClient, url); got != "HTTP/1.1 " {
		t.Errorf("got %q", got)
	}
}

func TestTLSClientsUseHTTP2AndShowTheirRole(t *testing.T) {
	dir := t.TempDir()
	if err := pki.NewCA(dir); err != nil {
		t.Fatal(err)
	}
	for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
		if err := pki.Issue(dir, role, string(role)); err != nil {
			t.Fatal(err)
		}
	}
	server, err := pki.ServerConfig(pki.FilesIn(dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pki.ClientConfig(pki.FilesIn(dir, "agent"), pki.RoleServer)
	if err != nil {
		t.Fatal(err)
	}
	c := httpx.NewClient(client)
	defer c.CloseIdleConnections()
	if got := get(t, c, httpx.BaseURL(serve(t, server, sayProtocol), true)); got != "HTTP/2.0 agent" {
		t.Errorf("got %q", got)
	}
}

func TestManyStreamsShareOneConnection(t *testing.T) {
	const streams = 1000 // four times what net/http allows by default
	var (
		arrived sync.WaitGroup
		remotes sync.Map
	)
	arrived.Add(streams)
	url := httpx.BaseURL(serve(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			return
		}
		remotes.Store(r.RemoteAddr, true)
		arrived.Done()
		arrived.Wait() // nobody is answered before everybody is here
	}), false)
	c := httpx.NewClient(nil)
	defer c.CloseIdleConnections()
	// Until the server has said how many streams it allows, a client assumes 100
	// and opens more connections.
	get(t, c, url+"/first")
	request := func() error {
		resp, err := c.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	errs := make(chan error, streams)
	for range streams {
		go func() { errs <- request() }()
	}
	for range streams {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	remotes.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d streams used %d connections", streams, n)
	}
}

// blackhole forwards TCP until it is closed; then it keeps connections open
// and passes nothing on, like a machine that lost its power.
type blackhole struct {
	net.Listener
	to   string
	dark chan struct{}
}

func (b *blackhole) run() {
	for {
		in, err := b.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", b.to)
		if err != nil {
			in.Close()
			return
		}
		go b.copy(in, out)
		go b.copy(out, in)
	}
}

func (b *blackhole) copy(to, from net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-b.dark:
		default:
			to.Write(buf[:n])
		}
	}
}

func TestAPeerThatVanishesIsNoticedOnBothSides(t *testing.T) {
	handlerEnded := make(chan struct{})
	addr := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(handlerEnded)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hole := &blackhole{Listener: l, to: addr, dark: make(chan struct{})}
	go hole.run()

	c := httpx.NewClient(nil)
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, httpx.BaseURL(l.Addr().String(), false), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(hole.dark)

	if _, err := resp.Body.Read(make([]byte, 1)); err == nil || ctx.Err() != nil {
		t.Errorf("the client's stream ended with %v, context %v", err, ctx.Err())
	}
	select {
	case <-handlerEnded:
	case <-ctx.Done():
		t.Error("the server still waits for a client that is gone")
	}
}

// TestAnswersThatAreNotReadStopNoOthers: each is far larger than the buffer of a stream.
func TestAnswersThatAreNotReadStopNoOthers(t *testing.T) {
	for name, c := range map[string]*http.Client{"NewClient": httpx.NewClient(nil), "NewRelayClient": httpx.NewRelayClient(nil)} {
		t.Run(name, func(t *testing.T) {
			defer c.CloseIdleConnections()
			base := httpx.BaseURL(serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/small" {
					sayProtocol(w, r)
					return
				}
				_, _ = w.Write(make([]byte, 4<<20))
			}), false)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			do := func(path string) *http.Response {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { resp.Body.Close() })
				return resp
			}
			for range 20 {
				do("/large")
			}
			if b, err := io.ReadAll(do("/small").Body); err != nil || len(b) == 0 {
				t.Errorf("beside 20 answers that are not read, a small one is %q: %v", b, err)
			}
		})
	}
}
