package proxy

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"rota/server/gossip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The clients of these tests are two loopback addresses.
var members = map[string]string{"a": "127.0.0.2", "b": "127.0.0.3"}

func newProxy(t *testing.T) *Proxy {
	t.Helper()
	p := New(members, 1)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// echo is a TCP server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// echoProxy is a proxy for one echo server, named s.
func echoProxy(t *testing.T) (p *Proxy, addr string) {
	t.Helper()
	p = newProxy(t)
	addr, err := p.TCP("s", "127.0.0.1:0", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	return p, addr
}

// dial connects as a member.
func dial(t *testing.T, member, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(members[member])}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// ask sends a text and waits for it to come back.
func ask(t *testing.T, c net.Conn, text string) time.Duration {
	t.Helper()
	began := time.Now()
	got := make([]byte, len(text))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Fatalf("got %q, want %q", got, text)
	}
	return time.Since(began)
}

func TestAStreamGoesThroughWhole(t *testing.T) {
	p, addr := echoProxy(t)
	p.SetDelay("a", "s", time.Millisecond, time.Millisecond)
	p.SetLoss("s", "a", 1000)
	c := dial(t, "a", addr)
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != string(sent) {
		t.Errorf("%d of %d bytes came back, equal %v: %v", len(got), len(sent), string(got) == string(sent), err)
	}
	if n := p.Counters(); n.Connections != 1 || n.Delayed == 0 || n.Pieces < 2*len(sent)/pieceBytes {
		t.Errorf("counters %+v", n)
	}
}

func TestADelayIsForOneDirectionOfOnePair(t *testing.T) {
	p, addr := echoProxy(t)
	const late = 150 * time.Millisecond
	a, b := dial(t, "a", addr), dial(t, "b", addr)
	p.SetDelay("s", "a", late, 0)
	if took := ask(t, a, "x"); took < late {
		t.Errorf("a waited %v, want %v", took, late)
	}
	ask(t, b, "x")
	if n := p.Counters().Delayed; n != 1 {
		t.Errorf("%d pieces were late, also one of b, whom the delay is not for", n)
	}
	p.SetDelay("a", "s", late, 0)
	if took := ask(t, a, "x"); took < 2*late {
		t.Errorf("a waited %v, want %v", took, 2*late)
	}
	p.Heal()
	ask(t, a, "x")
	if n := p.Counters().Delayed; n != 3 {
		t.Errorf("%d pieces counted as late, want 3, and none after all was healed", n)
	}
}

func TestALostPieceIsRetransmitted(t *testing.T) {
	p, addr := echoProxy(t)
	c := dial(t, "a", addr)
	p.SetLoss("a", "s", LossAll)
	healed := make(chan struct{})
	go func() {
		defer close(healed)
		for p.Counters().Stalls == 0 {
			time.Sleep(time.Millisecond)
		}
		p.SetLoss("a", "s", 0)
	}()
	took := ask(t, c, "x")
	<-healed
	// On a busy machine it is lost more than once.
	if n := p.Counters().Stalls; took < time.Duration(n)*rtoMin {
		t.Errorf("it took %v with %d stalls, want %v at least for each", took, n, rtoMin)
	}
}

func TestResetBreaksConnectionsOfThePair(t *testing.T) {
	p, addr := echoProxy(t)
	a, b := dial(t, "a", addr), dial(t, "b", addr)
	ask(t, a, "x")
	ask(t, b, "x")
	if n := p.Reset("a", Any); n != 1 {
		t.Errorf("%d connections were reset, want 1", n)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a reads %v, want a reset", err)
	}
	ask(t, b, "still here")
	if n := p.Counters(); n.Resets != 1 || n.Connections != 2 {
		t.Errorf("counters %+v", n)
	}
}

func TestAServerThatIsGoneResets(t *testing.T) {
	p := newProxy(t)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := gone.Addr().String()
	gone.Close()
	addr, err := p.TCP("s", "127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", addr)
	if err == nil { // the reset may come that early
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	if n := p.Counters().Unreachable; n != 1 {
		t.Errorf("%d unreachable, want 1", n)
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	p := New(members, 1)
	addr, err := p.TCP("s", "127.0.0.1:0", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, "a", addr)
	ask(t, c, "x")
	p.SetDelay(Any, Any, time.Hour, 0)
	if _, err := c.Write([]byte("never seen")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if _, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		t.Error("it still listens")
	}
	if _, err := p.TCP("s", "127.0.0.1:0", addr); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed proxy listens: %v", err)
	}
}

// packets is a UDP server behind a proxy, and a client of it.
func packets(t *testing.T, p *Proxy) (server, client net.PacketConn, to net.Addr) {
	t.Helper()
	listen := func(addr string) net.PacketConn {
		c, err := net.ListenPacket("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	server, client = listen("127.0.0.1:0"), listen(members["a"]+":0")
	addr, err := p.Both("s", "127.0.0.1:0", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	if to, err = net.ResolveUDPAddr("udp", addr); err != nil {
		t.Fatal(err)
	}
	return server, client, to
}

// receive waits for one packet; nil if none comes.
func receive(t *testing.T, c net.PacketConn, wait time.Duration) (data []byte, from net.Addr) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 100)
	n, from, err := c.ReadFrom(buf)
	if err != nil {
		return nil, nil
	}
	return buf[:n], from
}

func TestPacketsAreLateOrLost(t *testing.T) {
	p := newProxy(t)
	server, client, to := packets(t, p)
	send := func(c net.PacketConn, text string, to net.Addr) {
		if _, err := c.WriteTo([]byte(text), to); err != nil {
			t.Fatal(err)
		}
	}
	send(client, "ping", to)
	got, session := receive(t, server, 10*time.Second)
	if string(got) != "ping" {
		t.Fatalf("the server got %q", got)
	}
	const late = 100 * time.Millisecond
	p.SetDelay("s", "a", late, 0)
	began := time.Now()
	send(server, "pong", session)
	if got, from := receive(t, client, 10*time.Second); string(got) != "pong" || from.String() != to.String() {
		t.Errorf("the client got %q from %v, want pong from %v", got, from, to)
	}
	if took := time.Since(began); took < late {
		t.Errorf("the answer took %v, want %v", took, late)
	}
	p.SetLoss("a", "s", LossAll)
	send(client, "lost", to)
	if got, _ := receive(t, server, 100*time.Millisecond); got != nil {
		t.Errorf("the server got %q through a loss of everything", got)
	}
	if n := p.Counters(); n.Dropped != 1 || n.DatagramsLate != 1 || n.Datagrams != 3 {
		t.Errorf("counters %+v", n)
	}
}

// Members gossip through the proxies that they advertise.
func TestGossipGoesThrough(t *testing.T) {
	p := newProxy(t)
	start := func(name string, seeds ...string) (*gossip.Gossip, string) {
		bind := members[name] + ":0"
		l, err := net.Listen("tcp", bind) // a port that is free
		if err != nil {
			t.Fatal(err)
		}
		bind = l.Addr().String()
		l.Close()
		addr, err := p.Both(name, "127.0.0.1:0", bind)
		if err != nil {
			t.Fatal(err)
		}
		g, err := gossip.Start(gossip.Config{
			ClusterName: "test", Name: name, Meta: gossip.Member{Role: gossip.RoleServer, Addr: addr},
			Bind: bind, Advertise: addr, Seeds: seeds, RejoinInterval: 100 * time.Millisecond, Logger: hclog.NewNullLogger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Stop)
		return g, addr
	}
	a, addr := start("a")
	b, _ := start("b", addr)
	deadline := time.Now().Add(20 * time.Second)
	for len(a.Members()) < 2 || len(b.Members()) < 2 {
		if time.Now().After(deadline) {
			t.Fatalf("a sees %v, b sees %v", a.Members(), b.Members())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := p.Counters(); n.Connections == 0 {
		t.Errorf("nothing went through: %+v", n)
	}
}
