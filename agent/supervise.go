package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"rota/agent/runtime"
	"rota/api/backoff"
)

const (
	// redialMax is how long the agent goes on without a supervisor. One that
	// cannot run anything must not keep its lease, so it gives up then.
	redialMax = 30 * time.Second
	// auditEvery is how often the runtime is asked what it really runs.
	auditEvery  = 30 * time.Second
	callTimeout = 5 * time.Second
)

// errExitsClosed means that the supervisor died or dropped the connection.
var errExitsClosed = errors.New("the supervisor is gone")

// conn is a connection to a runtime.
type conn struct {
	runtime.Runtime

	mu sync.Mutex
	// deadline is the one that the runtime knows, 0 if none. Until then it starts
	// what it is told to, and will kill that if the agent does not get to it.
	deadline int64
}

func (c *conn) arm(deadline int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = deadline
}

func (c *conn) isArmed(now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now < c.deadline
}

// current returns the connection in use, nil for none.
func (a *agent) current() *conn {
	a.connMu.Lock()
	defer a.connMu.Unlock()
	return a.conn
}

func (a *agent) setCurrent(c *conn) {
	a.connMu.Lock()
	a.conn = c
	a.connMu.Unlock()
	a.table.change(func() {}) // what waited for a connection may go on
}

// connect dials the runtime and lets the table adopt what it finds there.
func (a *agent) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, redialMax)
	defer cancel()
	rt, err := a.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the supervisor: %w", err)
	}
	c := &conn{Runtime: rt}
	running, ended, err := c.List(ctx)
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("list what the supervisor runs: %w", err)
	}
	a.table.adopt(running, ended)
	if len(running)+len(ended) > 0 {
		a.log.Info("took over from the supervisor", "running", len(running), "ended", len(ended))
	}
	return c, nil
}

// supervise serves connections, one after the other, beginning with a first
// one. It returns when there is no hope of another.
func (a *agent) supervise(ctx context.Context, c *conn) error {
	for {
		a.setCurrent(c)
		err := a.serve(ctx, c)
		a.setCurrent(nil)
		_ = c.Close()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.log.Error("lost the supervisor; starting another", "error", err)
		if c, err = a.reconnect(ctx); err != nil {
			return err
		}
	}
}

func (a *agent) reconnect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, redialMax)
	defer cancel()
	pause := newRounds(10*time.Millisecond, time.Second)
	for {
		c, err := a.connect(ctx)
		if err == nil {
			return c, nil
		}
		a.log.Error("no supervisor yet; trying on", "error", err)
		if backoff.Sleep(ctx, pause.next(1)) != nil {
			return nil, fmt.Errorf("no supervisor for %v, so nothing can be run here: %w", redialMax, err)
		}
	}
}

// killFrozenSupervisor ends a supervisor that does not answer while something
// has to die. A successor is started by and by, and the first thing it does is
// to kill what was left over.
func (a *agent) killFrozenSupervisor(ctx context.Context) {
	c := a.current()
	if c == nil || c.Describe().PID == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.lease.Patience())
	defer cancel()
	// Any answer, and also a lost connection, says that it is not frozen.
	if _, _, err := c.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	pid := c.Describe().PID
	a.log.Error("the supervisor does not answer while attempts have to die; killing it", "pid", pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		a.log.Error("the supervisor cannot be killed", "pid", pid, "error", err)
	}
}

// serve takes in ends until the connection is lost.
func (a *agent) serve(ctx context.Context, c *conn) error {
	g := newGroup(ctx)
	g.Go(func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case exit, ok := <-c.Exits():
				if !ok {
					return errExitsClosed
				}
				a.table.Exited(exit)
			}
		}
	})
	g.Go(func(ctx context.Context) error { return a.pushDeadlines(ctx, c) })
	g.Go(func(ctx context.Context) error { return a.audit(ctx, c) })
	return g.Wait()
}

// pushDeadlines tells the runtime each new deadline of the lease. A runtime
// that does not answer keeps the older one, and kills earlier: that is safe.
func (a *agent) pushDeadlines(ctx context.Context, c *conn) error {
	var pushed int64
	for {
		changed := a.lease.Changed()
		deadline := a.lease.Held()
		if deadline > pushed {
			if err := c.SetDeadline(ctx, deadline); err != nil {
				return fmt.Errorf("set deadline: %w", err)
			}
			pushed = deadline
			c.arm(deadline)
			a.table.change(func() {})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// audit compares what is thought to run with what does, when somebody has
// doubts and now and then without.
func (a *agent) audit(ctx context.Context, c *conn) error {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	for force := false; ; {
		changed := a.table.wait()
		if thought, due := a.table.takeAudit(force); due {
			running, ended, err := c.List(ctx)
			if err != nil {
				return fmt.Errorf("list what the supervisor runs: %w", err)
			}
			a.table.audited(thought, running, ended)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			force = false
		case <-tick.C:
			force = true
		}
	}
}
