package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/internal/unixsocket"
	"rota/agent/tier"
	"rota/api/httpx"
)

const (
	// connectionsMax is how many clients are served at once.
	connectionsMax = 1024
	// ioMax is how long a client may take to send a command, or each value of it, or to read what it
	// asked for. Meanwhile it takes memory that others cannot use.
	ioMax = time.Minute
	// writeAt is how many bytes of replies are written at the latest.
	writeAt = 64 << 10
	// unixPrefix is before the path of a Unix socket.
	unixPrefix = "unix:"
)

// ErrAddress means that the address is not one to listen on.
var ErrAddress = errors.New("the cache is served on loopback or a Unix socket only, because it has no TLS; " +
	"use 127.0.0.1:6380 or unix:/path")

// Listen listens on host:port, which has to be loopback, or on unix:/path, a socket that
// only its owner can use. It fails with ErrAddress.
func Listen(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if path == "" {
			return nil, fmt.Errorf("%q: %w", unixPrefix, ErrAddress)
		}
		return unixsocket.Listen(path)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", address, ErrAddress)
	}
	if !httpx.OnLoopback(host) {
		return nil, fmt.Errorf("%q: %w", address, ErrAddress)
	}
	return net.Listen("tcp", address)
}

// Server serves one store.
type Server struct {
	Store *tier.Store
	// Password has to be given by clients; empty: none is asked for.
	Password string
	// Files says where the store can be used as files, and whether it can now; nil: nowhere.
	Files  func() (directory string, mounted bool)
	Logger hclog.Logger // nil: none

	ioMax   time.Duration // replaced in tests; 0: ioMax
	started time.Time
	mu      sync.Mutex
	nextID  int64
	conns   map[*conn]struct{}
	// strangers are those of conns that have not given the password.
	strangers map[*conn]struct{}
}

// Serve answers clients until the context ends, and closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.Logger == nil {
		s.Logger = hclog.NewNullLogger()
	}
	s.started, s.conns, s.strangers = time.Now(), map[*conn]struct{}{}, map[*conn]struct{}{}
	if s.ioMax == 0 {
		s.ioMax = ioMax
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.closeAll()
	defer l.Close()
	for {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = nc.Close()
			}
			return ctx.Err()
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // out of file descriptors, most likely
			s.Logger.Warn("a client of the cache could not be accepted", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		c := s.add(nc)
		if c == nil {
			_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = nc.Write([]byte("-ERR max number of clients reached\r\n"))
			_ = nc.Close()
			continue
		}
		wg.Go(func() {
			defer s.remove(c)
			c.serve()
		})
	}
}

func (s *Server) add(nc net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.makePlace() {
		return nil
	}
	s.nextID++
	c := &conn{server: s, store: s.Store, conn: nc, id: s.nextID, authenticated: s.Password == ""}
	c.in = bufio.NewReaderSize(c, bufferBytes)
	s.conns[c] = struct{}{}
	if !c.authenticated {
		s.strangers[c] = struct{}{}
	}
	return c
}

func (s *Server) remove(c *conn) {
	_ = c.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(c)
}

// forget takes a connection out of the account. The caller holds Server.mu.
func (s *Server) forget(c *conn) {
	delete(s.conns, c)
	delete(s.strangers, c)
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.conn.Close()
	}
}

func (s *Server) clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// conn is one client.
type conn struct {
	server        *Server
	store         *tier.Store
	conn          net.Conn
	in            *bufio.Reader
	out           []byte // replies that were not written yet
	id            int64
	name          string
	authenticated bool
	resp3         bool
	quit          bool
	err           error // of a write
}

// Read reads from the socket, after what was answered has been written: a client may wait
// for that before it goes on.
func (c *conn) Read(b []byte) (int, error) {
	if err := c.flush(); err != nil {
		return 0, err
	}
	return c.conn.Read(b)
}

func (c *conn) flush() error {
	if len(c.out) > 0 && c.err == nil {
		_ = c.conn.SetWriteDeadline(time.Now().Add(c.patience()))
		_, c.err = c.conn.Write(c.out)
	}
	c.out = c.out[:0] // also for a client that is gone, or the rest of an answer would pile up
	return c.err
}

// bound writes replies once there are many, so that no command keeps more than writeAt of them.
func (c *conn) bound() {
	if len(c.out) >= writeAt {
		_ = c.flush()
	}
}

// hurry bounds how long the rest of a command may take. A stranger gets no more time.
func (c *conn) hurry() {
	if c.authenticated {
		_ = c.conn.SetReadDeadline(time.Now().Add(c.patience()))
	}
}

// rest lets the client take its time before the next command, unless it is a stranger.
func (c *conn) rest() {
	if c.authenticated {
		_ = c.conn.SetReadDeadline(time.Time{})
	}
}

// serve answers commands until the client goes.
func (c *conn) serve() {
	if !c.authenticated {
		_ = c.conn.SetReadDeadline(time.Now().Add(c.patience()))
	}
	for !c.quit && c.err == nil {
		if _, err := c.in.Peek(1); err != nil {
			return
		}
		c.hurry()
		cmd, err := readCommand(c.in, c.limits(), c.memory)
		if refused := protocolError(""); errors.As(err, &refused) {
			c.fail("ERR " + err.Error())
			break
		}
		if err != nil {
			return
		}
		c.rest()
		if cmd == nil {
			continue
		}
		if cmd.fromBrowser() {
			cmd.release()
			break
		}
		c.run(cmd)
		cmd.release()
		c.bound()
	}
	_ = c.flush()
}

// memory is where a value is read to.
func (c *conn) memory(n uint64) (*tier.Value, error) {
	if !c.authenticated {
		return nil, errNoAuth
	}
	c.hurry()
	return c.store.NewValue(n)
}

// value answers with a value, from where it is.
func (c *conn) value(v *tier.Value) {
	if v == nil {
		c.null()
		return
	}
	b := v.Bytes()
	c.out = append(appendNumber(c.out, '$', int64(len(b))), '\r', '\n')
	if len(b) < writeAt/4 {
		c.out = append(append(c.out, b...), '\r', '\n')
		c.bound()
		return
	}
	if c.err != nil {
		return
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.server.ioMax))
	parts := net.Buffers{c.out, b, []byte("\r\n")}
	_, c.err = parts.WriteTo(c.conn)
	c.out = c.out[:0]
}
