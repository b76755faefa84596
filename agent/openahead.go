package agent

import (
	"context"
	"sync"

	"github.com/hashicorp/go-hclog"

	rotav1 "rota/api/gen/rota/v1"
)

// aheadMax is how many sandboxes are opened ahead of their actions at once. It is half of what a node opens
// at once, so that the sandbox of an action that has started never waits for the queue of those.
const aheadMax = 4

// aheadOpener opens the sandboxes of trajectories that got the node, before their first actions need them.
// What fails is left to the first action, which tries again and tells its owner.
type aheadOpener struct {
	log   hclog.Logger
	homes *homes
	// open opens a sandbox that was not open before, with what the files of its trajectory begin with.
	open func(ctx context.Context, incarnation uint64, d *rotav1.DesiredSandbox) error

	mu          sync.Mutex
	incarnation uint64
	// known are the open trajectories that a server has named, due those of them whose turn has not come.
	known   map[uint64]*aheadOpening
	due     []*aheadOpening
	changed chan struct{} // holds one mark
}

// aheadOpening is one sandbox that is opened ahead.
type aheadOpening struct {
	incarnation uint64
	desired     *rotav1.DesiredSandbox
	cancel      context.CancelFunc // nil: its turn has not come
}

func newAheadOpener(log hclog.Logger, h *homes, open func(context.Context, uint64, *rotav1.DesiredSandbox) error) *aheadOpener {
	return &aheadOpener{log: log, homes: h, open: open, known: map[uint64]*aheadOpening{}, changed: make(chan struct{}, 1)}
}

// told takes in a message of the newest incarnation, after homes has. It opens each sandbox once.
func (o *aheadOpener) told(incarnation uint64, m *rotav1.WatchNodeResponse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if again := o.incarnation != incarnation; again || m.GetOpenTrajectories() != nil {
		o.incarnation = incarnation
		for id, a := range o.known {
			if again || !o.homes.isOpen(id) {
				o.drop(id, a)
			}
		}
	}
	for _, d := range m.GetSandboxes() {
		id := d.GetTrajectoryId()
		if o.known[id] != nil || d.GetContainer() == nil {
			continue
		}
		o.known[id] = &aheadOpening{incarnation: incarnation, desired: d}
		o.due = append(o.due, o.known[id])
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// drop ends the opening of a trajectory that has ended. It is called under the lock.
func (o *aheadOpener) drop(id uint64, a *aheadOpening) {
	delete(o.known, id)
	if a.cancel != nil {
		a.cancel()
	}
}

// run opens sandboxes until the context ends, in the order in which they were told.
func (o *aheadOpener) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, aheadMax)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case slots <- struct{}{}:
		}
		a, opening, err := o.next(ctx)
		if err != nil {
			return err
		}
		running.Go(func() {
			defer func() { <-slots }()
			defer a.cancel()
			o.openOne(opening, a)
		})
	}
}

// next waits for the next sandbox that is due. The context that it returns also ends when the trajectory does.
func (o *aheadOpener) next(ctx context.Context) (*aheadOpening, context.Context, error) {
	for {
		o.mu.Lock()
		for len(o.due) > 0 {
			a := o.due[0]
			o.due = o.due[1:]
			if o.known[a.desired.GetTrajectoryId()] == a {
				var opening context.Context
				opening, a.cancel = context.WithCancel(ctx)
				o.mu.Unlock()
				return a, opening, nil
			}
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-o.changed:
		}
	}
}

// openOne opens a sandbox. If its trajectory has ended meanwhile, what was made is removed: the sweep of
// the newest list may have looked before it was there.
func (o *aheadOpener) openOne(ctx context.Context, a *aheadOpening) {
	id := a.desired.GetTrajectoryId()
	if !o.homes.isOpen(id) {
		return
	}
	err := o.open(ctx, a.incarnation, a.desired)
	if !o.homes.isOpen(id) {
		o.homes.sweep()
		return
	}
	if err != nil && ctx.Err() == nil {
		o.log.Debug("a sandbox was not opened ahead; the first action of its trajectory tries again",
			"trajectory", id, "image", a.desired.GetContainer().GetImage(), "error", err)
	}
}
