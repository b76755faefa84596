package mux

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/handshake"
	"rota/api/pki"
)

// firstByteTimeout is what a plain client has to send anything. HTTP clients
// may open connections before they need them.
const firstByteTimeout = time.Minute

// ErrProtocol is a connection that speaks neither Raft nor HTTP.
var ErrProtocol = errors.New("connection speaks neither Raft nor HTTP")

// Mux gives each connection of one listener to Raft or to HTTP.
type Mux struct {
	listener net.Listener
	tls      *tls.Config // nil: plain text

	raft, http *handshake.Queue
	pending    *handshake.Pending
	guests     *guests
	closed     atomic.Bool
	complaints handshake.Complaints
}

// New prepares to serve l; Serve must be called. Without tlsConf, which is one
// of pki.ServerConfig for all roles, l must be on loopback, or the error is
// pki.ErrPlaintext. On success the Mux owns l.
func New(l net.Listener, tlsConf *tls.Config, logger hclog.Logger) (*Mux, error) {
	if tlsConf == nil {
		if err := pki.AllowPlaintext(l.Addr()); err != nil {
			return nil, err
		}
	} else {
		tlsConf = forBoth(tlsConf)
	}
	return &Mux{
		listener:   l,
		tls:        tlsConf,
		raft:       handshake.NewQueue(l.Addr()),
		http:       handshake.NewQueue(l.Addr()),
		pending:    handshake.NewPending(handshake.PendingMax),
		guests:     newGuests(),
		complaints: handshake.Complaints{Logger: logger.Named("mux")},
	}, nil
}

// Raft yields the connections of other servers' Raft, announced and, with TLS,
// authenticated.
func (m *Mux) Raft() net.Listener { return m.raft }

// HTTP yields all other connections; with TLS they are *tls.Conn whose
// handshake is done.
func (m *Mux) HTTP() net.Listener { return m.http }

// Serve accepts connections until Close, and then returns nil.
func (m *Mux) Serve() error {
	for {
		conn, err := m.listener.Accept()
		if m.closed.Load() {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if handshake.Exhausted(err) {
			m.complaints.Logger.Warn("cannot accept connections, trying again", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err != nil {
			return fmt.Errorf("accept on %s: %w", m.listener.Addr(), err)
		}
		if m.tls != nil {
			conn = m.guests.wrap(conn)
		}
		if m.pending.Add(conn) {
			go m.route(conn)
		} else {
			conn.Close()
		}
	}
}

// Close stops accepting, closes what has not been given away, and ends both
// listeners. Connections that Raft and HTTP have got are theirs.
func (m *Mux) Close() error {
	m.closed.Store(true)
	err := m.listener.Close()
	m.raft.Close()
	m.http.Close()
	m.pending.Close()
	return err
}

// route finds out what a connection wants and gives it away, or closes it.
func (m *Mux) route(raw net.Conn) {
	defer m.pending.Done()
	conn, to, err := m.identify(raw)
	if err == nil && to == m.raft {
		err = keepAlive(raw)
	}
	if err != nil {
		m.complaints.Refused(raw, err)
	}
	// From here on nobody else may close it.
	mine := m.pending.Remove(raw)
	if err != nil || !mine || !to.Give(conn) {
		raw.Close()
	}
}

// identify returns the connection as the listener that it belongs to should
// see it.
func (m *Mux) identify(raw net.Conn) (net.Conn, *handshake.Queue, error) {
	if g, ok := raw.(*guest); ok {
		return m.identifyTLS(g)
	}
	return m.identifyPlain(raw)
}
