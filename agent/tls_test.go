package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/api/pki"
)

// certificates are of one CA, one for each role.
func certificates(t *testing.T) map[pki.Role]pki.Files {
	t.Helper()
	dir := t.TempDir()
	if err := pki.NewCA(dir); err != nil {
		t.Fatal(err)
	}
	files := map[pki.Role]pki.Files{}
	for _, role := range pki.Roles() {
		name := string(role)
		if err := pki.Issue(dir, role, name); err != nil {
			t.Fatal(err)
		}
		files[role] = pki.Files{
			CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"),
		}
	}
	return files
}

// opened is an agent with TLS that does not run yet.
func opened(t *testing.T, files pki.Files, listen string) *agent {
	t.Helper()
	cfg := config(t, &cluster{addresses: []string{"127.0.0.1:1"}}, newSupervisor(t))
	cfg.TLS, cfg.Listen = files, listen
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	a, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.journal.Close() })
	return a
}

// overTLS returns an agent whose port is served, and a certificate of each role.
func overTLS(t *testing.T) (*agent, map[pki.Role]pki.Files) {
	t.Helper()
	files := certificates(t)
	a := opened(t, files[pki.RoleAgent], "127.0.0.1:0")
	l, err := a.listen()
	if err != nil {
		t.Fatal(err)
	}
	g := newGroup(t.Context())
	g.Go(func(ctx context.Context) error { return a.serveOutput(ctx, l) })
	t.Cleanup(func() {
		g.cancel()
		_ = g.Wait()
	})
	return a, files
}

// Only servers read output. Everybody else is turned away in the handshake.
func TestOnlyServersReadOutputOverTLS(t *testing.T) {
	a, files := overTLS(t)

	// getsIn reports whether the service itself has answered.
	getsIn := func(client *http.Client) bool {
		defer client.CloseIdleConnections()
		s, err := rotav1connect.NewOutputServiceClient(client, httpx.BaseURL(a.address, true)).
			ReadOutput(t.Context(), &rotav1.ReadOutputRequest{ActionId: 1, Attempt: 1})
		if err == nil {
			s.Receive()
			err = s.Err()
		}
		return connect.CodeOf(err) == connect.CodeNotFound
	}
	for role, want := range map[pki.Role]bool{pki.RoleServer: true, pki.RoleAgent: false, pki.RoleOperator: false, pki.RoleClient: false} {
		conf, err := pki.ClientConfig(files[role], pki.RoleAgent)
		if err != nil {
			t.Fatal(err)
		}
		if getsIn(httpx.NewClient(conf)) != want {
			t.Errorf("a peer with role %s gets in: %v, want %v", role, !want, want)
		}
	}
	if getsIn(httpx.NewClient(nil)) {
		t.Error("a peer without a certificate gets in")
	}
}

func TestServersMustBeToldAnAddressTheyCanReach(t *testing.T) {
	files := certificates(t)
	if _, err := opened(t, files[pki.RoleAgent], "0.0.0.0:0").listen(); !errors.Is(err, ErrConfig) {
		t.Errorf("every interface: %v, want ErrConfig", err)
	}
	a := opened(t, files[pki.RoleAgent], "0.0.0.0:0")
	a.cfg.Advertise = "node-1.example:7410"
	l, err := a.listen()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if a.address != "node-1.example:7410" {
		t.Errorf("servers are told %q", a.address)
	}
}

// Only servers may change gossip keys: agents and clients, which the port lets in for other
// things, are turned away.
func TestOnlyServersChangeGossipKeys(t *testing.T) {
	a, files := overTLS(t)
	for role, may := range map[pki.Role]bool{pki.RoleServer: true, pki.RoleAgent: false, pki.RoleClient: false, pki.RoleOperator: false} {
		conf, err := pki.ClientConfig(files[role], pki.RoleAgent)
		if err != nil {
			t.Fatal(err)
		}
		client := httpx.NewClient(conf)
		_, err = rotav1connect.NewKeyringServiceClient(client, httpx.BaseURL(a.address, true)).
			ChangeKeyring(t.Context(), &rotav1.ChangeKeyringRequest{})
		client.CloseIdleConnections()
		if (err == nil) != may {
			t.Errorf("a certificate of the role %s: %v", role, err)
		}
	}
}

// The ports of an agent give no connection away that has not shown its certificate: those are bounded.
func TestSilentConnectionsAreNotAccepted(t *testing.T) {
	files := certificates(t)
	a := opened(t, files[pki.RoleAgent], "127.0.0.1:0")
	a.cfg.Metrics = "127.0.0.1:0"
	for name, listen := range map[string]func() (net.Listener, error){"output": a.listen, "metrics": a.listenStatus} {
		t.Run(name, func(t *testing.T) {
			l, err := listen()
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			silent, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			conf, err := pki.ClientConfig(files[pki.RoleServer], pki.RoleAgent)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if conn, err := tls.Dial("tcp", l.Addr().String(), conf); err == nil {
					conn.Close()
				}
			}()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if c, ok := conn.(*tls.Conn); !ok || !c.ConnectionState().HandshakeComplete {
				t.Errorf("%v was accepted before it showed a certificate", conn.RemoteAddr())
			}
		})
	}
}
