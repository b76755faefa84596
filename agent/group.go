package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// group runs goroutines that stop together: the first that returns ends the
// context of the others, and its error is the group's.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
	err    error
	// within is how long members get to return once the context has ended; 0: for ever.
	within time.Duration
}

func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Go starts one member.
func (g *group) Go(f func(context.Context) error) {
	g.wg.Go(func() { g.fail(f(g.ctx)) })
}

// fail ends the group. The first error is the group's.
func (g *group) fail(err error) {
	g.once.Do(func() { g.err = err })
	g.cancel()
}

// errStuck means that a part of the agent hangs, most likely in a call of the kernel.
var errStuck = errors.New("a part of the agent does not end: a disk or the driver of a GPU may hang")

// Wait returns when all have returned. Members that do not, though the context has ended, are left
// behind: the process is about to end.
func (g *group) Wait() error {
	all := make(chan struct{})
	go func() {
		defer close(all)
		g.wg.Wait()
		g.cancel()
	}()
	select {
	case <-all:
		return g.err
	case <-g.ctx.Done():
	}
	if ends(all, g.within) {
		return g.err
	}
	g.once.Do(func() { g.err = g.ctx.Err() }) // else it is about to be written
	return errors.Join(g.err, errStuck)
}

// ends waits for something to end, for so long at most unless that is 0.
func ends(done <-chan struct{}, within time.Duration) bool {
	if within == 0 {
		<-done
		return true
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// inTime does something that ends the agent, and reports whether it was done in time. Else it is left
// to itself: the process is about to end.
func inTime(within time.Duration, do func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	return ends(done, within)
}
