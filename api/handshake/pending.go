package handshake

import (
	"container/list"
	"net"
	"sync"
)

// PendingMax is how many connections of a port may be nobody's yet.
const PendingMax = 1024

// Pending holds the connections that are nobody's yet, oldest first.
type Pending struct {
	limit  int
	routes sync.WaitGroup // one for each Add, until Done

	mu     sync.Mutex
	closed bool
	order  *list.List
	conns  map[net.Conn]*list.Element
}

// NewPending holds so many connections at once.
func NewPending(limit int) *Pending {
	return &Pending{limit: limit, order: list.New(), conns: make(map[net.Conn]*list.Element)}
}

// Add takes the connection in and, at the limit, closes the oldest one. It is
// false after Close; otherwise Done must be called.
func (p *Pending) Add(conn net.Conn) bool {
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

// Remove forgets a connection without closing it; false if it was closed.
func (p *Pending) Remove(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drop(conn) && !p.closed
}

// Done ends what Add began.
func (p *Pending) Done() { p.routes.Done() }

func (p *Pending) drop(conn net.Conn) bool {
	e, ok := p.conns[conn]
	if ok {
		p.order.Remove(e)
		delete(p.conns, conn)
	}
	return ok
}

// Close closes all of them, refuses every later one, and waits until whoever
// added one is done with it.
func (p *Pending) Close() {
	p.mu.Lock()
	p.closed = true
	for conn := range p.conns {
		conn.Close()
	}
	p.mu.Unlock()
	p.routes.Wait()
}
