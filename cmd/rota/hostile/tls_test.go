package hostile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
	"rota/cmd/internal/devcluster"
)

// peer is somebody who calls.
type peer struct {
	name string
	// conf is nil for one that does not speak TLS.
	conf *tls.Config
}

// door is something that a TLS port offers.
type door struct {
	name string
	addr string
	// protocol of the handshake (ALPN), and what is sent after it.
	protocol, request string
	// open is in the answer of a door that has opened; empty: it says nothing
	// and stays open.
	open string
	// to are the names of the peers that it opens to.
	to []string
}

// noTLS is what net/http says to whoever does not speak TLS: a constant.
const noTLS = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"

// TestTLS: a peer without a certificate, or with the wrong role, gets nothing.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	peers := makePeers(t, dir)
	if err := pki.Issue(dir, pki.RoleAgent, "node-1"); err != nil {
		t.Fatal(err)
	}
	server, agent := pki.FilesIn(dir, "server"), pki.FilesIn(dir, "node-1")
	cluster, api := startCluster(t, devcluster.Config{
		ServerArgs: tlsFlags(server), AgentArgs: tlsFlags(agent),
	}, pki.FilesIn(dir, "client"))
	status := func() *rotav1.GetStatusResponse {
		s, err := api.Operator.GetStatus(t.Context(), &rotav1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := status()
	var good []string
	for _, role := range pki.Roles() {
		good = append(good, string(role))
	}
	for _, d := range doors(cluster.Servers[0].Addr, cluster.Agents[0].Addr) {
		t.Run(d.name, func(t *testing.T) {
			for _, p := range peers {
				answer, err := d.knock(p)
				switch opened := d.opened(answer, err); {
				case slices.Contains(d.to, p.name) && !opened:
					t.Errorf("%s is turned away: %q, %v", p.name, answer, err)
				case !slices.Contains(d.to, p.name) && opened:
					t.Errorf("%s gets in: %q", p.name, answer)
				case !slices.Contains(good, p.name) && answer != "" && answer != noTLS:
					t.Errorf("%s is answered: %q", p.name, answer)
				}
			}
		})
	}
	if after := status(); after.Revision != before.Revision || after.QueuedActions != before.QueuedActions {
		t.Errorf("something has changed:\n%v\n%v", before, after)
	}
}

// doors are all kinds of things behind the ports of a server and of an agent.
func doors(server, agent string) []door {
	users := []string{"client", "operator", "server"}
	operators := []string{"operator", "server"}
	return []door{
		{"public API", server, "http/1.1", post("/rota.v1.OperatorService/GetStatus", "{}"), `"leaderId"`, users},
		{"public API over HTTP/2", server, "h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
			"\x00\x00\x00\x04\x01", []string{"client", "operator", "server", "agent"}},
		{"submission", server, "http/1.1", post("/rota.v1.ActionService/SubmitActions", `{"requestId":""}`), `"invalid_argument"`, users},
		{"membership", server, "http/1.1", post("/rota.v1.OperatorService/AddPeer", `{"id":""}`), `"invalid_argument"`, operators},
		{"removal of a member", server, "http/1.1", post("/rota.v1.OperatorService/RemovePeer", `{"id":""}`), `"invalid_argument"`, operators},
		{"quotas", server, "http/1.1", post("/rota.v1.QuotaService/DeleteQuota", `{"name":""}`), `"invalid_argument"`, operators},
		{"removal of a node", server, "http/1.1", post("/rota.v1.NodeService/RemoveNode", `{"name":""}`), `"invalid_argument"`, operators},
		{"AgentService", server, "http/1.1", post("/rota.v1.AgentService/RenewLease", `{"name":"agent","incarnation":"1"}`), `"fenced":true`, []string{"agent"}},
		{"PeerService", server, "http/1.1", post("/peer.v1.PeerService/ReadIndex", "{}"), `"index"`, []string{"server"}},
		{"Raft", server, "rota-raft", "\x00\x8f\xd9\xffbegun and never ended", "", []string{"server"}},
		{"metrics", server, "http/1.1", get("/metrics"), "go_goroutines", users},
		{"profiles", server, "http/1.1", get("/debug/pprof/cmdline"), "--data-dir", []string{"operator"}},
		{"port of an agent", agent, "h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
			"\x00\x00\x00\x04\x01", []string{"client", "server", "agent"}},
		{"OutputService over HTTP/1.1", agent, "http/1.1", get("/rota.v1.OutputService/ReadOutput"), "405 Method Not Allowed", []string{"server"}},
		{"replicas of an agent", agent, "http/1.1", get("/rota.replica/7/1/call/"), "attempt 1 of action 7 does not run here", []string{"client"}},
		{"KV caches of an agent", agent, "http/1.1", post("/rota.transfer/list?migration=7", ""), "was not told of migration 7", []string{"agent"}},
	}
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: rota\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		path, len(body), body)
}

