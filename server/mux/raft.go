package mux

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// NewStreamLayer is the transport of Raft over the port that m serves, which
// others know as advertise. It dials with clientTLS, of pki.ClientConfig for
// servers, or in plain text without it.
func NewStreamLayer(m *Mux, advertise net.Addr, clientTLS *tls.Config) raft.StreamLayer {
	return &streamLayer{Listener: m.Raft(), advertise: advertise, tls: clientTLS}
}

type streamLayer struct {
	net.Listener
	advertise net.Addr
	tls       *tls.Config
}

// Addr is what other servers dial.
func (s *streamLayer) Addr() net.Addr { return s.advertise }

// Dial connects to another server's Raft.
func (s *streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return DialRaft(string(address), timeout, s.tls)
}

// DialRaft connects to the Raft of the server at host:port. With TLS, who the
// peer is has been verified when it returns. errors.Is tells a refused
// connection (syscall.ECONNREFUSED: nobody listens) from other failures.
func DialRaft(addr string, timeout time.Duration, clientTLS *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	d := net.Dialer{Control: boundUnacked, KeepAliveConfig: keepAlives}
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn, err := announce(ctx, raw, clientTLS)
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("dial raft at %s: %w", addr, err)
	}
	return conn, nil
}

// announce says that the connection is for Raft.
func announce(ctx context.Context, raw net.Conn, clientTLS *tls.Config) (net.Conn, error) {
	if clientTLS == nil {
		_, err := raw.Write([]byte{raftPrefix})
		return raw, err
	}
	conf := clientTLS.Clone()
	conf.NextProtos = []string{alpnRaft}
	conn := tls.Client(raw, conf)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != alpnRaft {
		return nil, fmt.Errorf("%w: server chose protocol %q", ErrProtocol, got)
	}
	return conn, nil
}
