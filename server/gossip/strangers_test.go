package gossip

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(strings.TrimSpace(b.buf.String()), "\n")
}

// descriptors is how many files and sockets this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestAFloodOfStrangersTakesLittle: connections that say nothing, or garbage, and
// packets of garbage, from several addresses. The member keeps a bounded number of
// connections, writes a line a second, and still lets a friend join.
func TestAFloodOfStrangersTakesLittle(t *testing.T) {
	log := &lockedBuffer{}
	c := config("a")
	c.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info})
	a := run(t, c)
	before, began := descriptors(t), time.Now()
	const flood = 1000
	conns := make([]net.Conn, flood)
	for i := range conns {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i%4))}}
		conn, err := dialer.Dial("tcp", a.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
		if i%2 == 0 {
			_, _ = conn.Write([]byte("\x0agarbage")) // it may be closed already
		}
	}
	packets, err := net.Dial("udp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	for range flood {
		if _, err := packets.Write([]byte("garbage")); err != nil {
			t.Fatal(err)
		}
	}
	b := run(t, config("b", a.Addr()))
	sees(t, a, "a b")
	sees(t, b, "a b")
	// Of those that are held here, each has its other end in this process too. One that
	// was just closed there may not be known to be closed here.
	held := open(conns)
	for range 20 {
		if held <= streamsMax {
			break
		}
		time.Sleep(10 * time.Millisecond)
		held = open(conns)
	}
	if held > streamsMax {
		t.Errorf("%d connections are held, %d are allowed", held, streamsMax)
	}
	if now := descriptors(t); now > before+flood+streamsMax+64 {
		t.Errorf("%d files were open, and now %d", before, now)
	}
	a.Stop()
	seconds := int(time.Since(began)/time.Second) + 2 // and the one at the stop
	about, others := 0, 0
	for _, line := range log.lines() {
		if strings.Contains(line, "stranger") {
			about++
			var n int
			if _, rest, ok := strings.Cut(line, "others_left_out="); ok {
				_, _ = fmt.Sscan(rest, &n) // 0 if it is no number, which the sum shows
			}
			others += n
		}
	}
	if about == 0 || about > seconds {
		t.Errorf("%d lines about strangers in %d s:\n%s", about, seconds, strings.Join(log.lines(), "\n"))
	}
	if others < flood/2 {
		t.Errorf("%d are said to be left out, of %d and more", others, flood)
	}
}

// open counts the connections that the other side has not closed.
func open(conns []net.Conn) (n int) {
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond)) // it fails at the read too
		_, err := io.Copy(io.Discard, conn)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			n++
		}
	}
	return n
}

// TestAStrangerWhoSaysNothingIsClosed, in bounded time.
func TestAStrangerWhoSaysNothingIsClosed(t *testing.T) {
	a := run(t, config("a"))
	conn, err := net.Dial("tcp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * streamTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("it was not closed: %v", err)
	}
}

// TestTheAddressWithMostConnectionsPays: others keep theirs.
func TestTheAddressWithMostConnectionsPays(t *testing.T) {
	tr := &transport{open: map[netip.Addr][]*stream{}, strangers: newStrangers(hclog.NewNullLogger())}
	dial := func(host string) *stream {
		s, victim := tr.add(&remote{addr: &net.TCPAddr{IP: net.ParseIP(host), Port: 1}})
		if victim != nil {
			if got := victim.from.String(); got != "10.0.0.1" {
				t.Fatalf("a connection of %s had to go", got)
			}
			victim.Close()
		}
		return s
	}
	friend := dial("10.0.0.2")
	for range 3 * streamsMax {
		dial("10.0.0.1")
	}
	if tr.count != streamsMax || len(tr.open[friend.from]) != 1 {
		t.Errorf("%d connections, of the friend %d", tr.count, len(tr.open[friend.from]))
	}
	for _, s := range tr.all() {
		s.bytes, tr.bytes = s.bytes+1, tr.bytes+1
		s.Close()
		s.Close()
	}
	if tr.count != 0 || tr.bytes != 0 || len(tr.open) != 0 {
		t.Errorf("%d connections of %d addresses with %d bytes are left", tr.count, len(tr.open), tr.bytes)
	}
}

// TestWhatIsReadOfAllIsBounded: a message may announce megabytes before it is known
// who sends it.
func TestWhatIsReadOfAllIsBounded(t *testing.T) {
	tr := &transport{open: map[netip.Addr][]*stream{}}
	s, _ := tr.add(&remote{addr: &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 1}})
	n, err := io.Copy(io.Discard, s)
	if err != errStreamBytes || n > streamBytesMax {
		t.Errorf("%d bytes were read: %v", n, err)
	}
	s.Close()
	s, _ = tr.add(&remote{addr: &net.TCPAddr{IP: net.ParseIP("10.0.0.2"), Port: 1}})
	if _, err := s.Read(make([]byte, 1000)); err != nil {
		t.Errorf("the next one fails too: %v", err)
	}
}

// TestAReadDuringACloseLeavesNothingBehind: else a flood of connections that are closed while they are
// read would use up what all may send, for good.
func TestAReadDuringACloseLeavesNothingBehind(t *testing.T) {
	tr := &transport{open: map[netip.Addr][]*stream{}}
	s, _ := tr.add(&remote{addr: &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 1}})
	s.Close()
	if _, err := s.Read(make([]byte, 1000)); err == nil || tr.bytes != 0 {
		t.Errorf("%d bytes of a closed connection are counted: %v", tr.bytes, err)
	}
}

// remote is a connection that sends zeros for ever.
type remote struct {
	net.Conn
	addr net.Addr
}

func (r *remote) RemoteAddr() net.Addr       { return r.addr }
func (r *remote) Read(p []byte) (int, error) { return len(p), nil }
func (r *remote) Close() error               { return nil }
