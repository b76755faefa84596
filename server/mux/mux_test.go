package mux

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"rota/api/handshake"
	"rota/api/httpx"
	"rota/api/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// port is a running Mux with an HTTP server that names the caller's role, and
// a "Raft" that answers each connection with a greeting.
type port struct {
	*Mux
	addr string
}

func open(t *testing.T, conf *tls.Config, edits ...func(*Mux)) port {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(l, conf, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range edits {
		edit(m)
	}
	srv := httpx.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		role, _ := pki.PeerRole(r.TLS)
		fmt.Fprintf(w, "%s %s", r.Proto, role)
	}))
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	go srv.Serve(m.HTTP())
	go greetRaft(m.Raft())
	t.Cleanup(func() {
		m.Close()
		srv.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return port{Mux: m, addr: l.Addr().String()}
}

func greetRaft(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			name := make([]byte, 4)
			if _, err := io.ReadFull(conn, name); err == nil {
				io.WriteString(conn, "raft greets "+string(name))
			}
		}()
	}
}

// askRaft dials as a server's Raft does.
func askRaft(addr string, conf *tls.Config) (string, error) {
	conn, err := DialRaft(addr, 30*time.Second, conf)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, "node")
	b, err := io.ReadAll(conn)
	return string(b), err
}

func askHTTP(addr string, conf *tls.Config) (string, error) {
	c := httpx.NewClient(conf)
	defer c.CloseIdleConnections()
	resp, err := c.Get(httpx.BaseURL(addr, conf != nil))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func newPKI(t *testing.T) func(role pki.Role) *tls.Config {
	t.Helper()
	dir := t.TempDir()
	if err := pki.NewCA(dir); err != nil {
		t.Fatal(err)
	}
	for _, r := range pki.Roles() {
		if err := pki.Issue(dir, r, string(r)); err != nil {
			t.Fatal(err)
		}
	}
	return func(role pki.Role) *tls.Config {
		t.Helper()
		if role == "" {
			conf, err := pki.ServerConfig(pki.FilesIn(dir, "server"))
			if err != nil {
				t.Fatal(err)
			}
			return conf
		}
		conf, err := pki.ClientConfig(pki.FilesIn(dir, string(role)), pki.RoleServer)
		if err != nil {
			t.Fatal(err)
		}
		return conf
	}
}

func TestPlainRaftAndHTTPShareAPort(t *testing.T) {
	p := open(t, nil)
	for range 3 {
		if got, err := askRaft(p.addr, nil); got != "raft greets node" {
			t.Errorf("raft: %q, %v", got, err)
		}
		if got, err := askHTTP(p.addr, nil); got != "HTTP/2.0 " {
			t.Errorf("HTTP/2: %q, %v", got, err)
		}
	}
	resp, err := http.Get(httpx.BaseURL(p.addr, false))
	if err != nil || resp.Proto != "HTTP/1.1" {
		t.Fatalf("HTTP/1.1: %v, %v", resp, err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

func TestWithTLSOnlyServersReachRaft(t *testing.T) {
	config := newPKI(t)
	p := open(t, config(""))
	for _, role := range pki.Roles() {
		if got, err := askHTTP(p.addr, config(role)); got != "HTTP/2.0 "+string(role) {
			t.Errorf("%s: HTTP: %q, %v", role, got, err)
		}
		got, err := askRaft(p.addr, config(role))
		if admitted := got == "raft greets node"; admitted != (role == pki.RoleServer) {
			t.Errorf("%s: raft: %q, %v", role, got, err)
		}
	}
}

func TestPeersWithoutACertificateGetNothing(t *testing.T) {
	config := newPKI(t)
	p := open(t, config(""))
	foreign := newPKI(t)
	for name, conf := range map[string]*tls.Config{
		"no certificate":        {InsecureSkipVerify: true},
		"another CA's":          foreign(pki.RoleServer),
		"a protocol of its own": {InsecureSkipVerify: true, NextProtos: []string{"smtp"}},
	} {
		// The refusal must be the server's: the client would accept anybody.
		conf.VerifyConnection = nil
		if got, err := askHTTP(p.addr, conf); err == nil {
			t.Errorf("%s: HTTP: got %q", name, got)
		}
		if got, err := askRaft(p.addr, conf); err == nil && got != "" {
			t.Errorf("%s: raft: got %q", name, got)
		}
	}
	for name, first := range map[string]string{"plain raft": "\x01node", "plain HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
		if got := exchange(t, p.addr, first); len(got) > 16 || strings.Contains(got, "raft") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// exchange sends bytes and returns everything that comes back until the server
// closes the connection.
func exchange(t *testing.T, addr, send string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, send)
	b, err := io.ReadAll(conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("the server left the connection open after %q", send)
	}
	return string(b)
}

func TestOtherProtocolsAreClosedInPlainText(t *testing.T) {
	p := open(t, nil)
	for _, send := range []string{"\x16\x03\x01\x00\x05hello", "\x00", "ssh-2.0", "\xff"} {
		if got := exchange(t, p.addr, send); got != "" {
			t.Errorf("%q was answered with %q", send, got)
		}
	}
	if got, err := askRaft(p.addr, nil); got != "raft greets node" {
		t.Errorf("the port is no longer served: %q, %v", got, err)
	}
}

func TestWithoutTLSOnlyLoopbackIsServed(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := New(l, nil, hclog.NewNullLogger()); !errors.Is(err, pki.ErrPlaintext) {
		t.Errorf("got %v", err)
	}
	m, err := New(l, newPKI(t)(""), hclog.NewNullLogger())
	if err != nil {
		t.Fatalf("with TLS: %v", err)
	}
	m.Close()
}

func TestTooManySilentConnectionsPushOutTheOldest(t *testing.T) {
	p := open(t, nil, func(m *Mux) { m.pending = handshake.NewPending(2) })
	var silent []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	silent[0].SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := silent[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest: %v", err)
	}
	// The newest still may say what it wants.
	io.WriteString(silent[2], "\x01node")
	if b, err := io.ReadAll(silent[2]); string(b) != "raft greets node" {
		t.Errorf("the newest: %q, %v", b, err)
	}
}

// visitor is a client over TLS without a certificate, which keeps its connection.
type visitor struct {
	net.Conn
	answers *bufio.Reader
}

// visit connects from an address of this machine, and returns once it has an answer of HTTP.
func visit(t *testing.T, addr, from string) visitor {
	t.Helper()
	d := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute},
		Config:    &tls.Config{InsecureSkipVerify: true},
	}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	v := visitor{conn, bufio.NewReader(conn)}
	if err := v.ask(); err != nil {
		t.Fatalf("a new connection: %v", err)
	}
	return v
}

func (v visitor) ask() error {
	if _, err := io.WriteString(v, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(v.answers, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// closed waits until the server has closed the connection.
func (v visitor) closed(t *testing.T) {
	t.Helper()
	var timeout net.Error
	if _, err := v.answers.ReadByte(); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("a connection beyond the bound is open: %v", err)
	}
}

// TestConnectionsWithoutACertificateAreBounded: the oldest ones of the address that has the most are
// closed for new ones, and those with a certificate are in nobody's way.
func TestConnectionsWithoutACertificateAreBounded(t *testing.T) {
	const most, each, flood = 20, 15, 100
	config := newPKI(t)
	p := open(t, config(""), func(m *Mux) {
		m.LetIn(func() bool { return true })
		m.guests.max, m.guests.eachMax = most, each
	})
	// answer are clients that must not notice anything.
	answer := func(when string, vs ...visitor) {
		t.Helper()
		for i, v := range vs {
			if err := v.ask(); err != nil {
				t.Errorf("%s: connection %d: %v", when, i, err)
			}
		}
		if got, err := askHTTP(p.addr, config(pki.RoleClient)); got != "HTTP/2.0 client" {
			t.Errorf("%s: a client with a certificate: %q, %v", when, got, err)
		}
	}
	var quiet, loud, third []visitor
	for range 5 {
		quiet = append(quiet, visit(t, p.addr, "127.0.0.1"))
	}
	for range each + flood {
		loud = append(loud, visit(t, p.addr, "127.0.0.2"))
	}
	for _, v := range loud[:flood] {
		v.closed(t)
	}
	loud = loud[flood:]
	answer("after a flood", append(quiet, loud...)...)
	// All places are taken now. New addresses get some of those of the address with the most.
	for range 5 {
		third = append(third, visit(t, p.addr, "127.0.0.3"))
	}
	for _, v := range loud[:5] {
		v.closed(t)
	}
	loud = loud[5:]
	answer("after another address came", append(append(quiet, loud...), third...)...)
	p.guests.mu.Lock()
	count, addresses := p.guests.count, len(p.guests.open)
	p.guests.mu.Unlock()
	if count != most || addresses != 3 {
		t.Errorf("%d connections of %d addresses are counted, want %d of 3", count, addresses, most)
	}
	for _, v := range append(append(quiet, loud...), third...) {
		v.Close()
	}
	for deadline := time.Now().Add(time.Minute); count > 0; time.Sleep(time.Millisecond) {
		if p.guests.mu.Lock(); time.Now().After(deadline) {
			t.Fatalf("%d connections that have ended are counted", count)
		}
		count, addresses = p.guests.count, len(p.guests.open)
		p.guests.mu.Unlock()
	}
	if addresses != 0 {
		t.Errorf("%d addresses are left", addresses)
	}
}

// TestAddressesOfOneNetworkCountAsOne: whoever has an IPv6 address has many.
func TestAddressesOfOneNetworkCountAsOne(t *testing.T) {
	gs := newGuests()
	from := func(ip string) netip.Addr {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		return gs.wrap(remote{server, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}).from
	}
	if a, b := from("2001:db8::1"), from("2001:db8::2:0:0:7"); a != b || !a.IsValid() {
		t.Errorf("one network: %v and %v", a, b)
	}
	for _, pair := range [][2]string{{"2001:db8::1", "2001:db8:0:1::1"}, {"192.0.2.1", "192.0.2.2"}} {
		if a, b := from(pair[0]), from(pair[1]); a == b {
			t.Errorf("%v are one", pair)
		}
	}
	if a, b := from("::ffff:192.0.2.1"), from("192.0.2.1"); a != b {
		t.Errorf("one address is two: %v and %v", a, b)
	}
}

// remote is a connection from an address.
type remote struct {
	net.Conn
	from net.Addr
}

func (r remote) RemoteAddr() net.Addr { return r.from }

func TestCloseEndsEverythingThatIsPending(t *testing.T) {
	p := open(t, nil)
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.Close()
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if _, err := p.Raft().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if _, err := askRaft(p.addr, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a dialer cannot tell that nobody listens: %v", err)
	}
}

func TestRaftElectsALeaderThroughTheStreamLayer(t *testing.T) {
	config := newPKI(t)
	var (
		nodes   []*raft.Raft
		cluster raft.Configuration
		layers  []raft.StreamLayer
	)
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(l, config(""), hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		go m.Serve()
		t.Cleanup(func() { m.Close() })
		layers = append(layers, NewStreamLayer(m, l.Addr(), config(pki.RoleServer)))
		cluster.Servers = append(cluster.Servers, raft.Server{
			ID: raft.ServerID(l.Addr().String()), Address: raft.ServerAddress(l.Addr().String())})
	}
	for i, layer := range layers {
		nodes = append(nodes, startRaft(t, layer, cluster, cluster.Servers[i].ID))
	}
	deadline := time.After(time.Minute)
	for {
		for _, n := range nodes {
			if n.State() == raft.Leader {
				if err := n.VerifyLeader().Error(); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal("no leader")
		}
	}
}

func startRaft(t *testing.T, layer raft.StreamLayer, cluster raft.Configuration, id raft.ServerID) *raft.Raft {
	t.Helper()
	conf := raft.DefaultConfig()
	conf.LocalID = id
	conf.Logger = hclog.NewNullLogger()
	accepted := &acceptedConns{StreamLayer: layer}
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: accepted, MaxPool: 2, Timeout: 10 * time.Second, Logger: hclog.NewNullLogger()})
	store := raft.NewInmemStore()
	snapshots := raft.NewInmemSnapshotStore()
	if err := raft.BootstrapCluster(conf, store, store, snapshots, transport, cluster); err != nil {
		t.Fatal(err)
	}
	node, err := raft.NewRaft(conf, &raft.MockFSM{}, store, store, snapshots, transport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Shutdown().Error(); err != nil {
			t.Error(err)
		}
		transport.Close()
		accepted.closeAll()
	})
	return node
}

// acceptedConns closes what peers have opened, which raft's transport leaves to
// them: its handlers would outlive the test.
type acceptedConns struct {
	raft.StreamLayer
	mu    sync.Mutex
	conns []net.Conn
}

func (a *acceptedConns) Accept() (net.Conn, error) {
	conn, err := a.StreamLayer.Accept()
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.conns = append(a.conns, conn)
	}
	return conn, err
}

func (a *acceptedConns) closeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.conns {
		c.Close()
	}
}