func get(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: rota\r\nConnection: close\r\n\r\n"
}

// knock sends the request and returns what comes back, until the other side
// closes the connection or has been silent for a while.
func (d door) knock(p peer) (string, error) {
	conn, err := net.DialTimeout("tcp", d.addr, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if p.conf != nil {
		conf := p.conf.Clone()
		conf.NextProtos = []string{d.protocol}
		conn = tls.Client(conn, conf)
	}
	if _, err := io.WriteString(conn, d.request); err != nil {
		return "", err
	}
	var answer []byte
	for buf := make([]byte, 64<<10); ; {
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return "", err
		}
		n, err := conn.Read(buf)
		answer = append(answer, buf[:n]...)
		if err != nil {
			return string(answer), err
		}
		if d.open != "" && strings.Contains(string(answer), d.open) {
			return string(answer), nil
		}
	}
}

// opened reports whether the door has opened.
func (d door) opened(answer string, err error) bool {
	if d.open != "" {
		return strings.Contains(answer, d.open)
	}
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

func tlsFlags(f pki.Files) []string { return []string{"--ca", f.CA, "--cert", f.Cert, "--key", f.Key} }

// makePeers issues certificates, good ones with the CLI's library and bad ones
// by hand.
func makePeers(t *testing.T, dir string) []peer {
	t.Helper()
	other := filepath.Join(dir, "other")
	for _, d := range []string{dir, other} {
		if err := pki.NewCA(d); err != nil {
			t.Fatal(err)
		}
		for _, role := range pki.Roles() {
			if err := pki.Issue(d, role, string(role)); err != nil {
				t.Fatal(err)
			}
		}
	}
	load := func(dir, name string) tls.Certificate {
		f := pki.FilesIn(dir, name)
		c, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	with := func(name string, certs ...tls.Certificate) peer {
		return peer{name, &tls.Config{InsecureSkipVerify: true, Certificates: certs}}
	}
	ca, hour := load(dir, "ca"), time.Hour
	old := with("an old TLS version", load(dir, "server"))
	old.conf.MaxVersion = tls.VersionTLS12
	peers := []peer{{name: "plain text"}, with("no certificate"), old,
		with("server", load(dir, "server")), with("agent", load(dir, "agent")),
		with("operator", load(dir, "operator")), with("client", load(dir, "client"))}
	for _, r := range pki.Roles() {
		role := string(r)
		uri := "rota://role/" + role
		peers = append(peers, with(role+" of another CA", load(other, role)),
			with("expired "+role, sign(t, &ca, -hour, uri)), with("self-signed "+role, sign(t, nil, hour, uri)))
	}
	return append(peers, with("no role", sign(t, &ca, hour)), with("two roles", sign(t, &ca, hour, "rota://role/server", "rota://role/client")),
		with("a client and an operator", sign(t, &ca, hour, "rota://role/client", "rota://role/operator")),
		with("unknown role", sign(t, &ca, hour, "rota://role/root")))
}

// sign makes a certificate that is valid until some time from now, signed by the
// CA or, without one, by itself.
func sign(t *testing.T, ca *tls.Certificate, until time.Duration, uris ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mallory"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(until),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	parent, signer := template, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
