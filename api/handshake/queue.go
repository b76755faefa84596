package handshake

import (
	"net"
	"sync"
)

// Queue is a listener that yields the connections that it is given.
type Queue struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	err   error // of Accept, once done is closed
}

// NewQueue returns a queue that says that it listens on an address.
func NewQueue(addr net.Addr) *Queue {
	return &Queue{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Give waits until somebody accepts the connection; false once the queue is closed.
func (q *Queue) Give(conn net.Conn) bool {
	select {
	case q.conns <- conn:
		return true
	case <-q.done:
		return false
	}
}

// Accept implements net.Listener.
func (q *Queue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.done:
		return nil, q.err
	}
}

// Close implements net.Listener.
func (q *Queue) Close() error {
	q.End(net.ErrClosed)
	return nil
}

// End closes the queue. Accept fails with the error of the first call.
func (q *Queue) End(err error) {
	q.once.Do(func() {
		q.err = err
		close(q.done)
	})
}

// Addr implements net.Listener.
func (q *Queue) Addr() net.Addr { return q.addr }
