package runtime

import (
	"context"
	"errors"
	"sync"
	"time"

	"rota/agent/plan"
)

// sandboxGrace is how long the first process of a sandbox is given to answer for an attempt that
// was killed.
const sandboxGrace = 500 * time.Millisecond

// errKilled is why an attempt was not started. Its order says more.
var errKilled = errors.New("it was killed before it started")

// killOrder says why an attempt is ended from outside.
type killOrder struct {
	reason  plan.Reason
	message string
}

// ending is whether an attempt has to end. It has a lock of its own, under which nothing waits.
type ending struct {
	killed chan struct{} // closed by the first order
	once   sync.Once
	why    killOrder
}

func newEnding() *ending { return &ending{killed: make(chan struct{})} }

// order asks for the attempt's end. The first one counts.
func (e *ending) order(o killOrder) {
	e.once.Do(func() {
		e.why = o
		close(e.killed)
	})
}

// ordered is the first order; nil: there was none.
func (e *ending) ordered() *killOrder {
	select {
	case <-e.killed:
		return &e.why
	default:
		return nil
	}
}

// within returns a context that ends so long after the first order.
func (e *ending) within(grace time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-e.killed:
		}
		select {
		case <-ctx.Done():
		case <-time.After(grace):
			cancel()
		}
	}()
	return ctx, cancel
}
