package handshake

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// timeout is how long a TLS client has to show who it is.
	timeout = 10 * time.Second
	// acceptAgain is how long nothing is accepted when there are no files or no memory.
	acceptAgain = 100 * time.Millisecond
)

// TLS returns the connection once its handshake is done. It does not close raw if that fails.
func TLS(raw net.Conn, conf *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn := tls.Server(raw, conf)
	return conn, conn.HandshakeContext(ctx)
}

// listener yields TLS connections whose handshake is done.
type listener struct {
	net.Listener
	conf       *tls.Config
	start      sync.Once
	pending    *Pending
	done       *Queue
	complaints Complaints
}

// Listen returns a listener like that of tls.NewListener, whose connections have done their handshake when
// they are accepted. At most PendingMax others are open. The logger hears of those that are turned away.
func Listen(l net.Listener, conf *tls.Config, logger hclog.Logger) net.Listener {
	return &listener{
		Listener: l, conf: conf, pending: NewPending(PendingMax), done: NewQueue(l.Addr()), complaints: Complaints{Logger: logger},
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.serve() })
	return l.done.Accept()
}

// Close implements net.Listener. It returns when all that were pending are closed.
func (l *listener) Close() error {
	err := l.Listener.Close()
	_ = l.done.Close()
	l.pending.Close()
	return err
}

// serve takes connections until the listener is closed.
func (l *listener) serve() {
	for {
		conn, err := l.Listener.Accept()
		switch {
		case Exhausted(err):
			l.complaints.Logger.Warn("cannot accept connections, trying again", "error", err)
			time.Sleep(acceptAgain)
		case err != nil:
			l.done.End(err)
			return
		case l.pending.Add(conn):
			go l.shake(conn)
		default:
			_ = conn.Close()
		}
	}
}

// shake gives a connection away once its handshake is done, or closes it.
func (l *listener) shake(raw net.Conn) {
	defer l.pending.Done()
	conn, err := TLS(raw, l.conf)
	if err != nil {
		l.complaints.Refused(raw, err)
	}
	// From here on nobody else may close it.
	mine := l.pending.Remove(raw)
	if err != nil || !mine || !l.done.Give(conn) {
		_ = raw.Close()
	}
}
