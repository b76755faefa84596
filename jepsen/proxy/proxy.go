package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Any stands for every member in a rule.
const Any = ""

// LossAll is a loss of everything, in parts per million.
const LossAll = 1_000_000

// Counters say what has gone through and which faults took effect.
type Counters struct {
	Connections, Resets    int
	Unreachable            int // connections whose server did not answer
	Pieces, Delayed        int // of streams; how many were late because of a delay
	Stalls                 int // retransmission time-outs of pieces
	Datagrams              int
	DatagramsLate, Dropped int
}

// link is a direction between two members.
type link struct{ from, to string }

// rule is what happens on a link.
type rule struct {
	mean, jitter time.Duration
	lossPPM      int
}

// Proxy is a set of listeners, each for one server.
type Proxy struct {
	names  map[string]string // member by IP address
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	rand    *rand.Rand
	rules   map[link]rule
	counts  Counters
	streams map[*stream]bool
	open    map[io.Closer]bool
}

// New returns a proxy for members that are known by their IP addresses: members
// maps names to them. Whatever is drawn is drawn from the seed.
func New(members map[string]string, seed uint64) *Proxy {
	p := &Proxy{
		names: make(map[string]string, len(members)),
		rand:  rand.New(rand.NewPCG(seed, 0)), rules: make(map[link]rule),
		streams: make(map[*stream]bool), open: make(map[io.Closer]bool),
	}
	for name, ip := range members {
		p.names[ip] = name
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// SetDelay makes bytes from one member to another late by mean, give or take at
// most jitter. Zero ends it.
func (p *Proxy) SetDelay(from, to string, mean, jitter time.Duration) {
	p.edit(from, to, func(r *rule) { r.mean, r.jitter = mean, jitter })
}

// SetLoss loses so many parts per million of what goes from one member to
// another. Zero ends it.
func (p *Proxy) SetLoss(from, to string, ppm int) {
	p.edit(from, to, func(r *rule) { r.lossPPM = ppm })
}

// edit changes the rule of a link. With Any it becomes the rule of all links
// that have none of their own.
func (p *Proxy) edit(from, to string, change func(*rule)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rules[link{from, to}]
	change(&r)
	p.rules[link{from, to}] = r
}

// Heal removes all rules.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.rules)
}

// Reset breaks the connections that one member has opened to another, as if one
// of the hosts had restarted. It returns how many there were.
func (p *Proxy) Reset(from, to string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for s := range p.streams {
		if (from == Any || from == s.from) && (to == Any || to == s.to) {
			s.reset()
			n++
		}
	}
	p.counts.Resets += n
	return n
}

// Counters returns what has happened since New.
func (p *Proxy) Counters() Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Close stops listening, breaks all connections and waits for all that it
// started.
func (p *Proxy) Close() error {
	p.cancel()
	p.mu.Lock()
	var errs []error
	for c := range p.open {
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
	return errors.Join(errs...)
}

// count changes the counters.
func (p *Proxy) count(change func(*Counters)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.counts)
}

// who is the member at an address; its IP address if nobody knows it.
func (p *Proxy) who(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if name, ok := p.names[host]; ok {
		return name
	}
	return host
}

// draw says for one piece or datagram how late it is and whether it is lost.
func (p *Proxy) draw(l link) (late time.Duration, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range []link{l, {l.from, Any}, {Any, l.to}, {Any, Any}} {
		r, ok := p.rules[key]
		if !ok {
			continue
		}
		late = r.mean
		if r.jitter > 0 {
			late += time.Duration(p.rand.Int64N(2*int64(r.jitter)+1)) - r.jitter
		}
		return max(0, late), r.lossPPM > 0 && p.rand.IntN(LossAll) < r.lossPPM
	}
	return 0, false
}

// keep closes c with the proxy, until forget. It refuses when that is over.
func (p *Proxy) keep(c io.Closer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		_ = c.Close()
		return net.ErrClosed
	}
	p.open[c] = true
	return nil
}

// forget closes c, once.
func (p *Proxy) forget(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[c] {
		delete(p.open, c)
		_ = c.Close()
	}
}

// sleep waits; false if the proxy was closed meanwhile.
func (p *Proxy) sleep(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// portTries is how often a port is drawn that must be free for TCP and UDP.
const portTries = 16

// Both listens for TCP and UDP on the same port, as gossip needs it, and passes
// what comes to the server named to, at target. With port 0 it takes a free one.
// It returns the address to advertise.
func (p *Proxy) Both(to, listen, target string) (addr string, err error) {
	for range portTries {
		var tcp net.Listener
		if tcp, err = net.Listen("tcp", listen); err != nil {
			break
		}
		addr = tcp.Addr().String()
		var udp net.PacketConn
		if udp, err = net.ListenPacket("udp", addr); err != nil {
			_ = tcp.Close()
			continue
		}
		return addr, errors.Join(p.serveTCP(tcp, to, target), p.serveUDP(udp, to, target))
	}
	return "", fmt.Errorf("proxy for %s on %s: %w", to, listen, err)
}

// TCP listens for TCP and passes what comes to the server named to, at target.
// With port 0 it takes a free one. It returns the address to advertise.
func (p *Proxy) TCP(to, listen, target string) (addr string, err error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", fmt.Errorf("proxy for %s: %w", to, err)
	}
	return l.Addr().String(), p.serveTCP(l, to, target)
}
