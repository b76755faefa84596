package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

const (
	// keepAlive is how often a message is sent to a node where nothing changes, so that
	// agents and servers notice dead streams.
	keepAlive = 2 * time.Second
	// wholeEvery is how many of those there are to one with the whole desired state,
	// which mends whatever an agent may have got wrong.
	wholeEvery = 15
)

// ErrBehind: this server could not catch up with the index that the agent has
// seen. Another one may be able to.
var ErrBehind = errors.New("this server is behind the registration of the node: watch at another server")

// Machine is the replicated state as dispatch reads it.
type Machine interface {
	View(func(*state.State))
	WaitApplied(ctx context.Context, index uint64) error
}

// Hub knows the streams of connected agents.
type Hub struct {
	machine   Machine
	logger    hclog.Logger
	keepAlive time.Duration
	// Trace is set before the first stream; nil: contexts are passed on as they are.
	Trace Trace

	mu      sync.Mutex
	streams map[state.NodeID]map[*stream]struct{}
}

// Trace makes the spans of an attempt that a node is told of, under the trace context of its
// action, and returns the context that the agent continues.
type Trace func(parent string, a *state.Action, t *state.Attempt) string

// New returns a hub without streams.
func New(machine Machine, logger hclog.Logger) *Hub {
	return &Hub{
		machine: machine, logger: logger, keepAlive: keepAlive,
		streams: map[state.NodeID]map[*stream]struct{}{},
	}
}

// Dirty says that the desired state of a node has changed. It does not block
// and may be called from within Apply.
func (h *Hub) Dirty(node state.NodeID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams[node] {
		s.mark()
	}
}

// Placed says that a trajectory with a container got a node. It does not block and may be called
// from within Apply.
func (h *Hub) Placed(node state.NodeID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams[node] {
		s.placed.Store(true)
		s.mark()
	}
}

// AllDirty says that anything may have changed, as after a restored snapshot.
func (h *Hub) AllDirty() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, node := range h.streams {
		for s := range node {
			s.placed.Store(true)
			s.mark()
		}
	}
}

// Connected returns how many streams there are.
func (h *Hub) Connected() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, node := range h.streams {
		n += len(node)
	}
	return n
}

// Watch sends the desired state of a node until ctx is done, send fails, or the
// node's incarnation has been given up, which is the last thing it sends.
//
// It says nothing from before minIndex, the index of the entry that registered
// the node: an older state does not know the incarnation and would fence it.
func (h *Hub) Watch(ctx context.Context, req *rotav1.WatchNodeRequest, send func(*rotav1.WatchNodeResponse) error) error {
	waiting, cancel := context.WithTimeout(ctx, h.keepAlive)
	err := h.machine.WaitApplied(waiting, req.MinIndex)
	cancel()
	if err != nil {
		return errors.Join(ErrBehind, ctx.Err())
	}
	s := &stream{machine: h.machine, trace: h.Trace, req: req, dirty: make(chan struct{}, 1)}
	id := s.nodeID()
	h.join(id, s)
	defer h.leave(id, s)
	h.logger.Debug("agent connected", "node", req.Name, "incarnation", req.Incarnation)

	tick := time.NewTicker(h.keepAlive)
	defer tick.Stop()
	ticks := 0
	for {
		msg, err := s.next()
		if err != nil {
			return err
		}
		if err := send(msg); err != nil || msg.Fenced {
			return err
		}
		select {
		case <-s.dirty:
		case <-tick.C:
			ticks++
			s.whole = ticks%wholeEvery == 0
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *Hub) join(id state.NodeID, s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[id] == nil {
		h.streams[id] = map[*stream]struct{}{}
	}
	h.streams[id][s] = struct{}{}
}

func (h *Hub) leave(id state.NodeID, s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams[id], s)
	if len(h.streams[id]) == 0 {
		delete(h.streams, id)
	}
}
