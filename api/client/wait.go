package client

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

// Final reports whether an action in this state has ended.
func Final(s rotav1.ActionState) bool { return s >= rotav1.ActionState_ACTION_STATE_SUCCEEDED }

// Wait returns an action when it has ended. Waiting for many at the same time
// is cheap: all share one watch of their namespace. Close ends it with an error.
func (c *Client) Wait(ctx context.Context, id uint64) (*rotav1.Action, error) {
	for {
		action, err := c.waitOnce(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("wait for action %d: %w", id, err)
		}
		if Final(action.State) {
			return action, nil
		}
	}
}

// waitOnce returns an action that has ended, or one that may have ended since.
func (c *Client) waitOnce(ctx context.Context, id uint64) (*rotav1.Action, error) {
	if c.closing.Err() != nil {
		return nil, errClosed
	}
	req := &rotav1.GetActionRequest{Id: id}
	got, err := c.Actions.GetAction(ctx, req)
	if err != nil || Final(got.Action.State) {
		return got.GetAction(), err
	}
	namespace := got.Action.Namespace
	wake, missed := c.waits.join(namespace, id, got.Revision)
	defer c.waits.leave(namespace, id, wake)
	if missed {
		if got, err = c.Actions.GetAction(ctx, req); err != nil || Final(got.Action.State) {
			return got.GetAction(), err
		}
	}
	select {
	case <-wake:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closing.Done():
		return nil, errClosed
	}
	// An end never changes, so a server that may be behind the leader will do.
	if now, err := c.Actions.GetAction(ctx, &rotav1.GetActionRequest{Id: id, AllowStale: true}); err == nil {
		return now.Action, nil
	}
	return got.Action, nil
}

// waits are the callers that wait for the end of an action, by namespace.
type waits struct {
	client *Client

	mu     sync.Mutex
	groups map[string]*waitGroup
}

// waitGroup waits for actions of one namespace. It has a watch for as long as
// it has members.
type waitGroup struct {
	stop context.CancelFunc
	// position is the revision that the watch has reached.
	position uint64
	members  map[uint64][]chan struct{} // by action
}

// join returns a channel that is closed when the action may have ended. The
// caller has seen the action live at a revision; missed says that the watch is
// past it already, so the caller must look once more before it waits.
func (w *waits) join(namespace string, id, revision uint64) (wake chan struct{}, missed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.groups[namespace]
	if g == nil {
		ctx, stop := context.WithCancel(w.client.closing)
		g = &waitGroup{stop: stop, position: revision, members: map[uint64][]chan struct{}{}}
		if w.groups == nil {
			w.groups = map[string]*waitGroup{}
		}
		w.groups[namespace] = g
		w.client.wg.Go(func() { w.follow(ctx, g, namespace, revision) })
	}
	wake = make(chan struct{})
	g.members[id] = append(g.members[id], wake)
	return wake, g.position > revision
}

// leave undoes join; after a wake there is nothing left to undo.
func (w *waits) leave(namespace string, id uint64, wake chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.groups[namespace]
	if g == nil {
		return
	}
	rest := slices.DeleteFunc(g.members[id], func(c chan struct{}) bool { return c == wake })
	if g.members[id] = rest; len(rest) == 0 {
		delete(g.members, id)
	}
	w.endIfEmpty(namespace, g)
}

// follow wakes members as events come in. When the watch ends, whatever the
// reason, all members are woken: they look for themselves and join again.
func (w *waits) follow(ctx context.Context, g *waitGroup, namespace string, after uint64) {
	req := &rotav1.WatchActionsRequest{Namespace: namespace, AfterRevision: proto.Uint64(after)}
	for event, err := range w.client.Watch(ctx, req) {
		if err != nil {
			break
		}
		w.seen(namespace, g, event)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.groups[namespace] == g {
		delete(w.groups, namespace)
	}
	for id := range g.members {
		g.wake(id)
	}
}

func (w *waits) seen(namespace string, g *waitGroup, event *rotav1.ActionEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.position = event.Revision
	if Final(event.State) {
		g.wake(event.ActionId)
		w.endIfEmpty(namespace, g)
	}
}

func (g *waitGroup) wake(id uint64) {
	for _, c := range g.members[id] {
		close(c)
	}
	delete(g.members, id)
}

// endIfEmpty ends the watch of a group without members. The next Wait starts
// another: a stream is cheap, a stream without a reader is not.
func (w *waits) endIfEmpty(namespace string, g *waitGroup) {
	if len(g.members) == 0 {
		g.stop()
		if w.groups[namespace] == g {
			delete(w.groups, namespace)
		}
	}
}
