package mux

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/pki"
)

const (
	// handshakeTimeout is what a TLS client has to show who it is.
	handshakeTimeout = 10 * time.Second
	// firstByteTimeout is what a plain client has to send anything. HTTP clients
	// may open connections before they need them.
	firstByteTimeout = time.Minute
	// pendingMax bounds the connections that have not been given away yet.
	pendingMax = 1024
	// warnInterval keeps a port scanner from filling the disk with warnings.
	warnInterval = time.Second
)

// ErrProtocol is a connection that speaks neither Raft nor HTTP.
var ErrProtocol = errors.New("connection speaks neither Raft nor HTTP")

// Mux gives each connection of one listener to Raft or to HTTP.
type Mux struct {
	listener net.Listener
	tls      *tls.Config // nil: plain text
	logger   hclog.Logger

	raft, http *listener
	pending    *pending
	guests     *guests
	closed     atomic.Bool
	warned     atomic.Int64 // unix nanoseconds of the newest warning
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
		listener: l,
		tls:      tlsConf,
		logger:   logger.Named("mux"),
		raft:     newListener(l.Addr()),
		http:     newListener(l.Addr()),
		pending:  newPending(pendingMax),
		guests:   newGuests(),
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
		if exhausted(err) {
			m.logger.Warn("cannot accept connections, trying again", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err != nil {
			return fmt.Errorf("accept on %s: %w", m.listener.Addr(), err)
		}
		if m.tls != nil {
			conn = m.guests.wrap(conn)
		}
		if m.pending.add(conn) {
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
	m.pending.close()
	return err
}

// route finds out what a connection wants and gives it away, or closes it.
func (m *Mux) route(raw net.Conn) {
	defer m.pending.done()
	conn, to, err := m.identify(raw)
	if err == nil && to == m.raft {
		err = keepAlive(raw)
	}
	if err != nil {
		m.warn(raw, err)
	}
	// From here on nobody else may close it.
	mine := m.pending.remove(raw)
	if err != nil || !mine || !to.give(conn) {
		raw.Close()
	}
}

// identify returns the connection as the listener that it belongs to should
// see it.
func (m *Mux) identify(raw net.Conn) (net.Conn, *listener, error) {
	if g, ok := raw.(*guest); ok {
		return m.identifyTLS(g)
	}
	return m.identifyPlain(raw)
}

// warn logs why a connection was turned away. One that was merely idle, or
// closed by its client, is nobody's problem.
func (m *Mux) warn(raw net.Conn, err error) {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || isClosed(err) {
		m.logger.Trace("connection closed before it was used", "peer", raw.RemoteAddr(), "error", err)
		return
	}
	m.warnOf("connection refused", raw, err)
}

// warnOf logs a warning, and as a debug message what comes too soon after one.
func (m *Mux) warnOf(what string, raw net.Conn, err error) {
	now, last := time.Now().UnixNano(), m.warned.Load()
	if now-last < int64(warnInterval) || !m.warned.CompareAndSwap(last, now) {
		m.logger.Debug(what, "peer", raw.RemoteAddr(), "error", err)
		return
	}
	m.logger.Warn(what, "peer", raw.RemoteAddr(), "error", err)
}

// exhausted reports whether the error passes when others close connections.
func exhausted(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
