package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	dialTimeout = 3 * time.Second
	// idleMax is how long a connection to a worker waits for the next request. Engines close
	// theirs after five seconds.
	idleMax = 3 * time.Second
	// idleConnections of a worker are kept at most.
	idleConnections = 1024
	// headerBytesMax bounds the header of a worker's answer.
	headerBytesMax = 256 << 10
)

var (
	errURL = errors.New("not the URL of an engine")
	// errStale: a connection that was used before was closed before any of an answer came. An
	// engine closes idle connections, so the request goes over another one.
	errStale = errors.New("the connection was closed while it was idle")
)

// pool are the connections to one worker. They speak HTTP/1.1, as engines do.
type pool struct {
	addr, host, base string
	tls              *tls.Config

	mu     sync.Mutex
	idle   []*conn // the newest last
	closed bool
	// sweeper closes what is idle for too long. It is set while there are idle connections.
	sweeper *time.Timer
}

// newPool returns the connections for a URL such as http://10.0.0.7:8000.
func newPool(text string, roots *tls.Config) (*pool, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%q is %w: register the worker with one such as http://10.0.0.7:8000", text, errURL)
	}
	p := &pool{addr: u.Host, host: u.Host, base: strings.TrimSuffix(u.EscapedPath(), "/")}
	if u.Port() == "" {
		p.addr = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	if u.Scheme == "https" {
		p.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		if roots != nil {
			p.tls = roots.Clone()
		}
		p.tls.ServerName, p.tls.NextProtos = u.Hostname(), []string{"http/1.1"}
	}
	return p, nil
}

// conn is one connection. Only the goroutine of a request uses it; another one may close it.
type conn struct {
	net.Conn
	br   *bufio.Reader
	used bool // for a request before
	// left is how many bytes may still be read; of a header only so many.
	left  int64
	since time.Time // when it became idle
}

// Read is what the buffer is filled with.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the header of the answer has more than %d KiB", headerBytesMax>>10)
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// get returns an idle connection, or a new one.
func (p *pool) get(ctx context.Context, fresh bool) (*conn, error) {
	for !fresh {
		c := p.pop()
		if c == nil {
			break
		}
		if time.Since(c.since) < idleMax {
			return c, nil
		}
		c.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, err
	}
	if p.tls != nil {
		secure := tls.Client(raw, p.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		raw = secure
	}
	c := &conn{Conn: raw}
	c.br = bufio.NewReaderSize(c, 16<<10)
	return c, nil
}

func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c
}

// put keeps a connection whose answer was read to its end.
func (p *pool) put(c *conn) {
	c.used, c.since = true, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= idleConnections || c.br.Buffered() > 0 {
		c.Close()
		return
	}
	if p.idle = append(p.idle, c); len(p.idle) > 1 {
		return
	}
	if p.sweeper == nil {
		p.sweeper = time.AfterFunc(idleMax, p.sweep)
	} else {
		p.sweeper.Reset(idleMax)
	}
}

// sweep closes the connections that were idle for too long: their engines have closed them as well.
func (p *pool) sweep() {
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && time.Since(p.idle[n].since) >= idleMax {
		n++
	}
	old := slices.Clone(p.idle[:n])
	if p.idle = slices.Delete(p.idle, 0, n); len(p.idle) > 0 {
		p.sweeper.Reset(idleMax - time.Since(p.idle[0].since))
	}
	p.mu.Unlock()
	for _, c := range old { // over TLS this may take a while
		c.Close()
	}
}

// close closes what is idle, and what becomes idle from now on.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.Close()
	}
	if p.idle = nil; p.sweeper != nil {
		p.sweeper.Stop()
	}
}

var postRequest = &http.Request{Method: http.MethodPost}

// exchange sends a whole request and reads the header of its answer.
func (c *conn) exchange(message []byte) (*http.Response, error) {
	c.left = headerBytesMax
	if _, err := c.Write(message); err != nil {
		return nil, c.stale(err)
	}
	if _, err := c.br.Peek(1); err != nil {
		return nil, c.stale(err)
	}
	for {
		resp, err := http.ReadResponse(c.br, postRequest)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			c.left = math.MaxInt64
			return resp, nil
		}
	}
}

// stale says that nothing came on a connection that was used before.
func (c *conn) stale(err error) error {
	if c.used {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("no answer: %w", io.ErrUnexpectedEOF)
	}
	return err
}
