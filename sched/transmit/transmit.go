package transmit

import (
	"slices"

	"rota/fsm/state"
)

// View is what the decision reads of the state.
type View interface {
	Node(id state.NodeID) *state.Node
	Trajectory(id state.TrajectoryID) *state.Trajectory
	// RunningMigration returns the migration that runs with a node as one of its ends.
	RunningMigration(node state.NodeID) *state.Migration
}

// Obstacle has the values of rota.v1.MigrationObstacle.
type Obstacle uint8

// Why a queued migration may not start.
const (
	// None: it may start.
	None Obstacle = iota
	NodeDown
	TargetDrains
	NoCache
	NoGap
	NodeBusy
)

// Wait is the first thing that a queued migration waits for.
type Wait struct {
	Obstacle Obstacle
	// Node is the one that it is about; 0 with NoGap and None.
	Node state.NodeID
	// Migration is the one that runs on the node, with NodeBusy.
	Migration state.MigrationID
}

// Order sorts migrations in the order in which they are considered: the longest first, and the
// oldest of those. Each is there once afterwards.
func Order(queued []*state.Migration) []*state.Migration {
	slices.SortFunc(queued, func(a, b *state.Migration) int {
		switch {
		case a.Before(b):
			return -1
		case b.Before(a):
			return 1
		}
		return 0
	})
	return slices.CompactFunc(queued, func(a, b *state.Migration) bool { return a.ID == b.ID })
}

// WaitsFor returns what a queued migration waits for, or None if it may start now. Started in
// Order, each seen by the view before the next is asked for, the migrations that run are what
// the greedy choice of Heddle gives.
func WaitsFor(v View, m *state.Migration) Wait {
	ends := [...]*state.Node{v.Node(m.Source), v.Node(m.Target)}
	for i, id := range [...]state.NodeID{m.Source, m.Target} {
		if n := ends[i]; n == nil || n.State != state.NodeUp {
			return Wait{Obstacle: NodeDown, Node: id}
		}
	}
	if ends[1].Draining {
		return Wait{Obstacle: TargetDrains, Node: m.Target}
	}
	for _, n := range ends {
		if n.CacheBytes == 0 {
			return Wait{Obstacle: NoCache, Node: n.ID}
		}
	}
	if !Gap(v, m.Trajectory) {
		return Wait{Obstacle: NoGap}
	}
	for _, n := range ends {
		if running := v.RunningMigration(n.ID); running != nil {
			return Wait{Obstacle: NodeBusy, Node: n.ID, Migration: running.ID}
		}
	}
	return Wait{}
}

// Gap reports whether nobody writes the KV cache of a trajectory: one of its actions is queued
// or runs, and its model waits for that. No trajectory, 0, has a gap always.
func Gap(v View, id state.TrajectoryID) bool {
	if id == 0 {
		return true
	}
	t := v.Trajectory(id)
	return t != nil && t.State < state.TrajectoryClosing && t.Live > 0
}
