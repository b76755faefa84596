package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rota/agent/tier"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stoppedAt is a wall clock that a test moves.
type stoppedAt struct {
	mu  sync.Mutex
	now time.Time
}

func (s *stoppedAt) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *stoppedAt) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// serve starts a server and returns its address and store.
func serve(t testing.TB, o tier.Options, password string) (address string, s *tier.Store) {
	t.Helper()
	s, err := tier.Open(o)
	must(t, err)
	l, err := Listen("127.0.0.1:0")
	must(t, err)
	serving(t, &Server{Store: s, Password: password}, l)
	return l.Addr().String(), s
}

// serving serves until the test ends.
func serving(t testing.TB, server *Server, l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("served until %v", err)
		}
		must(t, server.Store.Close())
	})
}

func memory() tier.Options { return tier.Options{MemoryBytes: 8 << 20} }

// session sends everything and returns what comes back until the server closes.
func session(t testing.TB, address, request string) string {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	must(t, err)
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	_, err = io.WriteString(nc, request+"QUIT\r\n")
	must(t, err)
	reply, err := io.ReadAll(nc)
	must(t, err)
	return strings.TrimSuffix(string(reply), "+OK\r\n")
}

// say is a command as an array.
func say(args ...string) string {
	b := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		b += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

func TestCommands(t *testing.T) {
	c := &stoppedAt{now: time.Unix(1_700_000_000, 0)}
	o := memory()
	o.Now = c.Now
	address, _ := serve(t, o, "")
	for _, line := range []struct{ command, want string }{
		{"PING", "+PONG"},
		{"ping hi", "$2|hi"},
		{"SELECT 0", "+OK"},
		{"SELECT 1", "-ERR DB index is out of range"},
		{"CLIENT SETNAME me", "+OK"},
		{"CLIENT SETINFO LIB-NAME x", "+OK"},
		{"CLIENT KILL", "-ERR unknown subcommand or wrong number of arguments for 'KILL'. Try CLIENT HELP."},
		{"COMMAND", "*0"},
		{"CONFIG GET appendonly", "*2|$10|appendonly|$2|no"},
		{"CONFIG SET save x", "-ERR unknown subcommand or wrong number of arguments for 'SET'. Try CONFIG HELP."},
		{"GET a", "$-1"},
		{"SET a 1", "+OK"},
		{"GET a", "$1|1"},
		{"SET a 2 NX", "$-1"},
		{"SET b 2 XX", "$-1"},
		{"SET a 22 XX PX 5000", "+OK"},
		{"PTTL a", ":5000"},
		{"TTL a", ":5"},
		{"SET a 3 NX XX", "-ERR syntax error"},
		{"SET a 3 EX", "-ERR syntax error"},
		{"SET a 3 EX x", "-ERR value is not an integer or out of range"},
		{"SET a 3 EX 0", "-ERR invalid expire time in 'set' command"},
		{"SET a 3 EX 9223372036854775807", "-ERR invalid expire time in 'set' command"},
		{"STRLEN a", ":2"},
		{"STRLEN b", ":0"},
		{"SETEX c 10 three", "+OK"},
		{"TTL c", ":10"},
		{"PSETEX c 1500 three", "+OK"},
		{"PTTL c", ":1500"},
		{"TTL nothing", ":-2"},
		{"MSET d 4 e five", "+OK"},
		{"MSET d 4 e", "-ERR wrong number of arguments for 'mset' command"},
		{"MGET d nothing e", "*3|$1|4|$-1|$4|five"},
		{"TTL d", ":-1"},
		{"EXISTS d d e nothing", ":3"},
		{"EXPIRE d 100", ":1"},
		{"TTL d", ":100"},
		{"PEXPIRE d 100", ":1"},
		{"PTTL d", ":100"},
		{"EXPIRE nothing 100", ":0"},
		{"EXPIRE e -1", ":1"},
		{"DBSIZE", ":3"},
		{"DEL a a nothing", ":1"},
		{"UNLINK c", ":1"},
		{"SCAN 0", "*2|$1|0|*1|$1|d"},
		{"SCAN 0 MATCH x* COUNT 10", "*2|$1|0|*0"},
		{"SCAN x", "-ERR invalid cursor"},
		{"SCAN 0 COUNT 0", "-ERR syntax error"},
		{"FLUSHDB", "+OK"},
		{"DBSIZE", ":0"},
		{"AUTH secret", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"},
		{"GET", "-ERR wrong number of arguments for 'get' command"},
		{"LPUSH a b", "-ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' "},
		{"HELLO 4", "-NOPROTO unsupported protocol version"},
		{"HELLO 3 SETNAME me", "%7|$6|server|$5|redis|$7|version|$5|7.0.0|$4|mode|$10|standalone|$4|role|$6|master|$5|proto|:3|$2|id|:ID|$7|modules|*0"},
	} {
		got := session(t, address, say(strings.Fields(line.command)...))
		got = strings.TrimSuffix(strings.ReplaceAll(got, "\r\n", "|"), "|")
		if _, id, ok := strings.Cut(got, "|$2|id|:"); ok {
			id, _, _ = strings.Cut(id, "|")
			got = strings.Replace(got, "|id|:"+id, "|id|:ID", 1)
		}
		if got != line.want {
			t.Errorf("%s: %q, want %q", line.command, got, line.want)
		}
	}
	if got := session(t, address, say("SET", "k", "v", "EX", "7")+say("HELLO", "3")+say("GET", "x")); !strings.HasSuffix(got, "_\r\n") {
		t.Errorf("a miss in RESP3: %q", got)
	}
	c.advance(7 * time.Second)
	if got := session(t, address, say("GET", "k")); got != "$-1\r\n" {
		t.Errorf("after its time: %q", got)
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"*", "any/thing\n", true}, {"a*c", "abbc", true}, {"a*c", "abbd", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"a[bx]c", "abc", true}, {"a[^b]c", "abc", false}, {"a[a-c]c", "abc", true}, {`a\*c`, "a*c", true}, {`a\*c`, "abc", false},
		{"a.c", "abc", false}, {"a[", "a[", false}, {"[[]", "[", true}, {"ab", "abc", false}, {"é*", "été", true}, {"*\xff", "a\xff", true},
		{"*a*b*c", "xaybzbzc", true}, {"*a*b", "xayc", false}, {"", "", true}, {"**", "", true}, {"?", "", false},
	} {
		if got := glob(c.pattern, c.key); got != c.want {
			t.Errorf("%q and %q: %v", c.pattern, c.key, got)
		}
	}
}

func TestLargeValuesAndPipelines(t *testing.T) {
	address, s := serve(t, tier.Options{MemoryBytes: 16 << 20, Dir: t.TempDir(), DiskBytes: 64 << 20, BootID: "boot"}, "")
	var request, want strings.Builder
	for i, n := range []int{0, 1, 16 << 10, 100_000, 1 << 20, 4 << 20} {
		value := strings.Repeat(fmt.Sprint(i), n)
		request.WriteString(say("SET", fmt.Sprint(i), value) + say("GET", fmt.Sprint(i)) + say("PING"))
		fmt.Fprintf(&want, "+OK\r\n$%d\r\n%s\r\n+PONG\r\n", n, value)
	}
	done := make(chan string)
	nc, err := net.Dial("tcp", address)
	must(t, err)
	defer nc.Close()
	go func() {
		b, _ := io.ReadAll(nc)
		done <- string(b)
	}()
	_, err = io.WriteString(nc, request.String()+"QUIT\r\n")
	must(t, err)
	if got := <-done; got != want.String()+"+OK\r\n" {
		t.Errorf("%d bytes, want %d, and equal ones", len(got), want.Len())
	}
	var keys []string
	for i := range 60 {
		v, err := s.NewValue(1 << 20)
		must(t, err)
		copy(v.Bytes(), strings.Repeat(string(rune(i)), 1<<20))
		_, err = s.Set(fmt.Sprint("m", i), v, time.Time{}, tier.Always)
		must(t, err)
		if i < 20 {
			keys = append(keys, fmt.Sprint("m", i))
		}
	}
	got := session(t, address, say(append([]string{"MGET"}, keys...)...))
	for i := range keys {
		if !strings.Contains(got, "\r\n"+strings.Repeat(string(rune(i)), 1<<20)+"\r\n") {
			t.Errorf("value %d is not in the answer to MGET", i)
		}
	}
	if s.Stat().DiskHits == 0 {
		t.Error("nothing came from disk")
	}
}

// A client that gets an answer before it has sent the rest of the next command.
func TestAnAnswerDoesNotWaitForTheNextCommand(t *testing.T) {
	address, _ := serve(t, memory(), "")
	nc, err := net.Dial("tcp", address)
	must(t, err)
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	_, err = io.WriteString(nc, "PING\r\n*2\r\n$3\r\nGE")
	must(t, err)
	r := bufio.NewReader(nc)
	if line, err := r.ReadString('\n'); line != "+PONG\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, err = io.WriteString(nc, "T\r\n$1\r\na\r\n")
	must(t, err)
	if line, err := r.ReadString('\n'); line != "$-1\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// An answer of any length takes little of the heap, also if its parts are small.
func TestLongAnswersAreWrittenAsTheyCome(t *testing.T) {
	s, err := tier.Open(memory())
	must(t, err)
	defer s.Close()
	server := &Server{Store: s, conns: map[*conn]struct{}{}, ioMax: ioMax}
	value := strings.Repeat("v", writeAt/4-1)
	mget, setup := []string{"MGET"}, say("SET", "key", value)
	for range 5000 {
		mget = append(mget, "key")
	}
	for i := range 20 {
		setup += say("SET", fmt.Sprintf("%0*d", tier.KeyBytesMax, i), "")
	}
	for name, request := range map[string]string{"MGET": say(mget...), "SCAN": say("SCAN", "0", "COUNT", "100")} {
		w := &wire{in: []byte(setup + request)}
		c := server.add(w)
		c.serve()
		if cap(c.out) > 4*writeAt || w.written < 300_000 {
			t.Errorf("%s: %d bytes of the heap for %d that were written", name, cap(c.out), w.written)
		}
	}
}

// Nor does one to a client that has gone.
func TestLongAnswersToNobody(t *testing.T) {
	s, err := tier.Open(memory())
	must(t, err)
	defer s.Close()
	server := &Server{Store: s, conns: map[*conn]struct{}{}, ioMax: ioMax}
	setup := ""
	for i := range 20 {
		setup += say("SET", fmt.Sprintf("%0*d", tier.KeyBytesMax, i), "")
	}
	server.add(&wire{in: []byte(setup)}).serve()
	c := server.add(&wire{in: []byte(say("SCAN", "0", "COUNT", "100")), refuse: io.ErrClosedPipe})
	if c.serve(); cap(c.out) > 3*writeAt {
		t.Errorf("%d bytes of the heap", cap(c.out))
	}
}

// MGET reads no more values for a client that has gone.
func TestAClientThatLeavesAnAnswer(t *testing.T) {
	s, err := tier.Open(memory())
	must(t, err)
	defer s.Close()
	server := &Server{Store: s, conns: map[*conn]struct{}{}, ioMax: ioMax}
	mget := []string{"MGET"}
	for range 5000 {
		mget = append(mget, "key")
	}
	server.add(&wire{in: []byte(say("SET", "key", strings.Repeat("v", writeAt)) + say(mget...)), refuse: io.ErrClosedPipe}).serve()
	if hits := s.Stat().MemoryHits; hits > 3*readAhead {
		t.Errorf("%d values were read", hits)
	}
}

// A client that begins a command has to end it. One that begins none may wait.
func TestAClientThatStalls(t *testing.T) {
	s, err := tier.Open(memory())
	must(t, err)
	l, err := Listen("127.0.0.1:0")
	must(t, err)
	serving(t, &Server{Store: s, ioMax: 50 * time.Millisecond}, l)
	idle, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer idle.Close()
	for _, begun := range []string{"*", "*3\r\n$3\r\nSET\r\n$1\r\n", "GET", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nab"} {
		nc, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		_, err = io.WriteString(nc, begun)
		must(t, err)
		if _, err := io.ReadAll(nc); err != nil {
			t.Errorf("%q is waited for: %v", begun, err)
		}
		_ = nc.Close()
	}
	_ = idle.SetDeadline(time.Now().Add(time.Minute))
	_, err = io.WriteString(idle, "PING\r\n")
	must(t, err)
	if line, err := bufio.NewReader(idle).ReadString('\n'); line != "+PONG\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	if st := s.Stat(); st.MemoryBytes != 0 {
		t.Errorf("memory is held: %+v", st)
	}
}

func TestRefusals(t *testing.T) {
	address, s := serve(t, memory(), "")
	for name, c := range map[string]struct{ request, want string }{
		"too large a value": {say("SET", "a", strings.Repeat("x", 2<<20+1)) + say("PING"), "-ERR value of 2097153 bytes: larger than the limit of 2097152\r\n+PONG\r\n"},
		"too long a key":    {say("GET", strings.Repeat("x", tier.KeyBytesMax+1)) + say("PING"), "-ERR argument of 16385 bytes"},
		"a huge bulk":       {"*2\r\n$3\r\nGET\r\n$99999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"a negative bulk":   {"*2\r\n$3\r\nGET\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"too many":          {"*99999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		"no bulk":           {"*2\r\n:3\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"},
		"a wrong end":       {"*1\r\n$4\r\nPINGxx", "-ERR Protocol error: an argument does not end where it should\r\n"},
		"an inline value":   {"SET a b\r\nPING\r\n", "-ERR values are not taken inline; send the command as an array\r\n+PONG\r\n"},
		"more than memory": {say("MSET", "a", strings.Repeat("a", 2<<20), "b", strings.Repeat("b", 2<<20), "c", strings.Repeat("c", 2<<20),
			"d", strings.Repeat("d", 2<<20)) + say("PING"), "-OOM command not allowed when used memory > 'maxmemory'.\r\n+PONG\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("tcp", address)
			must(t, err)
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(time.Minute))
			_, err = io.WriteString(nc, c.request)
			must(t, err)
			got := make([]byte, len(c.want))
			if _, err := io.ReadFull(nc, got); err != nil || string(got) != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	if st := s.Stat(); st.Keys != 0 || st.MemoryBytes != 0 {
		t.Errorf("something was kept: %+v", st)
	}
}

func TestAPassword(t *testing.T) {
	address, s := serve(t, memory(), "secret")
	got := session(t, address, say("GET", "a")+say("SET", "a", "b")+say("AUTH", "wrong")+say("HELLO", "2")+
		say("AUTH", "secret")+say("SET", "a", "b")+say("GET", "a"))
	want := []string{"-NOAUTH", "-NOAUTH", "-WRONGPASS", "-NOAUTH", "+OK", "+OK", "$1", "b", ""}
	lines := strings.Split(got, "\r\n")
	for i := range want {
		if len(lines) != len(want) || !strings.HasPrefix(lines[i], want[i]) {
			t.Fatalf("%q, want %q", lines, want)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fields, err := Info(ctx, address, "secret")
	must(t, err)
	if fields["keys"] != "1" || fields["unique_bytes"] != "1" || fields["disk"] != tier.DiskNone || s.Len() != 1 {
		t.Errorf("%v", fields)
	}
	if _, err := Info(ctx, address, ""); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
}

func TestWhereItListens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.org:0", "127.0.0.1", "unix:"} {
		if l, err := Listen(address); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", address, err)
			if err == nil {
				l.Close()
			}
		}
	}
	l, err := Listen("unix:" + path)
	must(t, err)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", st.Mode(), err)
	}
	if _, err := Listen("unix:" + path); err == nil {
		t.Error("two listen on one socket")
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as after kill -9
	must(t, l.Close())
	l, err = Listen("unix:" + path)
	must(t, err)
	must(t, l.Close())
	must(t, os.WriteFile(path, nil, 0o600))
	if _, err := Listen("unix:" + path); err == nil {
		t.Error("a file was replaced")
	}
}

// FuzzCommands gives a server arbitrary bytes. It must end, hold no memory then, and
// still answer.
func FuzzCommands(f *testing.F) {
	s, err := tier.Open(memory())
	must(f, err)
	server := &Server{Store: s, conns: map[*conn]struct{}{}}
	f.Add([]byte(say("SET", "a", "b", "EX", "5") + say("GET", "a") + "PING\r\n" + say("MSET", "a", "b", "c", "d")))
	f.Add([]byte(say("SCAN", "0", "MATCH", "a[b-c]*?", "COUNT", "5") + say("HELLO", "3", "AUTH", "default", "x") + say("INFO")))
	f.Add([]byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$99999999\r\nshort"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s.Clear()
		w := &wire{in: data}
		server.add(w).serve()
		server.conns = map[*conn]struct{}{}
		s.Clear()
		if st := s.Stat(); st.MemoryBytes != 0 || st.Keys != 0 {
			t.Fatalf("memory is held: %+v", st)
		}
	})
}

// wire is a connection that gives bytes and takes any.
type wire struct {
	net.Conn
	in      []byte
	written int
	refuse  error // of writes
}

func (w *wire) Read(b []byte) (int, error) {
	if len(w.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, w.in)
	w.in = w.in[n:]
	return n, nil
}

func (w *wire) Write(b []byte) (int, error) {
	if w.refuse != nil {
		return 0, w.refuse
	}
	w.written += len(b)
	return len(b), nil
}

func (w *wire) Close() error                     { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
