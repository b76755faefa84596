package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
)

// Role is what the owner of a certificate is.
type Role string

// The roles there are.
const (
	RoleServer   Role = "server"
	RoleAgent    Role = "agent"
	RoleOperator Role = "operator"
	RoleClient   Role = "client"
)

var roles = []Role{RoleServer, RoleAgent, RoleOperator, RoleClient}

// Roles are the roles there are.
func Roles() []Role { return slices.Clone(roles) }

// Errors of a handshake or a configuration, one for each fact.
var (
	// ErrIncomplete: some of the three files are named and some are not.
	ErrIncomplete = errors.New("a CA, a certificate and a key are needed together: give all three files or none; a client with a token needs the CA only")
	// ErrNoCertificate: the peer showed no certificate.
	ErrNoCertificate = errors.New("peer has no certificate")
	// ErrUntrusted: the certificate is not from the CA, or is out of date.
	ErrUntrusted = errors.New("certificate is not valid")
	// ErrNoRole: the certificate does not name exactly one role.
	ErrNoRole = errors.New("certificate does not name exactly one role as a URI rota://role/server, agent, operator or client")
	// ErrWrongRole: the certificate is good, but its role may not do this.
	ErrWrongRole = errors.New("peer has the wrong role")
	// ErrPlaintext: anybody who reaches the address could command the process.
	ErrPlaintext = errors.New("refusing to serve without TLS on an address that other machines reach: " +
		"give a CA, a certificate and a key, or listen on 127.0.0.1")
)

// Files are the paths of PEM files: the CA that everybody's certificate is
// from, and this process's certificate and key. Either all are set or none.
type Files struct {
	CA, Cert, Key string
}

// Enabled reports whether any file is set. Whether the set is complete is
// checked by ServerConfig and ClientConfig.
func (f Files) Enabled() bool { return f != Files{} }

// ServerConfig accepts TLS 1.3 connections from peers with a certificate of
// the CA in one of the allowed roles; with none given, in any role. The caller
// sets NextProtos.
func ServerConfig(f Files, allowed ...Role) (*tls.Config, error) {
	if len(allowed) == 0 {
		allowed = roles
	}
	if f.Cert == "" {
		return nil, ErrIncomplete
	}
	s, err := newStore(f)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.current().cert, nil
		},
		// The chain is verified by VerifyConnection, which uses the CA file as it
		// is at that moment; ClientCAs would pin the one from the start.
		ClientAuth:       tls.RequireAnyClientCert,
		VerifyConnection: s.verifier(x509.ExtKeyUsageClientAuth, allowed),
		// A resumed session would outlive a change of the CA.
		SessionTicketsDisabled: true,
	}, nil
}

// ClientConfig dials TLS 1.3 peers whose certificate is from the CA and in the
// role that is wanted. Host names are not compared: the role says who the peer
// is. With a CA and neither certificate nor key the peer is checked in the same way, and the
// client has to say who it is by a token.
func ClientConfig(f Files, want Role) (*tls.Config, error) {
	s, err := newStore(f)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert := s.current().cert; cert != nil {
				return cert, nil
			}
			return &tls.Certificate{}, nil // none
		},
		// Only the default check of host names and system roots is skipped:
		// VerifyConnection always runs and verifies chain and role.
		InsecureSkipVerify: true,
		VerifyConnection:   s.verifier(x509.ExtKeyUsageServerAuth, []Role{want}),
	}, nil
}

// PeerRole returns the role of the peer of a connection made with a
// configuration of this package, which has verified it.
func PeerRole(cs *tls.ConnectionState) (Role, error) {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return "", ErrNoCertificate
	}
	return certRole(cs.PeerCertificates[0])
}

// PeerName returns the name that the peer's certificate was issued to, for
// logs; empty without a certificate.
func PeerName(cs *tls.ConnectionState) string {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return ""
	}
	return cs.PeerCertificates[0].Subject.CommonName
}

// AllowPlaintext returns nil if a listener on the address can be reached from
// this machine only, and else ErrPlaintext.
func AllowPlaintext(addr net.Addr) error {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s: %w", addr, ErrPlaintext)
}

// verifier checks a peer's chain, dates and role during the handshake.
func (s *store) verifier(usage x509.ExtKeyUsage, allowed []Role) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return ErrNoCertificate
		}
		leaf := cs.PeerCertificates[0]
		if err := verifyChain(s.current().ca, cs.PeerCertificates, usage); err != nil {
			return fmt.Errorf("peer %q: %w", leaf.Subject.CommonName, err)
		}
		role, err := certRole(leaf)
		if err != nil {
			return err
		}
		if !slices.Contains(allowed, role) {
			return fmt.Errorf("%w: %q is %q, allowed is %q", ErrWrongRole, leaf.Subject.CommonName, role, allowed)
		}
		return nil
	}
}

// verifyChain checks signatures, dates and usage of the first certificate, with
// the others as intermediates.
func verifyChain(ca *x509.CertPool, chain []*x509.Certificate, usage x509.ExtKeyUsage) error {
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         ca,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return nil
}

// uri is the name in a certificate that stands for the role.
func (r Role) uri() *url.URL {
	return &url.URL{Scheme: "rota", Host: "role", Path: "/" + string(r)}
}

// certRole reads the one role that a certificate names. Unknown roles and more
// than one are refused: whoever reads first would decide which one counts.
func certRole(cert *x509.Certificate) (Role, error) {
	var named []string
	for _, u := range cert.URIs {
		if u.Scheme == "rota" {
			named = append(named, u.String())
		}
	}
	for _, r := range roles {
		if slices.Equal(named, []string{r.uri().String()}) {
			return r, nil
		}
	}
	return "", ErrNoRole
}
