package handshake

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"rota/api/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen opens a port that holds so many connections without a handshake, and returns what a client needs.
func listen(t *testing.T, limit int) (l *listener, client *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	err := pki.NewCA(dir)
	files := func(role pki.Role) pki.Files {
		err = errors.Join(err, pki.Issue(dir, role, string(role)))
		return pki.Files{
			CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, string(role)+".pem"), Key: filepath.Join(dir, string(role)+"-key.pem"),
		}
	}
	server, errServer := pki.ServerConfig(files(pki.RoleServer), pki.Roles()...)
	client, errClient := pki.ClientConfig(files(pki.RoleClient), pki.RoleServer)
	tcp, errListen := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err, errServer, errClient, errListen); err != nil {
		t.Fatal(err)
	}
	l = Listen(tcp, server, hclog.NewNullLogger()).(*listener)
	l.pending = NewPending(limit)
	t.Cleanup(func() { l.Close() })
	return l, client
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// Connections that say nothing are nobody's, and push each other out. One that has shown a certificate is
// accepted among them.
func TestOnlyThoseThatSayWhoTheyAreAreAccepted(t *testing.T) {
	l, conf := listen(t, 2)
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := l.Accept()
		accepted <- conn
	}()
	oldest := dial(t, l)
	dial(t, l)
	dial(t, l)
	if _, err := oldest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest: %v", err)
	}
	if err := tls.Client(dial(t, l), conf).Handshake(); err != nil {
		t.Fatal(err)
	}
	conn := <-accepted
	defer conn.Close()
	if state := conn.(*tls.Conn).ConnectionState(); !state.HandshakeComplete || pki.PeerName(&state) != string(pki.RoleClient) {
		t.Errorf("accepted: %+v", state)
	}
}

// A listener that is closed closes what is pending, and Accept says so.
func TestClosing(t *testing.T) {
	l, _ := listen(t, 2)
	failed := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		failed <- err
	}()
	silent := dial(t, l)
	l.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that was pending: %v", err)
	}
}
