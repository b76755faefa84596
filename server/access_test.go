package server_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-jose/go-jose/v4"
	josejwt "github.com/go-jose/go-jose/v4/jwt"
	"github.com/hashicorp/go-hclog"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/api/pki"
	"rota/server"
	"rota/server/audit"
	"rota/server/replica"
)

// secure is one server with TLS, from disk, and an audit log.
type secure struct {
	t         *testing.T
	dir, addr string
	server    *server.Server
	log       *audit.Log
}

func newSecure(t *testing.T) *secure {
	t.Helper()
	s := &secure{t: t, dir: t.TempDir()}
	if err := pki.NewCA(s.dir); err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]pki.Role{"s1": pki.RoleServer, "root": pki.RoleOperator, "alice": pki.RoleClient, "n1": pki.RoleAgent} {
		if err := pki.Issue(s.dir, role, name); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(s.stop)
	s.ready()
	return s
}

func (s *secure) auditPath() string { return filepath.Join(s.dir, "audit.log") }

func (s *secure) start() {
	s.t.Helper()
	var err error
	if s.log, err = audit.Open(audit.Options{Path: s.auditPath(), Logger: hclog.NewNullLogger()}); err != nil {
		s.t.Fatal(err)
	}
	s.server, err = server.Start(server.Config{
		ID: "s1", DataDir: filepath.Join(s.dir, "data"), Listen: s.addr, Bootstrap: []replica.Server{{ID: "s1", Address: s.addr}},
		TLS: pki.FilesIn(s.dir, "s1"), Version: "test", Audit: s.log,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *secure) stop() {
	if err := errors.Join(s.server.Stop(), s.log.Close()); err != nil {
		s.t.Error(err)
	}
}

// client has a certificate or a token, or both, or neither.
func (s *secure) client(certificate, token string) *client.Client {
	s.t.Helper()
	files := pki.Files{CA: pki.FilesIn(s.dir, "root").CA}
	if certificate != "" {
		files = pki.FilesIn(s.dir, certificate)
	}
	conf, err := pki.ClientConfig(files, pki.RoleServer)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := client.New(client.Config{Addrs: []string{s.addr}, TLS: conf, Token: func() (string, error) { return token, nil }})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

func (s *secure) status(c *client.Client) error {
	_, err := c.Operator.ListPools(s.t.Context(), &rotav1.ListPoolsRequest{})
	return err
}

// ready waits for the leader to give the cluster its settings.
func (s *secure) ready() {
	s.t.Helper()
	c := s.client("root", "")
	for {
		pools, err := c.Operator.ListPools(s.t.Context(), &rotav1.ListPoolsRequest{})
		if err != nil {
			s.t.Fatal(err)
		}
		if len(pools.Pools) > 0 {
			return
		}
	}
}

func (s *secure) bootstrap(c *client.Client) (secret string, err error) {
	resp, err := c.Access.BootstrapToken(s.t.Context(), &rotav1.BootstrapTokenRequest{})
	if err != nil {
		return "", err
	}
	return resp.Secret, nil
}

// get asks for a path over HTTPS without a certificate.
func (s *secure) get(path string) (status int, err error) {
	conf, err := pki.ClientConfig(pki.Files{CA: pki.FilesIn(s.dir, "root").CA}, pki.RoleServer)
	if err != nil {
		return 0, err
	}
	h := httpx.NewClient(conf)
	defer h.CloseIdleConnections()
	resp, err := h.Post("https://"+s.addr+path, "application/json", strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// TestATokenInsteadOfACertificate: before there are tokens nobody is let in without a certificate,
// and afterwards who has a token, to the public API and to nothing else.
func TestATokenInsteadOfACertificate(t *testing.T) {
	s := newSecure(t)
	operator := s.client("root", "")
	if _, err := s.get("/grpc.health.v1.Health/Check"); err == nil {
		t.Error("a client without a certificate is let in before there are tokens")
	}
	if _, err := s.bootstrap(s.client("alice", "")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a first token for a client: %v", err)
	}
	secret, err := s.bootstrap(operator)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		certificate, token string
		want               connect.Code
	}{
		{"", secret, 0}, {"root", "", 0}, {"alice", "", 0},
		{"", "", connect.CodeUnauthenticated}, {"", secret[:len(secret)-2] + "AA", connect.CodeUnauthenticated},
		{"root", secret, connect.CodeUnauthenticated}, // two identities
	} {
		if err := s.status(s.client(test.certificate, test.token)); (err != nil) != (test.want != 0) || err != nil && connect.CodeOf(err) != test.want {
			t.Errorf("certificate %q, token %t: %v, want code %d", test.certificate, test.token != "", err, test.want)
		}
	}
	for path, want := range map[string]int{
		"/grpc.health.v1.Health/Check": http.StatusOK, "/metrics": http.StatusForbidden,
		"/ui/login": http.StatusForbidden, "/ui/history.json": http.StatusMethodNotAllowed, "/readyz": http.StatusForbidden, "/livez": http.StatusForbidden,
		"/debug/pprof/": http.StatusForbidden, "/debug/log": http.StatusForbidden,
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": http.StatusUnauthorized, "/peer.v1.PeerService/Describe": http.StatusForbidden,
		"/rota.v1.AgentService/RenewLease": http.StatusUnauthorized,
	} {
		if got, err := s.get(path); got != want || err != nil {
			t.Errorf("%s without an identity: %d, %v, want %d", path, got, err, want)
		}
	}
	conf, err := pki.ClientConfig(pki.Files{CA: pki.FilesIn(s.dir, "root").CA}, pki.RoleServer)
	if err != nil {
		t.Fatal(err)
	}
	conf.NextProtos = []string{"rota-raft"}
	if c, err := tls.Dial("tcp", s.addr, conf); err == nil {
		if _, err = c.Read(make([]byte, 1)); err == nil {
			t.Error("Raft is spoken without a certificate")
		}
		_ = c.Close()
	}
}

// TestAnAgentSpeaksForItsNode: with tokens and without, the certificate of an agent opens the streams
// of agents, and no token does.
func TestAnAgentSpeaksForItsNode(t *testing.T) {
	s := newSecure(t)
	secret, err := s.bootstrap(s.client("root", ""))
	if err != nil {
		t.Fatal(err)
	}
	conf, err := pki.ClientConfig(pki.FilesIn(s.dir, "n1"), pki.RoleServer)
	if err != nil {
		t.Fatal(err)
	}
	h := httpx.NewClient(conf)
	t.Cleanup(h.CloseIdleConnections)
	agent := rotav1connect.NewAgentServiceClient(h, "https://"+s.addr)
	node := &rotav1.RegisterNodeRequest{
		Name: "n1", Address: "127.0.0.1:1", JournalId: "j", MemoryBytes: 1 << 30, Runtime: "test", NumaNodes: []*rotav1.NumaNode{{Cpus: []uint32{0}}},
	}
	registered, err := agent.RegisterNode(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := agent.WatchNode(t.Context(), &rotav1.WatchNodeRequest{Name: "n1", Incarnation: registered.Incarnation})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Errorf("the stream of an agent ends with %v", stream.Err())
	}
	_ = stream.Close()
	for token, want := range map[string]connect.Code{"": connect.CodeUnauthenticated, secret: connect.CodePermissionDenied} {
		conf, err := pki.ClientConfig(pki.Files{CA: pki.FilesIn(s.dir, "root").CA}, pki.RoleServer)
		if err != nil {
			t.Fatal(err)
		}
		anonymous := httpx.NewClient(conf)
		ctx, info := connect.NewClientContext(t.Context())
		if token != "" {
			info.RequestHeader().Set("Authorization", "Bearer "+token)
		}
		if _, err := rotav1connect.NewAgentServiceClient(anonymous, "https://"+s.addr).RegisterNode(ctx, node); connect.CodeOf(err) != want {
			t.Errorf("a node with token %t: %v", token != "", err)
		}
		anonymous.CloseIdleConnections()
	}
}

// TestAccessSurvivesARestart: tokens are in the log, only as hashes; the first token can be made
// again by who can write into the server's folder; and the audit log says who did it all.
func TestAccessSurvivesARestart(t *testing.T) {
	s := newSecure(t)
	secret, err := s.bootstrap(s.client("root", ""))
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	found := 0
	err = filepath.Walk(filepath.Join(s.dir, "data"), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		found++
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte(secret)) || bytes.Contains(raw, []byte(strings.TrimPrefix(secret, "rota_"))) {
			t.Errorf("%s has the secret of a token", path)
		}
		return err
	})
	if err != nil || found == 0 {
		t.Fatalf("%d files, %v", found, err)
	}
	s.start()
	root := s.client("", secret)
	if err := s.status(root); err != nil {
		t.Fatal(err)
	}
	operator := s.client("root", "")
	if _, err := s.bootstrap(operator); client.Detail(err).GetReason() != "ACCESS_BOOTSTRAPPED" || !strings.Contains(client.Detail(err).GetMessage(), "write 1 into") {
		t.Errorf("a second first token: %v", err)
	}
	reset := filepath.Join(s.dir, "data", "access-bootstrap-reset")
	if err := os.WriteFile(reset, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := s.bootstrap(operator); err != nil || again == secret {
		t.Errorf("another first token: %v", err)
	}
	if _, err := os.Stat(reset); !os.IsNotExist(err) {
		t.Errorf("the file that allowed it is still there: %v", err)
	}
	if err := s.log.Reopen(); err != nil { // so that what was handed over is written
		t.Fatal(err)
	}
	raw, err := os.ReadFile(s.auditPath())
	if err != nil {
		t.Fatal(err)
	}
	var last struct {
		Kind, Caller, Call, Code string
		Index                    uint64
	}
	lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil {
		t.Fatal(err)
	}
	if last.Kind != "certificate" || last.Caller != "root" || last.Call != "rota.v1.AccessService/BootstrapToken" || last.Code != "ok" || last.Index == 0 {
		t.Errorf("the last line of the audit log is %s", lines[len(lines)-1])
	}
	if bytes.Contains(raw, []byte(secret)) {
		t.Error("the audit log has a secret")
	}
}

// TestAServiceAccountOfAnIssuer: a JWT of an issuer gets the policies of its claims, over a
// connection without a certificate.
func TestAServiceAccountOfAnIssuer(t *testing.T) {
	s := newSecure(t)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: "k"}}})
	}))
	t.Cleanup(issuer.Close)
	operator := s.client("root", "")
	if _, err := s.bootstrap(operator); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := operator.Access.PutAccessPolicy(ctx, &rotav1.PutAccessPolicyRequest{Policy: &rotav1.AccessPolicy{
		Name: "team", Rules: []*rotav1.AccessRule{{Namespace: "default", Noun: "action", Verbs: []string{"read", "submit"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Access.PutAuthMethod(ctx, &rotav1.PutAuthMethodRequest{Method: &rotav1.AuthMethod{
		Name: "kubernetes", Issuer: issuer.URL, Audiences: []string{"rota"}, JwksUrl: issuer.URL + "/keys",
		Mappings: []*rotav1.ClaimMapping{{Claim: "sub", Pattern: "system:serviceaccount:search:*", Policies: []string{"team"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: private}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		t.Fatal(err)
	}
	tokenOf := func(subject string) string {
		raw, err := josejwt.Signed(signer).Claims(josejwt.Claims{
			Issuer: issuer.URL, Subject: subject, Audience: josejwt.Audience{"rota"}, Expiry: josejwt.NewNumericDate(time.Now().Add(time.Minute)),
		}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	list := func(token string) error {
		_, err := s.client("", token).Actions.ListActions(ctx, &rotav1.ListActionsRequest{})
		return err
	}
	if err := list(tokenOf("system:serviceaccount:search:bot")); err != nil {
		t.Errorf("a service account of the team: %v", err)
	}
	if err := list(tokenOf("system:serviceaccount:other:bot")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another service account: %v", err)
	}
	if err := list(tokenOf("system:serviceaccount:search:bot") + "x"); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a signature that is wrong: %v", err)
	}
	// A method for certificates narrows them.
	if _, err := operator.Access.PutAuthMethod(ctx, &rotav1.PutAuthMethodRequest{Method: &rotav1.AuthMethod{
		Name: "narrow", Certificates: true, Mappings: []*rotav1.ClaimMapping{{Claim: "name", Pattern: "bob*", Policies: []string{"team"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	if err := s.status(s.client("alice", "")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a client's certificate that no method is for: %v", err)
	}
	if err := s.status(operator); err != nil {
		t.Errorf("an operator's certificate: %v", err)
	}
}
