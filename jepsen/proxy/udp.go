package proxy

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	datagramBytes = 64 << 10
	// sessionIdle is how long answers to a client are waited for.
	sessionIdle = 30 * time.Second
)

// sessions are the sockets that speak to one server for its clients.
type sessions struct {
	*Proxy
	listener   net.PacketConn
	to, target string

	mu       sync.Mutex
	byClient map[string]net.Conn
}

func (p *Proxy) serveUDP(l net.PacketConn, to, target string) error {
	if err := p.keep(l); err != nil {
		return err
	}
	s := &sessions{Proxy: p, listener: l, to: to, target: target, byClient: make(map[string]net.Conn)}
	p.wg.Go(func() {
		defer p.forget(l)
		buf := make([]byte, datagramBytes)
		for {
			n, client, err := l.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // what an earlier packet was answered with
			}
			if c, err := s.of(client); err == nil {
				s.send(link{p.who(client), to}, buf[:n], func(b []byte) { _, _ = c.Write(b) })
			}
		}
	})
	return nil
}

// of returns the socket that speaks for a client.
func (s *sessions) of(client net.Addr) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.byClient[client.String()]; ok {
		return c, nil
	}
	c, err := net.Dial("udp", s.target)
	if err != nil {
		return nil, err
	}
	if err := s.keep(c); err != nil {
		return nil, err
	}
	s.byClient[client.String()] = c
	s.wg.Go(func() { s.answer(client, c) })
	return c, nil
}

// answer passes back what the server says, until it has been silent for long.
func (s *sessions) answer(client net.Addr, c net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.byClient, client.String())
		s.mu.Unlock()
		s.forget(c)
	}()
	buf := make([]byte, datagramBytes)
	for {
		_ = c.SetReadDeadline(time.Now().Add(sessionIdle))
		n, err := c.Read(buf)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			// The server's port is closed, perhaps for now.
			if !s.sleep(10 * time.Millisecond) {
				return
			}
			continue
		}
		s.send(link{s.to, s.who(client)}, buf[:n], func(b []byte) { _, _ = s.listener.WriteTo(b, client) })
	}
}

// send delivers a datagram, late or never.
func (p *Proxy) send(l link, data []byte, deliver func([]byte)) {
	late, lost := p.draw(l)
	p.count(func(c *Counters) {
		c.Datagrams++
		switch {
		case lost:
			c.Dropped++
		case late > 0:
			c.DatagramsLate++
		}
	})
	switch {
	case lost:
	case late == 0:
		deliver(data)
	default:
		kept := append([]byte(nil), data...)
		p.wg.Go(func() {
			if p.sleep(late) {
				deliver(kept)
			}
		})
	}
}
