package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/api/pki"
)

// certificates makes a CA with a certificate of each role, named after it.
func certificates(t *testing.T) (dir string) {
	dir = t.TempDir()
	if err := pki.NewCA(dir); err != nil {
		t.Fatal(err)
	}
	for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent, pki.RoleClient} {
		if err := pki.Issue(dir, role, string(role)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// listen serves a fake server in plain text, or with TLS.
func listen(t *testing.T, conf *tls.Config) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	if conf != nil {
		conf.NextProtos = []string{"h2"}
		l = tls.NewListener(l, conf)
	}
	_, h := rotav1connect.NewOperatorServiceHandler(&server{cluster: newCluster()})
	srv := httpx.NewServer(h)
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return addr
}

// What only a person can mend is said at once, and not repeated for RetryFor.
func TestWhatOnlyAPersonCanMendIsSaidAtOnce(t *testing.T) {
	ours, others := certificates(t), certificates(t)
	serves := func(dir, name string) *tls.Config {
		conf, err := pki.ServerConfig(pki.FilesIn(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return conf
	}
	calls := func(dir string) *tls.Config {
		conf, err := pki.ClientConfig(pki.FilesIn(dir, "client"), pki.RoleServer)
		if err != nil {
			t.Fatal(err)
		}
		return conf
	}
	trusting := func(dir string) *tls.Config { // does not look at the server
		conf := calls(dir)
		conf.VerifyConnection = nil
		return conf
	}
	for _, tt := range []struct {
		name           string
		server, client *tls.Config
		want           string
	}{
		{"plain text at a port with TLS", serves(ours, "server"), nil, "uses TLS, and this client does not"},
		{"TLS at a port without", nil, calls(ours), "does not use TLS, and this client does"},
		{"a server of another CA", serves(others, "server"), calls(ours), "certificate of another authority"},
		{"an agent in place of a server", serves(ours, "agent"), calls(ours), "not that of a server"},
		{"a client that the server refuses", serves(ours, "server"), trusting(others), "refuses the certificate of this client"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			addr := listen(t, tt.server)
			c, err := New(Config{Addrs: []string{addr}, TLS: tt.client, RetryFor: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			begin := time.Now()
			_, err = c.Operator.GetStatus(t.Context(), &rotav1.GetStatusRequest{})
			var unusable *AddrError
			if !errors.As(err, &unusable) || !strings.HasPrefix(err.Error(), addr) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an AddrError with %q", err, tt.want)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A reset that overtakes the reason of a refusal does not hide it: Go answers plain text
// at a port with TLS, which must not pass for a server without TLS.
func TestTheReasonOfARefusalIsFoundAfterAReset(t *testing.T) {
	ours, others := certificates(t), certificates(t)
	server, err := pki.ServerConfig(pki.FilesIn(ours, "server"))
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := pki.ClientConfig(pki.FilesIn(others, "client"), pki.RoleServer)
	if err != nil {
		t.Fatal(err)
	}
	stranger.VerifyConnection = nil // does not look at the server
	addr := listen(t, server)
	c, err := New(Config{Addrs: []string{addr}, TLS: stranger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	if got := c.explain(addr, reset).Error(); !strings.Contains(got, "refuses the certificate of this client") {
		t.Errorf("after a reset: %s", got)
	}
}

// An address that is no use does not keep a client from the others.
func TestAnAddressThatIsNoUseIsPassedBy(t *testing.T) {
	cl := newCluster()
	removed, member := cl.server(t), cl.server(t)
	removed.before = func(int32) error {
		return detailError(refuse(connect.CodeUnavailable, "NOT_A_MEMBER", 0).GetError())
	}
	if _, err := connectTo(t, removed, member).Submit(t.Context(), spec(1)); err != nil {
		t.Errorf("with a member: %v", err)
	}
	begin := time.Now()
	_, err := connectTo(t, removed).Submit(t.Context(), spec(2))
	if Detail(err).GetReason() != "NOT_A_MEMBER" || errors.Is(err, ErrUnknownOutcome) || time.Since(begin) > 5*time.Second {
		t.Errorf("without: %v after %v", err, time.Since(begin))
	}
}

// With most servers gone, the one that answers says so: that is told at once, and is the
// error in the end, whatever the other addresses fail with.
func TestAnOutageIsToldAtOnce(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	s.before = func(int32) error {
		return detailError(refuse(connect.CodeUnavailable, "NO_QUORUM", 10*time.Millisecond).GetError())
	}
	var told atomic.Int32
	c, err := New(Config{
		Addrs: []string{"127.0.0.1:1", s.addr}, RetryFor: 400 * time.Millisecond,
		Waiting: func(reason string) {
			if told.Add(1); reason != "NO_QUORUM" {
				t.Errorf("told %q", reason)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	_, err = c.Submit(t.Context(), spec(1))
	if Detail(err).GetReason() != "NO_QUORUM" || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	if n, calls := told.Load(), s.calls.Load(); n != 1 || calls < 2 {
		t.Errorf("told %d times in %d calls", n, calls)
	}
}

// A call that must not be repeated goes to the next server as long as none has seen it.
func TestACallThatMustNotBeRepeatedFailsOver(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	s.transfer = func(call int32) error {
		if call == 1 {
			return unavailable("NO_LEADER")
		}
		return nil
	}
	c := connectTo(t, s)
	c.servers.addrs = []string{"127.0.0.1:1", s.addr}
	c.servers.current = "127.0.0.1:1"
	if _, err := c.Operator.TransferLeadership(t.Context(), &rotav1.TransferLeadershipRequest{}); err != nil {
		t.Errorf("got %v", err)
	}
	s.transfer = func(int32) error { return unavailable("LEADER_UNREACHABLE") }
	before := s.calls.Load()
	_, err := c.Operator.TransferLeadership(context.WithoutCancel(t.Context()), &rotav1.TransferLeadershipRequest{})
	if n := s.calls.Load() - before; !errors.Is(err, ErrUnknownOutcome) || n != 1 {
		t.Errorf("got %v after %d calls", err, n)
	}
}
