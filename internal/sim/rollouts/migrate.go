package rollouts

import (
	"slices"

	"rota/fsm/state"
	"rota/sched/transmit"
)

// mover is the transmission scheduler between the workers of a world: package transmit decides.
type mover struct {
	w       *world
	queued  []*state.Migration
	running []*state.Migration
	nodes   []state.Node
	tracked state.Trajectory // the one that a decision is about
}

func newMover(w *world) *mover {
	m := &mover{w: w, nodes: make([]state.Node, len(w.workers))}
	for i := range m.nodes {
		m.nodes[i] = state.Node{ID: nodeOf(i), State: state.NodeUp, CacheBytes: 1}
	}
	return m
}

// nodeOf is the node of a worker: each has one of its own.
func nodeOf(worker int) state.NodeID { return state.NodeID(worker + 1) }

func trajectoryOf(r *run) state.TrajectoryID { return state.TrajectoryID(r.id + 1) }

func (m *mover) run(g *state.Migration) *run { return m.w.runs[g.Trajectory-1] }

// Node implements transmit.View.
func (m *mover) Node(id state.NodeID) *state.Node { return &m.nodes[id-1] }

// Trajectory implements transmit.View: it has an action while a tool runs.
func (m *mover) Trajectory(id state.TrajectoryID) *state.Trajectory {
	m.tracked = state.Trajectory{ID: id}
	if m.w.runs[id-1].tool {
		m.tracked.Live = 1
	}
	return &m.tracked
}

// RunningMigration implements transmit.View.
func (m *mover) RunningMigration(node state.NodeID) *state.Migration {
	i := slices.IndexFunc(m.running, func(g *state.Migration) bool { return g.Source == node || g.Target == node })
	if i < 0 {
		return nil
	}
	return m.running[i]
}

// ask queues the copy of a KV cache to another worker.
func (m *mover) ask(r *run, to int) {
	m.queued = append(m.queued, &state.Migration{
		ID: state.MigrationID(r.id + 1), Trajectory: trajectoryOf(r),
		Source: nodeOf(r.worker), Target: nodeOf(to), Length: uint64(max(0, r.predicted)),
	})
	m.start()
}

// abandon forgets a copy that has not begun when its tool has ended: the trajectory goes on
// where it is. It reports whether there was one.
func (m *mover) abandon(r *run) bool {
	n := len(m.queued)
	m.queued = slices.DeleteFunc(m.queued, func(g *state.Migration) bool { return g.Trajectory == trajectoryOf(r) })
	return len(m.queued) < n
}

// start begins all copies that may begin now.
func (m *mover) start() {
	m.queued = transmit.Order(m.queued)
	m.queued = slices.DeleteFunc(m.queued, func(g *state.Migration) bool {
		if transmit.WaitsFor(m, g).Obstacle != transmit.None {
			return false
		}
		m.running = append(m.running, g)
		r := m.run(g)
		r.moving = true
		m.w.loop.After(m.w.workers[r.worker].profile.TransferTimeNS(r.context-r.fresh), func() { m.done(g) })
		return true
	})
}

// done ends a copy: the KV cache is at the target, and the request that waits for it is sent.
func (m *mover) done(g *state.Migration) {
	m.running = slices.DeleteFunc(m.running, func(o *state.Migration) bool { return o == g })
	r, w := m.run(g), m.w
	if r.aborted {
		m.start()
		return
	}
	w.forget(w.workers[r.worker], r)
	r.worker, r.moving = int(g.Target-1), false
	w.install(w.workers[r.worker], r)
	w.result.Moves++
	w.result.Copies++
	if r.held {
		r.held = false
		w.request(r)
	}
	m.start()
}
