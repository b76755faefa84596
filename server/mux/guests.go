package mux

import (
	"errors"
	"net"
	"net/netip"
	"sync"
)

const (
	// guestsMax bounds the connections of guests, whom nothing but their tokens tells from strangers. A
	// guest that answers pings may keep its connection for ever, and one that asks for nothing takes some
	// tens of KiB and a file.
	guestsMax = 4096
	// guestsEachMax bounds those of one address, so that no address has all. It is half of them, and not
	// less, as all clients behind one load balancer have one address. A client needs one connection.
	guestsEachMax = guestsMax / 2
	// networkBits is how much of an IPv6 address counts: whoever has one has the rest of its network.
	networkBits = 64
)

// errGuests is why a connection was closed that had been given away.
var errGuests = errors.New("more connections without a client certificate than this server takes")

// guests keeps account of the TLS connections without a client certificate that HTTP has got. At the
// bound, the oldest connection of the address that has the most is closed: a flood from one address
// closes its own connections only. Those with a certificate are not counted.
type guests struct {
	mu sync.Mutex
	// max and eachMax are the bounds of all and of one address.
	max, eachMax int
	// open are the connections by address, oldest first, count is their number.
	open  map[netip.Addr][]*guest
	count int
}

func newGuests() *guests {
	return &guests{max: guestsMax, eachMax: guestsEachMax, open: map[netip.Addr][]*guest{}}
}

// guest is the connection below TLS. It may turn out to be of a client with a certificate.
type guest struct {
	net.Conn
	guests *guests
	from   netip.Addr
	// closed and counted are guarded by guests.mu.
	closed, counted bool
}

func (gs *guests) wrap(conn net.Conn) *guest {
	g := &guest{Conn: conn, guests: gs}
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		g.from = tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	if g.from.Is6() {
		if network, err := g.from.Prefix(networkBits); err == nil {
			g.from = network.Addr()
		}
	}
	return g
}

// enter counts a connection until it is closed, and returns the one that has to go for it; nil: none.
func (gs *guests) enter(g *guest) (victim *guest) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g.closed {
		return nil
	}
	from := g.from
	if gs.count >= gs.max {
		for addr, list := range gs.open {
			if len(list) > len(gs.open[from]) {
				from = addr
			}
		}
	}
	if list := gs.open[from]; gs.count >= gs.max || len(list) >= gs.eachMax {
		victim = list[0]
		gs.drop(victim)
	}
	gs.open[g.from] = append(gs.open[g.from], g)
	gs.count++
	g.counted = true
	return victim
}

// drop ends the account of a connection.
func (gs *guests) drop(g *guest) {
	if !g.counted {
		return
	}
	g.counted = false
	gs.count--
	list := gs.open[g.from]
	for i, other := range list {
		if other != g {
			continue
		}
		if gs.open[g.from] = append(list[:i], list[i+1:]...); len(list) == 1 {
			delete(gs.open, g.from)
		}
		return
	}
}

// Close closes the connection.
func (g *guest) Close() error {
	g.guests.mu.Lock()
	g.closed = true
	g.guests.drop(g)
	g.guests.mu.Unlock()
	return g.Conn.Close()
}
