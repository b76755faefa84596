package pki

import (
	"bufio"
	"cmp"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// newPKI makes a CA with one certificate for each role, named after the role.
func newPKI(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := NewCA(dir); err != nil {
		t.Fatal(err)
	}
	for _, r := range roles {
		if err := Issue(dir, r, string(r)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// issueOdd signs a certificate as Issue would not.
func issueOdd(t *testing.T, dir, name string, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(FilesIn(dir, caName).Cert, FilesIn(dir, caName).Key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{RoleServer.uri()},
	}
	change(template)
	if err := writePair(FilesIn(dir, name), template, &ca); err != nil {
		t.Fatal(err)
	}
	return readPair(t, FilesIn(dir, name))
}

func readPair(t *testing.T, f Files) tls.Certificate {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// greeter accepts connections and answers the first line of each with a
// greeting that names the peer. What its handshakes end with is sent to the
// channel.
func greeter(t *testing.T, conf *tls.Config) (addr string, handshakes <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	results := make(chan error, 16)
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			go greet(tls.Server(raw, conf), results)
		}
	}()
	return l.Addr().String(), results
}

func greet(conn *tls.Conn, results chan<- error) {
	defer conn.Close()
	err := conn.Handshake()
	results <- err
	if err != nil {
		return
	}
	cs := conn.ConnectionState()
	role, err := PeerRole(&cs)
	if err != nil {
		return
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
		io.WriteString(conn, "hello "+string(role)+" "+PeerName(&cs))
	}
}

// ask dials the greeter and returns its greeting.
func ask(t *testing.T, addr string, conf *tls.Config) (string, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, conf)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	// In TLS 1.3 a client may write before the server has looked at its
	// certificate: the refusal shows in the read.
	io.WriteString(conn, "hi\n")
	b, err := io.ReadAll(conn)
	return string(b), err
}

func TestServersAdmitOnlyTheRightRoles(t *testing.T) {
	dir, foreign := newPKI(t), newPKI(t)
	conf, err := ServerConfig(FilesIn(dir, "server"), RoleServer, RoleAgent)
	if err != nil {
		t.Fatal(err)
	}
	addr, handshakes := greeter(t, conf)

	good := func(dir, name string) *tls.Config {
		c, err := ClientConfig(FilesIn(dir, name), RoleServer)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	odd := func(name string, change func(*x509.Certificate)) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{issueOdd(t, dir, name, change)}}
	}
	for _, c := range []struct {
		name string
		conf *tls.Config
		want error
	}{
		{"a server", good(dir, "server"), nil},
		{"an agent", good(dir, "agent"), nil},
		{"a client", good(dir, "client"), ErrWrongRole},
		{"a server of another CA", &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{readPair(t, FilesIn(foreign, "server"))}}, ErrUntrusted},
		{"expired", odd("expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), ErrUntrusted},
		{"not yet valid", odd("early", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), ErrUntrusted},
		{"not for clients", odd("usage", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), ErrUntrusted},
		{"no role", odd("none", func(c *x509.Certificate) { c.URIs = nil }), ErrNoRole},
		{"two roles", odd("two", func(c *x509.Certificate) { c.URIs = append(c.URIs, RoleClient.uri()) }), ErrNoRole},
		{"an invented role", odd("god", func(c *x509.Certificate) { c.URIs = []*url.URL{Role("god").uri()} }), ErrNoRole},
	} {
		t.Run(c.name, func(t *testing.T) {
			greeting, err := ask(t, addr, c.conf)
			if refused := <-handshakes; !errors.Is(refused, c.want) {
				t.Errorf("handshake ended with %v, want %v", refused, c.want)
			}
			if admitted := greeting != ""; admitted != (c.want == nil) {
				t.Errorf("got %q, %v", greeting, err)
			}
		})
	}
}

func TestPeersWithoutTLSOrCertificateGetNothing(t *testing.T) {
	dir := newPKI(t)
	conf, err := ServerConfig(FilesIn(dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	addr, handshakes := greeter(t, conf)

	t.Run("no certificate", func(t *testing.T) {
		greeting, err := ask(t, addr, &tls.Config{InsecureSkipVerify: true})
		if greeting != "" || err == nil || <-handshakes == nil {
			t.Errorf("got %q, %v", greeting, err)
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		greeting, err := ask(t, addr, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{readPair(t, FilesIn(dir, "client"))}})
		if greeting != "" || err == nil || <-handshakes == nil {
			t.Errorf("got %q, %v", greeting, err)
		}
	})
	t.Run("plaintext", func(t *testing.T) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if <-handshakes == nil {
			t.Error("plaintext was taken for TLS")
		}
		if b, _ := io.ReadAll(conn); len(b) > 16 {
			t.Errorf("got %q", b) // a TLS alert of a few bytes is all right
		}
	})
}

func TestClientsDialOnlyTheRoleTheyWant(t *testing.T) {
	dir, foreign := newPKI(t), newPKI(t)
	for _, c := range []struct {
		name, listens string
		from          string
		wants         Role
		err           error
	}{
		{"a server is a server", "server", dir, RoleServer, nil},
		{"an agent poses as a server", "agent", dir, RoleServer, ErrWrongRole},
		{"another CA's server", "server", foreign, RoleServer, ErrUntrusted},
		{"an agent is an agent", "agent", dir, RoleAgent, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, err := ServerConfig(FilesIn(c.from, c.listens))
			if err != nil {
				t.Fatal(err)
			}
			addr, _ := greeter(t, conf)
			dialer, err := ClientConfig(FilesIn(dir, "server"), c.wants)
			if err != nil {
				t.Fatal(err)
			}
			greeting, err := ask(t, addr, dialer)
			if !errors.Is(err, c.err) {
				t.Fatalf("got %q, %v; want %v", greeting, err, c.err)
			}
			if c.err == nil && greeting != "hello server server" {
				t.Errorf("got %q", greeting)
			}
		})
	}
}

func TestChangedFilesAreReadAgain(t *testing.T) {
	dir := newPKI(t)
	live := FilesIn(t.TempDir(), "live")
	install := func(name string) {
		t.Helper()
		from := FilesIn(dir, name)
		for _, p := range [][2]string{{from.CA, live.CA}, {from.Cert, live.Cert}, {from.Key, live.Key}} {
			b, err := os.ReadFile(p[0])
			if err == nil {
				err = os.WriteFile(p[1]+".new", b, 0o600)
			}
			if err == nil {
				err = os.Rename(p[1]+".new", p[1])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	install("server")
	conf, err := ServerConfig(live)
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := greeter(t, conf)
	dial := func(want Role) error {
		t.Helper()
		c, err := ClientConfig(FilesIn(dir, "client"), want)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ask(t, addr, c)
		return err
	}
	if err := dial(RoleServer); err != nil {
		t.Fatal(err)
	}
	install("agent")
	if err := dial(RoleAgent); err != nil {
		t.Errorf("the new certificate is not in use: %v", err)
	}
	if err := os.WriteFile(live.Cert, []byte("half a cert"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dial(RoleAgent); err != nil {
		t.Errorf("an unreadable file took the port down: %v", err)
	}
	if err := os.Remove(live.Key); err != nil {
		t.Fatal(err)
	}
	if err := dial(RoleAgent); err != nil {
		t.Errorf("a missing file took the port down: %v", err)
	}
	install("server")
	if err := dial(RoleServer); err != nil {
		t.Errorf("the repaired files are not in use: %v", err)
	}
}

// TestFilesThatCouldNotBeUsedAreTriedAgain: what was in the way may end without a change of the files.
func TestFilesThatCouldNotBeUsedAreTriedAgain(t *testing.T) {
	live := FilesIn(newPKI(t), "server")
	s, err := newStore(live)
	if err != nil {
		t.Fatal(err)
	}
	old := s.current().cert
	if err := Renew(filepath.Dir(live.Cert), "server", Renewal{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(live.Cert, time.Time{}, time.Now().Add(time.Minute)); err != nil { // clocks of disks are coarse
		t.Fatal(err)
	}
	if err := os.Chmod(live.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if s.current().cert != old {
		t.Fatal("a key that others can read is used")
	}
	if err := os.Chmod(live.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	s.tried = s.tried.Add(-retryAfter)
	if s.current().cert == old {
		t.Error("the mended files are not in use")
	}
	if s.failed != nil {
		t.Error(s.failed)
	}
}

func TestFilesThatPeersWouldRefuseAreRefusedAtTheStart(t *testing.T) {
	dir, foreign := newPKI(t), newPKI(t)
	issueOdd(t, dir, "expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	issueOdd(t, dir, "none", func(c *x509.Certificate) { c.URIs = nil })
	server := FilesIn(dir, "server")
	for _, c := range []struct {
		name  string
		files Files
		want  error
	}{
		{"no CA", Files{Cert: server.Cert, Key: server.Key}, ErrIncomplete},
		{"no key", Files{CA: server.CA, Cert: server.Cert}, ErrIncomplete},
		{"nothing", Files{}, ErrIncomplete},
		{"absent", FilesIn(dir, "absent"), os.ErrNotExist},
		{"another CA's", Files{CA: FilesIn(foreign, "").CA, Cert: server.Cert, Key: server.Key}, ErrUntrusted},
		{"expired", FilesIn(dir, "expired"), ErrUntrusted},
		{"no role", FilesIn(dir, "none"), ErrNoRole},
	} {
		if _, err := ServerConfig(c.files); !errors.Is(err, c.want) {
			t.Errorf("%s: server: %v, want %v", c.name, err, c.want)
		}
		if _, err := ClientConfig(c.files, RoleServer); !errors.Is(err, c.want) {
			t.Errorf("%s: client: %v, want %v", c.name, err, c.want)
		}
	}
	if (Files{}).Enabled() || !(Files{CA: "x"}).Enabled() {
		t.Error("Enabled must tell none from some")
	}
}

func TestKeysAreSecretAndNothingIsReplaced(t *testing.T) {
	dir := newPKI(t)
	for _, name := range []string{caName, "server", "agent", "client"} {
		info, err := os.Stat(FilesIn(dir, name).Key)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: key has mode %v", name, info.Mode())
		}
	}
	before, _ := os.ReadFile(FilesIn(dir, "server").Key)
	if err := Issue(dir, RoleServer, "server"); !errors.Is(err, ErrExists) {
		t.Errorf("issue again: %v", err)
	}
	if err := NewCA(dir); !errors.Is(err, ErrExists) {
		t.Errorf("new CA over the old: %v", err)
	}
	if after, _ := os.ReadFile(FilesIn(dir, "server").Key); string(after) != string(before) {
		t.Error("a refused Issue changed the key")
	}
	// A certificate without its key: the new key must not stay behind.
	if err := os.Remove(FilesIn(dir, "agent").Key); err != nil {
		t.Fatal(err)
	}
	if err := Issue(dir, RoleAgent, "agent"); !errors.Is(err, ErrExists) {
		t.Errorf("issue over a certificate: %v", err)
	}
	if _, err := os.Stat(FilesIn(dir, "agent").Key); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key without its certificate: %v", err)
	}
}

func TestKeysThatOthersCanReadAreRefused(t *testing.T) {
	dir := newPKI(t)
	server, ca := FilesIn(dir, "server"), FilesIn(dir, caName)
	for mode, refused := range map[os.FileMode]bool{
		0o600: false, 0o400: false, 0o640: os.Geteuid() != 0, 0o604: true, 0o644: true, 0o660: true, 0o666: true, 0o602: true,
	} {
		if err := os.Chmod(server.Key, mode); err != nil {
			t.Fatal(err)
		}
		_, serverErr := ServerConfig(server)
		_, clientErr := ClientConfig(server, RoleServer)
		for _, err := range []error{serverErr, clientErr} {
			switch {
			case errors.Is(err, ErrExposed) != refused || !refused && err != nil:
				t.Errorf("mode %04o: %v, want refused %v", mode, err, refused)
			case refused && !strings.Contains(err.Error(), "run `chmod 600 "+server.Key+"`"):
				t.Errorf("mode %04o: %q does not say what mends it", mode, err)
			}
		}
	}
	if err := os.Chmod(ca.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Issue(dir, RoleClient, "late"); !errors.Is(err, ErrExposed) {
		t.Errorf("with a CA key that others can read: %v", err)
	}
}

func TestNamesAndRolesAreChecked(t *testing.T) {
	dir := newPKI(t)
	for _, name := range []string{"", "ca", "../evil", "a/b", "Ä", ".", "a-", "with space", strings.Repeat("a", 65)} {
		if err := Issue(dir, RoleClient, name); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	if err := Issue(dir, RoleClient, strings.Repeat("a", 64)); err != nil {
		t.Error(err)
	}
	for host, fits := range map[string]bool{strings.Repeat("h", 253): true, "*." + strings.Repeat("h", 253): true, strings.Repeat("h", 254): false, "h-": false, "a b": false} {
		if err := addHosts(&x509.Certificate{}, []string{host}); (err == nil) != fits {
			t.Errorf("host %q: %v", host, err)
		}
	}
	if err := Issue(dir, "god", "x"); err == nil {
		t.Error("an invented role was accepted")
	}
	if err := Issue(filepath.Join(dir, "empty"), RoleClient, "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no CA: %v", err)
	}
}

func TestCertificatesAlsoSatisfyToolsThatCompareHosts(t *testing.T) {
	dir := newPKI(t)
	if err := Issue(dir, RoleServer, "s1", "10.1.2.3", "s1.example.org"); err != nil {
		t.Fatal(err)
	}
	leaf := readPair(t, FilesIn(dir, "s1")).Leaf
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "s1", "10.1.2.3", "s1.example.org"} {
		if err := leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

func TestPlaintextIsForLoopbackOnly(t *testing.T) {
	for addr, want := range map[string]error{
		"127.0.0.1:7400":  nil,
		"127.8.8.8:7400":  nil,
		"[::1]:7400":      nil,
		"0.0.0.0:7400":    ErrPlaintext,
		"[::]:7400":       ErrPlaintext,
		":7400":           ErrPlaintext,
		"10.0.0.1:7400":   ErrPlaintext,
		"[fe80::1]:7400":  ErrPlaintext,
		"192.168.1.1:740": ErrPlaintext,
	} {
		tcp, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := AllowPlaintext(tcp); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", addr, err, want)
		}
	}
}

func TestARenewalKeepsEverythingButTheKeyAndTheDates(t *testing.T) {
	dir := newPKI(t)
	err := IssueCertificate(dir, Certificate{Role: RoleServer, Name: "s1", Hosts: []string{"10.1.2.3", "s1.example.org"}, Lifetime: 48 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	old := readPair(t, FilesIn(dir, "s1")).Leaf
	if left := time.Until(old.NotAfter); left < 47*time.Hour || left > 48*time.Hour {
		t.Errorf("is valid for %v", left)
	}
	for _, lifetime := range []time.Duration{0, 24 * time.Hour} {
		if err := Renew(dir, "s1", Renewal{Lifetime: lifetime}); err != nil {
			t.Fatal(err)
		}
		fresh := readPair(t, FilesIn(dir, "s1")).Leaf
		if old.PublicKey.(*ecdsa.PublicKey).Equal(fresh.PublicKey) || fresh.SerialNumber.Cmp(old.SerialNumber) == 0 {
			t.Error("it is the old certificate")
		}
		if role, err := certRole(fresh); role != RoleServer || err != nil || !slices.Equal(hostsOf(fresh), hostsOf(old)) {
			t.Errorf("role %q, %v, hosts %q, were %q", role, err, hostsOf(fresh), hostsOf(old))
		}
		if left := time.Until(fresh.NotAfter).Round(time.Hour); left != cmp.Or(lifetime, 48*time.Hour) {
			t.Errorf("renewed for %v it is valid for %v", lifetime, left)
		}
		if info, err := os.Stat(FilesIn(dir, "s1").Key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key: %v, %v", info, err)
		}
	}
}

func TestCertificatesThatCannotBeAreRefused(t *testing.T) {
	dir := newPKI(t)
	for _, c := range []Certificate{
		{Role: RoleServer, Name: "x", Hosts: []string{"no host"}},
		{Role: RoleClient, Name: "x", Hosts: []string{"10.0.0.1"}},
		{Role: RoleClient, Name: "x", Lifetime: 2 * caLifetime},
	} {
		if err := IssueCertificate(dir, c); err == nil {
			t.Errorf("%+v was issued", c)
		}
	}
	if err := Renew(dir, "gone", Renewal{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("renew what is not there: %v", err)
	}
}
