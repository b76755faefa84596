package agent

import (
	"context"
	"fmt"
	"time"

	"rota/agent/runtime"
	"rota/internal/failpoint"
)

// ready says that attempts may be started at this moment: the lease is held,
// and the runtime will enforce its end.
func (a *agent) ready() bool {
	c := a.current()
	return c != nil && c.isArmed(a.lease.Now()) && a.lease.Held() != 0
}

// start enters what is wanted into the journal, many attempts with one fsync,
// and hands it to the runtime.
func (a *agent) start(ctx context.Context) error {
	fatal := make(chan error, 1)
	retry := time.NewTicker(startAgain)
	defer retry.Stop()
	defer a.starting.Wait()
	for {
		changed := a.table.wait()
		if keys := a.table.toAccept(a.ready()); len(keys) > 0 {
			if err := a.journal.Accept(keys); err != nil {
				return fmt.Errorf("accept attempts: %w", err)
			}
			failpoint.Hit(failpoint.AttemptsJournaled)
			a.table.accepted(keys)
		}
		// Asked again: the lease may have ended while the journal was written.
		if c := a.current(); c != nil {
			for _, spec := range a.table.toStart(a.ready()) {
				a.starting.Go(func() { a.startOne(ctx, c, spec, fatal) })
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-fatal:
			return err
		case <-changed:
		case <-retry.C:
		}
	}
}

func (a *agent) startOne(ctx context.Context, c *conn, spec runtime.Spec, fatal chan<- error) {
	failpoint.Hit(failpoint.StartSending)
	err := c.Start(ctx, spec)
	failpoint.Hit(failpoint.StartAnswered)
	disarmed, err := a.table.started(spec.Key, err)
	if disarmed {
		c.arm(0) // until the next renewal
	}
	if err != nil {
		select {
		case fatal <- fmt.Errorf("start attempts: %w", err):
		default:
		}
	}
}

// kill ends what must not go on. It does not wait for anything else the agent
// does, nor does one kill wait for another.
func (a *agent) kill(ctx context.Context) error {
	tick := time.NewTicker(killAgain)
	defer tick.Stop()
	defer a.killing.Wait()
	for {
		changed := a.table.wait()
		if c := a.current(); c != nil {
			for _, k := range a.table.toKill() {
				a.killing.Go(func() {
					ctx, cancel := context.WithTimeout(ctx, callTimeout)
					defer cancel()
					if err := c.Kill(ctx, k.key, k.reason); err != nil && ctx.Err() == nil {
						a.log.Error("kill failed; trying on", "attempt", k.key, "error", err)
					}
				})
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-tick.C:
		}
	}
}

// tidy writes down what was reported and drops what is not needed any more. A
// confirmed report is in the journal before the runtime forgets the end, or it
// would look like a lost attempt after a restart.
func (a *agent) tidy(ctx context.Context) error {
	for {
		changed := a.table.wait()
		if todo := a.table.takeChores(); !todo.none() {
			if err := a.journal.Report(todo.reported); err != nil {
				return fmt.Errorf("note reports: %w", err)
			}
			if c := a.current(); c != nil && len(todo.forget) > 0 {
				failpoint.Hit(failpoint.ReportJournaled)
				if err := c.Forget(ctx, todo.forget); err != nil {
					a.log.Debug("the supervisor did not forget; it will be told again", "error", err)
				}
			}
			if err := a.journal.Forget(todo.done); err != nil {
				return fmt.Errorf("forget attempts: %w", err)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
