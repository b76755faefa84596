package agent

import (
	"context"
	"sync"

	"github.com/hashicorp/go-hclog"

	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
)

// homes tells the supervisor which trajectories are open on the node, so that it removes the
// directories of the others.
type homes struct {
	log  hclog.Logger
	conn func() runtime.Runtime

	mu sync.Mutex
	// open is what a server said last, and what it has assigned attempts of or named the sandboxes of
	// since. A start may overtake a list that does not have its trajectory yet.
	open map[uint64]bool // nil: no server has said anything
	// used are trajectories whose files a server asked for, by the index of the state that it
	// saw them open in. An older list may not have them yet.
	used map[uint64]uint64
	// changed and ended hold one mark each when something may have to be removed, for keep and for sandboxes.
	changed, ended chan struct{}
	refused        bool // the supervisor's error is logged
}

func newHomes(log hclog.Logger, conn func() runtime.Runtime) *homes {
	return &homes{log: log, conn: conn, used: map[uint64]uint64{}, changed: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
}

// told takes in a message of the newest incarnation.
func (h *homes) told(m *rotav1.WatchNodeResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := m.GetOpenTrajectories()
	if list != nil {
		h.open = make(map[uint64]bool, len(list.GetIds()))
		for _, id := range list.GetIds() {
			h.open[id] = true
		}
		for id, index := range h.used {
			if h.open[id] = h.open[id] || index > m.GetIndex(); index <= m.GetIndex() {
				delete(h.used, id)
			}
		}
	}
	if h.open == nil {
		return
	}
	for _, as := range m.GetAssignments() {
		if id := as.GetTrajectoryId(); id != 0 {
			h.open[id] = true
		}
	}
	for _, d := range m.GetSandboxes() {
		h.open[d.GetTrajectoryId()] = true
	}
	if list != nil {
		h.sweep()
	}
}

// sweep has the directories and sandboxes of trajectories removed that are not open.
func (h *homes) sweep() {
	for _, mark := range []chan struct{}{h.changed, h.ended} {
		select {
		case mark <- struct{}{}:
		default:
		}
	}
}

// uses notes that a trajectory was open in the state of an index.
func (h *homes) uses(trajectory, index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used[trajectory] = max(h.used[trajectory], index)
	if h.open != nil {
		h.open[trajectory] = true
	}
}

// isOpen reports whether a trajectory is open, as far as this agent was told.
func (h *homes) isOpen(id uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[id]
}

func (h *homes) list() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]uint64, 0, len(h.open))
	for id, open := range h.open {
		if open {
			ids = append(ids, id)
		}
	}
	return ids
}

// keep tells the supervisor until the context ends. What fails is repeated with the next list.
func (h *homes) keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.changed:
		}
		conn := h.conn()
		if conn == nil {
			continue
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := conn.KeepTrajectories(call, h.list())
		cancel()
		if err != nil && ctx.Err() == nil && !h.refused {
			h.refused = true
			h.log.Warn("the supervisor cannot remove the directories of closed trajectories", "error", err)
		}
	}
}
