package runtime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/hashicorp/go-hclog"

	"rota/agent/plan"
)

// Options says which supervisor to use and how to start it if there is none.
type Options struct {
	SuperviseOptions
	// Executable is the binary whose "supervise" command is run; empty: this one.
	Executable string
	Logger     hclog.Logger
}

// Client is a Runtime in a supervisor process, over its socket. All methods may
// be called at the same time from many goroutines.
type Client struct {
	conn net.Conn
	log  hclog.Logger
	desc Description

	writeMu sync.Mutex
	buf     []byte

	mu      sync.Mutex
	nextID  uint64
	pending map[uint64]*call
	lost    bool

	queue *exitQueue
	exits chan plan.Exit
	done  chan struct{} // closed with the connection
	quit  chan struct{} // closed by Close
	once  sync.Once
}

var _ Runtime = (*Client)(nil)

// call is a request that waits for its reply.
type call struct {
	reply *frame
	exits []plan.Exit
	done  chan struct{}
}

// Describe implements Runtime.
func (c *Client) Describe() Description { return c.desc }

// Exits implements Runtime.
func (c *Client) Exits() <-chan plan.Exit { return c.exits }

// Start implements Runtime. Errors: ErrDuplicate, ErrDeadlinePassed, ErrTooMany,
// ErrInvalidSpec, ErrStopping, ErrJournal: nothing was started; ErrLost and those
// of ctx: unknown.
func (c *Client) Start(ctx context.Context, spec Spec) error {
	if err := spec.validate(); err != nil {
		return err
	}
	_, err := c.do(ctx, &frame{Op: opStart, Spec: &spec})
	return err
}

// Kill implements Runtime.
func (c *Client) Kill(ctx context.Context, key plan.Key, reason plan.Reason) error {
	_, err := c.do(ctx, &frame{Op: opKill, Keys: []plan.Key{key}, Reason: reason})
	return err
}

// List implements Runtime.
func (c *Client) List(ctx context.Context) (running []plan.Key, ended []plan.Exit, err error) {
	got, err := c.do(ctx, &frame{Op: opList})
	if err != nil {
		return nil, nil, err
	}
	return got.reply.Keys, got.exits, nil
}

// Forget implements Runtime.
func (c *Client) Forget(ctx context.Context, keys []plan.Key) error {
	for len(keys) > 0 {
		n := min(len(keys), forgetPage)
		if _, err := c.do(ctx, &frame{Op: opForget, Keys: keys[:n]}); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// SetDeadline implements Runtime.
func (c *Client) SetDeadline(ctx context.Context, boottimeNS int64) error {
	_, err := c.do(ctx, &frame{Op: opDeadline, Deadline: boottimeNS})
	return err
}

// Stop implements Runtime.
func (c *Client) Stop(ctx context.Context) error {
	if _, err := c.do(ctx, &frame{Op: opStop}); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close implements Runtime.
func (c *Client) Close() error {
	c.once.Do(func() { close(c.quit) })
	return c.conn.Close()
}

func newClient(conn net.Conn, log hclog.Logger) *Client {
	return &Client{
		conn: conn, log: log,
		pending: make(map[uint64]*call),
		queue:   newExitQueue(),
		exits:   make(chan plan.Exit),
		done:    make(chan struct{}),
		quit:    make(chan struct{}),
	}
}

// run begins to read. Nothing else reads from then on.
func (c *Client) run(r *bufio.Reader) {
	go c.pump()
	go func() {
		err := c.read(r)
		c.mu.Lock()
		c.lost = true
		for id, p := range c.pending {
			close(p.done)
			delete(c.pending, id)
		}
		c.mu.Unlock()
		c.conn.Close()
		close(c.done)
		c.queue.close()
		c.log.Debug("supervisor connection ended", "error", err)
	}()
}

func (c *Client) read(r *bufio.Reader) error {
	for {
		f, err := readFrame(r)
		if err != nil {
			return err
		}
		switch f.Op {
		case opExit:
			c.queue.push(f.Exits...)
		case opMore, opReply:
			c.answer(f)
		default:
			return fmt.Errorf("unexpected frame %q", f.Op)
		}
	}
}

func (c *Client) answer(f *frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[f.ID]
	if p == nil {
		return // its caller gave up
	}
	p.exits = append(p.exits, f.Exits...)
	if f.Op == opReply {
		p.reply = f
		delete(c.pending, f.ID)
		close(p.done)
	}
}

// pump hands ends to whoever reads Exits, at that one's pace, so that replies
// are not held up by it.
func (c *Client) pump() {
	defer close(c.exits)
	for {
		e, ok := c.queue.pop()
		if !ok {
			return
		}
		select {
		case c.exits <- e:
		case <-c.quit:
			return
		}
	}
}

func (c *Client) do(ctx context.Context, f *frame) (*call, error) {
	p := &call{done: make(chan struct{})}
	c.mu.Lock()
	if c.lost {
		c.mu.Unlock()
		return nil, ErrLost
	}
	c.nextID++
	f.ID = c.nextID
	c.pending[f.ID] = p
	c.mu.Unlock()
	if err := c.send(f); err != nil {
		c.mu.Lock()
		delete(c.pending, f.ID)
		c.mu.Unlock()
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.pending, f.ID)
		c.mu.Unlock()
		return nil, ctx.Err()
	}
	if p.reply == nil {
		return nil, ErrLost
	}
	return p, fromRemote(p.reply.Error)
}

func (c *Client) send(f *frame) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	b, err := appendFrame(c.buf[:0], f)
	if err != nil {
		if errors.Is(err, errFrameSize) {
			return fmt.Errorf("%w: %w", ErrInvalidSpec, err)
		}
		return err
	}
	c.buf = b
	if _, err := c.conn.Write(b); err != nil {
		c.conn.Close() // half a frame may be out
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}
