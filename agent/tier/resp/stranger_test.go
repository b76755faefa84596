package resp

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"rota/agent/tier"
)

// dial connects for a minute at most.
func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	must(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	return nc
}

// exchange sends a request and wants this line.
func exchange(t testing.TB, nc net.Conn, request, want string) {
	t.Helper()
	_, err := io.WriteString(nc, request)
	must(t, err)
	if line, err := bufio.NewReader(nc).ReadString('\n'); line != want+"\r\n" {
		t.Errorf("%q, %v; want %q", line, err, want)
	}
}

// Clients without the password keep those that have it from nothing: the oldest of them goes.
func TestStrangersAreFew(t *testing.T) {
	s, err := tier.Open(memory())
	must(t, err)
	l, err := Listen("127.0.0.1:0")
	must(t, err)
	server := &Server{Store: s, Password: "secret"}
	serving(t, server, l)
	known := dial(t, l.Addr().String())
	exchange(t, known, say("AUTH", "secret"), "+OK")
	first := dial(t, l.Addr().String())
	exchange(t, first, "PING\r\n", "-NOAUTH Authentication required.")
	for range strangersMax {
		dial(t, l.Addr().String())
	}
	if rest, err := io.ReadAll(first); len(rest) != 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the oldest stranger got %q, %v", rest, err)
	}
	if n := server.clients(); n > strangersMax+1 {
		t.Errorf("%d clients", n)
	}
	exchange(t, known, "PING\r\n", "+PONG")
	exchange(t, dial(t, l.Addr().String()), say("AUTH", "secret"), "+OK")
}

// A stranger has a bounded time, whatever it sends. A client that has given the password may wait.
func TestAStrangerHasNotLong(t *testing.T) {
	s, err := tier.Open(memory())
	must(t, err)
	l, err := Listen("127.0.0.1:0")
	must(t, err)
	serving(t, &Server{Store: s, Password: "secret", ioMax: 200 * time.Millisecond}, l)
	known := dial(t, l.Addr().String())
	exchange(t, known, say("AUTH", "secret"), "+OK")
	for name, again := range map[string]string{"silent": "", "commands": "PING\r\n", "empty values": "$1\r\na\r\n$0\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			began, nc := time.Now(), dial(t, l.Addr().String())
			if name == "empty values" {
				_, _ = io.WriteString(nc, "*9\r\n$4\r\nMSET\r\n")
			}
			go func() {
				for n := 0; n < 3 || name != "empty values" && n < 1000; n++ {
					if _, err := io.WriteString(nc, again); err != nil {
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
			}()
			_, _ = io.Copy(io.Discard, nc)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it was served for %v", took)
			}
		})
	}
	exchange(t, known, "PING\r\n", "+PONG")
}

// Commands of strangers are small. They are those with which a client says who it is.
func TestAStrangerSendsLittle(t *testing.T) {
	address, _ := serve(t, memory(), "secret")
	for name, c := range map[string]struct{ request, want string }{
		"many arguments":  {say(strings.Split("MSET a b c d e f g h i j", " ")...), "-ERR Protocol error: unauthenticated multibulk length"},
		"a long argument": {"*2\r\n$3\r\nGET\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length"},
		"a large value":   {"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$99999\r\n", "-ERR Protocol error: unauthenticated bulk length"},
		"inline":          {strings.Repeat("a ", 11) + "\r\n", "-ERR Protocol error: unauthenticated inline request"},
		"all of HELLO":    {say("HELLO", "3", "AUTH", "default", "secret", "SETNAME", "me"), "%7"},
	} {
		t.Run(name, func(t *testing.T) { exchange(t, dial(t, address), c.request, c.want) })
	}
}

// A page that a browser shows can send HTTP to this machine. Its lines are no commands.
func TestHTTPIsNotServed(t *testing.T) {
	for _, password := range []string{"", "secret"} {
		address, s := serve(t, memory(), password)
		for _, request := range []string{
			"POST / HTTP/1.1\r\n", "PUT /x HTTP/1.1\r\nHost: 127.0.0.1:6380\r\n",
		} {
			nc := dial(t, address)
			_, err := io.WriteString(nc, request+"\r\n"+say("SET", "a", "b"))
			must(t, err)
			reply, _ := io.ReadAll(nc)
			if strings.Contains(string(reply), "OK") || s.Len() != 0 {
				t.Errorf("%q got %q", request, reply)
			}
		}
	}
}
