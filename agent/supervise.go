package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/api/backoff"
)

// redialMax is how long the agent goes on without a supervisor. One that
// cannot run anything must not keep its lease, so it gives up then.
const redialMax = 30 * time.Second

// connection is a runtime, and what it was found to run and to have run.
type connection struct {
	runtime.Runtime
	running []plan.Running
	ended   []plan.Exit
}

// connect dials the runtime and asks what it runs. A supervisor that dies in between is
// followed by another.
func (a *agent) connect(ctx context.Context) (c connection, err error) {
	ctx, cancel := context.WithTimeout(ctx, redialMax)
	defer cancel()
	for c.Runtime == nil {
		if c.Runtime, err = a.dial(ctx); err != nil {
			return c, fmt.Errorf("connect to the supervisor: %w", err)
		}
		c.running, c.ended, err = c.List(ctx)
		if err == nil {
			break
		}
		_ = c.Close()
		if c.Runtime = nil; !errors.Is(err, runtime.ErrLost) {
			return c, fmt.Errorf("list what the supervisor runs: %w", err)
		}
	}
	if len(c.running)+len(c.ended) > 0 {
		a.log.Info("took over from the supervisor", "running", len(c.running), "ended", len(c.ended))
	}
	return c, nil
}

// supervise serves connections, one after the other, beginning with a first
// one. It returns when there is no hope of another.
func (a *agent) supervise(ctx context.Context, c connection) error {
	for {
		found := a.engines.Connected(enginesOf(c.running, c.ended))
		running, ended := withoutEngines(c.running, c.ended)
		a.driver.connect(c.Runtime, func(p *plan.Plan, now int64) {
			p.Connected(running, ended, c.Describe().Resizes, now)
			found(a.driver.engines, now)
		})
		a.takeEnds(ctx, c)
		a.driver.connect(nil, func(p *plan.Plan, _ int64) { p.Disconnected() })
		_ = c.Close()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.log.Error("lost the supervisor; starting another")
		var err error
		if c, err = a.reconnect(ctx); err != nil {
			return err
		}
	}
}

// takeEnds takes in ends until the connection is lost.
func (a *agent) takeEnds(ctx context.Context, c connection) {
	for {
		select {
		case <-ctx.Done():
			return
		case exit, ok := <-c.Exits():
			if !ok {
				return
			}
			if exit.Key.Engine() {
				a.engines.Exited(exit)
				continue
			}
			a.driver.tell(func(p *plan.Plan, _ int64) { p.Exited(exit) })
		}
	}
}

func (a *agent) reconnect(ctx context.Context) (connection, error) {
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
			return c, fmt.Errorf("no supervisor for %v, so nothing can be run here: %w", redialMax, err)
		}
	}
}

// killFrozenSupervisor ends a supervisor that does not answer while something
// has to die, whether the agent is connected to it or not. A successor is started
// by and by, and the first thing it does is to kill what was left over.
func (a *agent) killFrozenSupervisor(ctx context.Context, within time.Duration) {
	switch pid, err := runtime.KillFrozen(ctx, a.cfg.Process.Dir, within); {
	case err != nil:
		a.log.Error("a supervisor that may stand still while attempts have to die was not killed; trying on", "error", err)
	case pid != 0:
		a.log.Error("the supervisor does not answer while attempts have to die; it was killed", "pid", pid)
	}
}
