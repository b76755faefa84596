package agent

import (
	"context"
	"sync"
)

// group runs goroutines that stop together: the first that returns ends the
// context of the others, and its error is the group's.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
	err    error
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

// Wait returns when all have returned.
func (g *group) Wait() error {
	g.wg.Wait()
	g.cancel()
	return g.err
}
