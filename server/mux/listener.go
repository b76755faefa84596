package mux

import (
	"container/list"
	"net"
	"sync"
)

// listener yields the connections that it is given.
type listener struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newListener(addr net.Addr) *listener {
	return &listener{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// give waits until somebody accepts the connection; false once the listener is
// closed.
func (l *listener) give(conn net.Conn) bool {
	select {
	case l.conns <- conn:
		return true
	case <-l.done:
		return false
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// pending holds the connections that are nobody's yet, oldest first.
type pending struct {
	limit  int
	routes sync.WaitGroup // one for each add, until done

	mu     sync.Mutex
	closed bool
	order  *list.List
	conns  map[net.Conn]*list.Element
}

func newPending(limit int) *pending {
	return &pending{limit: limit, order: list.New(), conns: make(map[net.Conn]*list.Element)}
}

// add takes the connection in and, at the limit, closes the oldest one. It is
// false after close; otherwise done must be called.
func (p *pending) add(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.order.Len() >= p.limit {
		oldest := p.order.Front().Value.(net.Conn)
		p.drop(oldest)
		oldest.Close()
	}
	p.conns[conn] = p.order.PushBack(conn)
	p.routes.Add(1)
	return true
}

// remove forgets a connection without closing it; false if it was closed.
func (p *pending) remove(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drop(conn) && !p.closed
}

func (p *pending) done() { p.routes.Done() }

func (p *pending) drop(conn net.Conn) bool {
	e, ok := p.conns[conn]
	if ok {
		p.order.Remove(e)
		delete(p.conns, conn)
	}
	return ok
}

// close closes all of them, refuses every later one, and waits until whoever
// added one is done with it.
func (p *pending) close() {
	p.mu.Lock()
	p.closed = true
	for conn := range p.conns {
		conn.Close()
	}
	p.mu.Unlock()
	p.routes.Wait()
}
