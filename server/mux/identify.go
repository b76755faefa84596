package mux

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"

	"rota/api/handshake"
	"rota/api/pki"
)

const (
	// alpnRaft is what Raft is called in a TLS handshake.
	alpnRaft = "rota-raft"
	// raftPrefix announces Raft in plain text. HTTP begins with a letter, TLS
	// with 0x16.
	raftPrefix = 0x01
)

// forBoth makes a server's TLS configuration offer Raft beside HTTP, and Raft
// to servers only.
func forBoth(conf *tls.Config) *tls.Config {
	conf = conf.Clone()
	conf.NextProtos = []string{alpnRaft, "h2", "http/1.1"}
	verify := conf.VerifyConnection
	conf.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := verify(cs); err != nil {
			return err
		}
		if cs.NegotiatedProtocol != alpnRaft {
			return nil
		}
		role, err := pki.PeerRole(&cs)
		if err != nil {
			return err
		}
		if role != pki.RoleServer {
			return fmt.Errorf("raft: %w: %q is %q", pki.ErrWrongRole, pki.PeerName(&cs), role)
		}
		return nil
	}
	return conf
}

func (m *Mux) identifyTLS(raw *guest) (net.Conn, *handshake.Queue, error) {
	conn, err := handshake.TLS(raw, m.tls)
	if err != nil {
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol == alpnRaft {
		return conn, m.raft, nil
	}
	if len(state.PeerCertificates) == 0 {
		if victim := m.guests.enter(raw); victim != nil {
			m.complaints.Warn("connection closed", victim, errGuests)
			victim.Close()
		}
	}
	return conn, m.http, nil
}

func (m *Mux) identifyPlain(raw net.Conn) (net.Conn, *handshake.Queue, error) {
	if err := raw.SetReadDeadline(time.Now().Add(firstByteTimeout)); err != nil {
		return nil, nil, err
	}
	var first [1]byte
	if _, err := io.ReadFull(raw, first[:]); err != nil {
		return nil, nil, err
	}
	if err := raw.SetReadDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	switch b := first[0]; {
	case b == raftPrefix:
		return raw, m.raft, nil
	case 'A' <= b && b <= 'Z':
		return &unread{Conn: raw, first: b, pending: true}, m.http, nil
	case b == 0x16:
		return nil, nil, fmt.Errorf("%w: it speaks TLS, and this server has no certificate", ErrProtocol)
	default:
		return nil, nil, fmt.Errorf("%w: first byte %#02x", ErrProtocol, b)
	}
}

// unread is a connection whose first byte has been looked at.
type unread struct {
	net.Conn
	first   byte
	pending bool
}

func (u *unread) Read(p []byte) (int, error) {
	if u.pending && len(p) > 0 {
		u.pending = false
		p[0] = u.first
		return 1, nil
	}
	return u.Conn.Read(p)
}

// CloseWrite lets net/http end an answer to a request that it did not read all
// of, such as one with too long a header. Without it the client gets a reset, and
// perhaps no answer.
func (u *unread) CloseWrite() error {
	if c, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// LetIn makes the port take TLS connections without a client certificate while allow says so.
// They speak HTTP only, never Raft: who is behind them is found out by their tokens. They are limited
// in number (see guests). It must be called before Serve, and does nothing without TLS.
func (m *Mux) LetIn(allow func() bool) {
	if m.tls == nil {
		return
	}
	verify, open := m.tls.VerifyConnection, m.tls.Clone()
	open.ClientAuth = tls.RequestClientCert
	open.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 && cs.NegotiatedProtocol != alpnRaft {
			return nil
		}
		return verify(cs)
	}
	m.tls.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if allow() {
			return open, nil
		}
		return nil, nil //nolint:nilnil // nil: the configuration as it is
	}
}
