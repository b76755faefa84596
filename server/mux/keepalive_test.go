package mux

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/api/pki"
)

// raftPair is a connection of Raft, as both sides have it.
func raftPair(t *testing.T, server, client *tls.Config) (accepted, dialed net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(l, server, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	go m.Serve()
	t.Cleanup(func() { m.Close() })
	if dialed, err = DialRaft(l.Addr().String(), time.Minute, client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close() })
	if accepted, err = m.Raft().Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return accepted, dialed
}

// socket is the TCP connection below all others.
func socket(t *testing.T, conn net.Conn) *net.TCPConn {
	t.Helper()
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if g, ok := conn.(*guest); ok {
		conn = g.Conn
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("%T is no socket", conn)
	}
	return tcp
}

// option reads an option of a socket.
func option(t *testing.T, tcp *net.TCPConn, option int) (value int) {
	t.Helper()
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if errControl := raw.Control(func(fd uintptr) {
		value, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option)
	}); errControl != nil || err != nil {
		t.Fatal(errControl, err)
	}
	return value
}

// A host that is gone is noticed within seconds, and not after minutes.
func TestRaftNoticesAHostThatIsGone(t *testing.T) {
	config := newPKI(t)
	for name, conf := range map[string]struct{ server, client *tls.Config }{
		"plain": {}, "TLS": {config(""), config(pki.RoleServer)},
	} {
		t.Run(name, func(t *testing.T) {
			accepted, dialed := raftPair(t, conf.server, conf.client)
			for side, conn := range map[string]net.Conn{"accepted": accepted, "dialed": dialed} {
				tcp := socket(t, conn)
				idle, interval, count := option(t, tcp, unix.TCP_KEEPIDLE), option(t, tcp, unix.TCP_KEEPINTVL), option(t, tcp, unix.TCP_KEEPCNT)
				if idle+interval*count > 5 {
					t.Errorf("%s: keepalives after %d s, every %d s, %d times", side, idle, interval, count)
				}
			}
			// The bound of the side that sends would also be one of keepalives.
			if got := option(t, socket(t, accepted), unix.TCP_USER_TIMEOUT); got != 0 {
				t.Errorf("accepted: data waits %d ms for an acknowledgment", got)
			}
			if got := option(t, socket(t, dialed), unix.TCP_USER_TIMEOUT); got != int(unackedMax.Milliseconds()) {
				t.Errorf("dialed: data waits %d ms for an acknowledgment", got)
			}
		})
	}
}
