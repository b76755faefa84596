package gossip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/hashicorp/memberlist"
)

const (
	// streamsMax bounds the connections that others have opened. Members need one
	// for some milliseconds, now and then.
	streamsMax = 128
	// streamBytesMax bounds what has been read of all of them. Ten thousand members
	// describe themselves in about four megabytes.
	streamBytesMax = 64 << 20
	// portTries is how often a free port is looked for that TCP and UDP both have.
	portTries = 10
)

// errStreamBytes ends a connection that has sent too much, with all others.
var errStreamBytes = errors.New("connections of other members have sent too much at once")

// transport is memberlist's transport with bounds on what others open.
//
// A connection of a stranger cannot be told from one of a member before a whole
// message of it has been decrypted. So all are bounded together, and memberlist
// closes each after streamTimeout. At the bound, the oldest connection of the
// address that has the most is closed: a flood from one address closes its own
// connections only.
type transport struct {
	*memberlist.NetTransport
	strangers *strangers
	streams   chan net.Conn
	// closing is closed first, done once nothing is accepted any more.
	closing, done chan struct{}
	wg            sync.WaitGroup

	mu sync.Mutex
	// open are the connections by address, oldest first, count is their number.
	open  map[netip.Addr][]*stream
	count int
	// bytes is what has been read of them.
	bytes int
}

// newTransport listens on an address, on a free port if the port is 0.
func newTransport(bind *net.TCPAddr, conf *memberlist.Config, s *strangers) (*transport, error) {
	var inner *memberlist.NetTransport
	var err error
	for range portTries {
		inner, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{bind.IP.String()}, BindPort: bind.Port, Logger: conf.Logger,
		})
		if err == nil || bind.Port != 0 {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	t := &transport{
		NetTransport: inner, strangers: s, streams: make(chan net.Conn),
		closing: make(chan struct{}), done: make(chan struct{}),
		open: map[netip.Addr][]*stream{},
	}
	t.wg.Go(t.admit)
	return t, nil
}

// StreamCh yields the connections that others have opened.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown stops listening and closes the connections that others have opened.
func (t *transport) Shutdown() error {
	close(t.closing)
	err := t.NetTransport.Shutdown() // it may be about to give a connection away
	close(t.done)
	t.wg.Wait()
	for _, s := range t.all() {
		s.Close()
	}
	return err
}

// admit takes in what the listener accepts.
func (t *transport) admit() {
	for {
		select {
		case conn := <-t.NetTransport.StreamCh():
			t.pass(conn)
		case <-t.done:
			return
		}
	}
}

// pass gives a connection to memberlist, and closes another one for it at the bound.
func (t *transport) pass(conn net.Conn) {
	s, victim := t.add(conn)
	if victim != nil {
		victim.Close()
		t.strangers.note(fmt.Sprintf("more than %d connections: closed the oldest from=%s", streamsMax, victim.RemoteAddr()))
	}
	select {
	case t.streams <- s:
	case <-t.closing:
		s.Close()
	}
}

// add keeps account of a connection, and returns the one that has to go for it.
func (t *transport) add(conn net.Conn) (s, victim *stream) {
	s = &stream{Conn: conn, transport: t}
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		s.from = tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count >= streamsMax {
		var most netip.Addr
		for addr, list := range t.open {
			if len(list) > len(t.open[most]) {
				most = addr
			}
		}
		victim = t.open[most][0]
	}
	t.open[s.from] = append(t.open[s.from], s)
	t.count++
	return s, victim
}

// remove ends the account of a connection.
func (t *transport) remove(s *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.open[s.from]
	for i, other := range list {
		if other != s {
			continue
		}
		t.count--
		t.bytes -= s.bytes
		s.gone = true
		if t.open[s.from] = append(list[:i], list[i+1:]...); len(list) == 1 {
			delete(t.open, s.from)
		}
		return
	}
}

// read accounts for bytes of a connection; false if they are too many, or if it was closed meanwhile
// and has no account any more.
func (t *transport) read(s *stream, n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.gone {
		return false
	}
	s.bytes += n
	t.bytes += n
	return t.bytes <= streamBytesMax
}

func (t *transport) all() (list []*stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.open {
		list = append(list, l...)
	}
	return list
}

// stream is a connection that somebody has opened.
type stream struct {
	net.Conn
	transport *transport
	from      netip.Addr
	bytes     int
	gone      bool // its account has ended
	once      sync.Once
}

// Read reads, and fails if others have sent too much together.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 && !s.transport.read(s, n) {
		return 0, errStreamBytes
	}
	return n, err
}

// Close closes the connection.
func (s *stream) Close() error {
	s.once.Do(func() { s.transport.remove(s) })
	return s.Conn.Close()
}
