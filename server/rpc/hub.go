package rpc

import (
	"context"
	"sync"

	"rota/fsm/state"
)

// hubBatch is how many events the hub reads under one view.
const hubBatch = 1024

// Hub wakes watchers when there are events for them. One goroutine looks at
// each event once; who follows a single action or turn, as most do, is woken for
// that one only.
type Hub struct {
	machine interface{ View(func(*state.State)) }
	kick    chan struct{}

	mu     sync.Mutex
	seen   uint64 // revision
	every  map[*subscriber]struct{}
	single map[subject]map[*subscriber]struct{}

	policies news
}

// subject is what events are about.
type subject struct {
	kind state.EventKind
	id   uint64
}

// subscriber is woken through a channel that holds one wake-up.
type subscriber struct {
	subject subject // without an ID: any
	wake    chan struct{}
}

// NewHub returns a hub that does nothing until Run.
func NewHub(machine interface{ View(func(*state.State)) }) *Hub {
	return &Hub{
		machine: machine, kick: make(chan struct{}, 1),
		every: map[*subscriber]struct{}{}, single: map[subject]map[*subscriber]struct{}{},
	}
}

// Notify says that there may be new events, or that the state was replaced. It
// does not block and may be called from within Apply.
func (h *Hub) Notify() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// NotifyPolicies says that a policy changed, that groups became complete, or that the state was
// replaced. It does not block and may be called from within Apply.
func (h *Hub) NotifyPolicies() { h.policies.tell() }

// news wakes all who wait for the same thing. They look at the state by themselves.
type news struct {
	mu   sync.Mutex
	next chan struct{} // nil: nothing waits
}

// wait returns a channel that is closed with the next news. What is told after the call is news.
func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// Run wakes watchers until ctx is done.
func (h *Hub) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.kick:
			for h.step() {
			}
		}
	}
}

// join registers for the events of an action, or of all with 0. Events that are
// not in the state at the first look after this will wake the subscriber.
func (h *Hub) join(action uint64) *subscriber { return h.follow(subject{state.EventAction, action}) }

// follow is join for any subject.
func (h *Hub) follow(about subject) *subscriber {
	w := &subscriber{subject: about, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	set := h.every
	if about.id != 0 {
		if h.single[about] == nil {
			h.single[about] = map[*subscriber]struct{}{}
		}
		set = h.single[about]
	}
	set[w] = struct{}{}
	return w
}

func (h *Hub) leave(w *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.every, w)
	if set := h.single[w.subject]; set != nil {
		if delete(set, w); len(set) == 0 {
			delete(h.single, w.subject)
		}
	}
}

// step looks at some events and reports whether there are more.
func (h *Hub) step() (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from, lost := h.seen, false
	var subjects []subject
	h.machine.View(func(st *state.State) {
		newest := st.Meta().Revision
		switch {
		case len(h.every) == 0 && len(h.single) == 0:
			h.seen = newest // there is no subscriber to wake
		case newest < h.seen || h.seen+1 < st.FirstRevision():
			h.seen, lost = newest, true
		default:
			subjects = h.read(st, min(newest, h.seen+hubBatch))
		}
		more = h.seen < newest
	})
	if lost {
		h.wakeAll()
		return more
	}
	if h.seen > from {
		wakeSet(h.every)
	}
	for _, about := range subjects {
		wakeSet(h.single[about])
	}
	return more
}

// read moves seen up to a revision and returns the subjects with subscribers on the
// way.
func (h *Hub) read(st *state.State, to uint64) (subjects []subject) {
	for ; h.seen < to; h.seen++ {
		e, ok := st.Event(h.seen + 1)
		if about := (subject{e.Kind, e.Subject}); ok && h.single[about] != nil {
			subjects = append(subjects, about)
		}
	}
	return subjects
}

func (h *Hub) wakeAll() {
	wakeSet(h.every)
	for _, set := range h.single {
		wakeSet(set)
	}
}

func wakeSet(set map[*subscriber]struct{}) {
	for w := range set {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}
