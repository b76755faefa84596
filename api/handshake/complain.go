package handshake

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/pki"
)

// complainEvery keeps a port scanner from filling the disk with warnings.
const complainEvery = time.Second

// pathBytesMax is how much of a path a warning shows.
const pathBytesMax = 200

// Complaints are the warnings of a port about its connections.
type Complaints struct {
	Logger hclog.Logger
	last   atomic.Int64 // Unix time of the newest warning, in nanoseconds
}

// Refused logs why a connection was turned away. One that was merely idle, or
// closed by its client, is nobody's problem.
func (c *Complaints) Refused(raw net.Conn, err error) {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || isClosed(err) {
		c.Logger.Trace("connection closed before it was used", "peer", raw.RemoteAddr(), "error", err)
		return
	}
	c.Warn("connection refused", raw, err)
}

// Warn logs a warning, and as a debug message what comes too soon after one.
func (c *Complaints) Warn(what string, raw net.Conn, err error) {
	c.warn(what, "peer", raw.RemoteAddr(), "error", err)
}

// Unread logs that an answer was ended because its client does not read it.
func (c *Complaints) Unread(r *http.Request) {
	c.warn("answer ended, since its client does not read it", "peer", r.RemoteAddr, "name", pki.PeerName(r.TLS),
		"protocol", r.Proto, "path", r.URL.Path[:min(len(r.URL.Path), pathBytesMax)])
}

func (c *Complaints) warn(what string, args ...any) {
	now, last := time.Now().UnixNano(), c.last.Load()
	if now-last < int64(complainEvery) || !c.last.CompareAndSwap(last, now) {
		c.Logger.Debug(what, args...)
		return
	}
	c.Logger.Warn(what, args...)
}

// isClosed reports whether the other side, or Close, ended the connection.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET)
}

// Exhausted reports whether the error passes when others close connections.
func Exhausted(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
