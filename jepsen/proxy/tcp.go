package proxy

import (
	"errors"
	"io"
	"net"
	"time"
)

const (
	pieceBytes = 16 << 10
	// pieces is how many of a stream may be on their way.
	pieces      = 256
	rtoMin      = 200 * time.Millisecond
	rtoMax      = 2 * time.Second
	dialTimeout = 5 * time.Second
)

// stream is a connection from a member to a server.
type stream struct {
	from, to       string
	client, server *net.TCPConn
}

// reset breaks both halves.
func (s *stream) reset() {
	for _, c := range []*net.TCPConn{s.client, s.server} {
		_ = c.SetLinger(0) // close with RST, and lose what is on its way
		_ = c.Close()
	}
}

func (p *Proxy) serveTCP(l net.Listener, to, target string) error {
	if err := p.keep(l); err != nil {
		return err
	}
	p.wg.Go(func() {
		defer p.forget(l)
		for {
			c, err := l.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if !p.sleep(10 * time.Millisecond) { // out of descriptors, or a client that is gone
					return
				}
				continue
			}
			p.wg.Go(func() { p.connect(c.(*net.TCPConn), to, target) })
		}
	})
	return nil
}

// connect passes a connection on to its server until it ends.
func (p *Proxy) connect(client *net.TCPConn, to, target string) {
	if p.keep(client) != nil {
		return
	}
	defer p.forget(client)
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(p.ctx, "tcp", target)
	if err != nil {
		p.count(func(c *Counters) { c.Unreachable++ })
		_ = client.SetLinger(0)
		return
	}
	s := &stream{from: p.who(client.RemoteAddr()), to: to, client: client, server: c.(*net.TCPConn)}
	if p.keep(s.server) != nil {
		return
	}
	defer p.forget(s.server)
	p.mu.Lock()
	p.streams[s] = true
	p.counts.Connections++
	p.mu.Unlock()
	back := make(chan struct{})
	p.wg.Go(func() {
		defer close(back)
		p.pass(link{s.to, s.from}, s.server, s.client, s)
	})
	p.pass(link{s.from, s.to}, s.client, s.server, s)
	<-back
	p.mu.Lock()
	delete(p.streams, s)
	p.mu.Unlock()
}

// piece is a part of a stream on its way.
type piece struct {
	data []byte
	due  time.Time
}

// pass copies one direction of a connection and keeps its order.
func (p *Proxy) pass(l link, from, to *net.TCPConn, s *stream) {
	way := make(chan piece, pieces)
	p.wg.Go(func() {
		defer close(way)
		p.receive(l, from, way, s)
	})
	for next := range way {
		if !p.deliver(l, next, to) {
			s.reset()
			break
		}
	}
	for range way { // the receiver ends because its connection is broken
	}
	_ = to.CloseWrite()
}

func (p *Proxy) receive(l link, from *net.TCPConn, way chan<- piece, s *stream) {
	for {
		buf := make([]byte, pieceBytes)
		n, err := from.Read(buf)
		if n > 0 {
			late, _ := p.draw(l)
			p.count(func(c *Counters) {
				c.Pieces++
				if late > 0 {
					c.Delayed++
				}
			})
			way <- piece{buf[:n], time.Now().Add(late)}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.reset()
			}
			return
		}
	}
}

// deliver writes a piece when it is due, after as many retransmissions as its
// losses take.
func (p *Proxy) deliver(l link, next piece, to *net.TCPConn) bool {
	if !p.sleep(time.Until(next.due)) {
		return false
	}
	for rto := rtoMin; ; rto = min(2*rto, rtoMax) {
		if _, lost := p.draw(l); !lost {
			break
		}
		p.count(func(c *Counters) { c.Stalls++ })
		if !p.sleep(rto) {
			return false
		}
	}
	_, err := to.Write(next.data)
	return err == nil
}
