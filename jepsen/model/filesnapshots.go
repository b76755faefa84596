package model

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Snapshots of files: what is asked for, what nodes say of it, and who begins with one.

const (
	fileSnapshotsMax        = 4096
	fileSnapshotsPerNodeMax = 256
	fileSnapshotReportsMax  = 256
	fileSnapshotMessageMax  = 512
)

// fileSnapshots is what the model knows of them.
type fileSnapshots struct {
	all  map[state.FileSnapshotID]*state.FileSnapshot
	last state.FileSnapshotID
	// touched are those that the entry changed; they may be forgotten since.
	touched []state.FileSnapshotID
}

func (m *Model) snapshotCommand(c *logv1.Command, got *logv1.Result) (known bool, err error) {
	if c.GetChangeSnapshot() == nil && c.GetReportSnapshots() == nil {
		return false, nil
	}
	if m.level < levelResizing {
		return true, refused(got, "LEVEL_NOT_ACTIVE")
	}
	if c.GetReportSnapshots() != nil {
		return true, m.reportSnapshots(c.GetReportSnapshots(), got)
	}
	switch v := c.GetChangeSnapshot().Change.(type) {
	case *logv1.ChangeSnapshot_Create:
		return true, m.createSnapshot(v.Create, got)
	case *logv1.ChangeSnapshot_Delete:
		return true, m.deleteSnapshot(state.FileSnapshotID(v.Delete), got)
	}
	return true, refused(got, "INVALID")
}

func (m *Model) touchSnapshot(id state.FileSnapshotID) {
	m.snapshots.touched = append(m.snapshots.touched, id)
}

// there: the node has the snapshot, or is to have it, or had it until now.
func there(r *state.FileSnapshot) bool {
	return r.State == state.FileSnapshotCreating || r.State == state.FileSnapshotReady || r.State == state.FileSnapshotRemoving
}

func (m *Model) createSnapshot(c *logv1.CreateSnapshot, got *logv1.Result) error {
	t, ns := m.trajectories[state.TrajectoryID(c.GetTrajectoryId())], state.NamespaceID(0)
	if t != nil {
		ns = t.Namespace
	}
	if done, err := m.replayed(c.GetRequest(), ns, state.VerbCreateSnapshot, 1, got); done {
		return err
	}
	var v verdict
	v.refuse(len(c.GetName()) > nameBytesMax, "INVALID")
	v.refuse(t == nil, "TRAJECTORY_NOT_FOUND")
	v.refuse(t != nil && t.State == state.TrajectoryPending, "TRAJECTORY_PENDING")
	v.refuse(t != nil && (t.State >= state.TrajectoryClosing || t.State == state.TrajectoryOpen && m.nodeByID[t.Node].State != state.NodeUp), "TRAJECTORY_ENDED")
	var oldest *state.FileSnapshot
	onNode, ownOnNode, live, own := 0, 0, 0, 0
	for _, r := range m.snapshots.all {
		if !there(r) && (oldest == nil || r.ID < oldest.ID) {
			oldest = r
		}
		if t == nil || !there(r) {
			continue
		}
		live++
		own += oneIf(r.Namespace == ns)
		if r.Node == t.Node {
			onNode++
			ownOnNode += oneIf(r.Namespace == ns)
		}
	}
	if t != nil {
		for _, a := range t.live {
			v.refuse(a.State == state.ActionRunning, "TRAJECTORY_BUSY")
		}
	}
	full := len(m.snapshots.all) >= fileSnapshotsMax
	v.refuse(onNode >= fileSnapshotsPerNodeMax || full && oldest == nil, "TOO_MANY_SNAPSHOTS")
	v.refuse(m.takesTooMuch(fileSnapshotsPerNodeMax, onNode, ownOnNode) || m.takesTooMuch(fileSnapshotsMax, live, own), "TOO_MANY_SNAPSHOTS")
	if ok, err := v.judge(got); !ok {
		return err
	}
	if full {
		m.forgetSnapshot(oldest)
	}
	m.snapshots.last++
	r := &state.FileSnapshot{
		ID: m.snapshots.last, Namespace: t.Namespace, Node: t.Node, Trajectory: t.ID, Name: c.Name, State: state.FileSnapshotCreating,
		Container: t.Container, Spec: t.Spec, CreatedAt: m.now,
	}
	m.snapshots.all[r.ID] = r
	m.touchSnapshot(r.ID)
	m.remember(c.Request, ns, state.VerbCreateSnapshot, uint64(r.ID), 1)
	return result(got, &logv1.Result{FirstId: uint64(r.ID), Count: 1})
}

func (m *Model) forgetSnapshot(r *state.FileSnapshot) {
	m.touchSnapshot(r.ID)
	delete(m.snapshots.all, r.ID)
}

func (m *Model) deleteSnapshot(id state.FileSnapshotID, got *logv1.Result) error {
	r := m.snapshots.all[id]
	switch {
	case r == nil:
		return refused(got, "SNAPSHOT_NOT_FOUND")
	case there(r):
		r.State = state.FileSnapshotRemoving
		m.touchSnapshot(id)
	default:
		m.forgetSnapshot(r)
	}
	return result(got, &logv1.Result{FirstId: uint64(id), Count: 1})
}

func (m *Model) reportSnapshots(c *logv1.ReportSnapshots, got *logv1.Result) error {
	var v verdict
	v.refuse(len(c.Reports) > fileSnapshotReportsMax, "INVALID")
	for _, r := range c.Reports {
		v.refuse(len(r.Message) > fileSnapshotMessageMax || r.State != 2 && r.State != 3 && r.State != 5, "INVALID")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	n := m.nodes[c.Node]
	if n == nil || n.State != state.NodeUp || n.Incarnation != c.Incarnation {
		return result(got, &logv1.Result{})
	}
	for _, said := range c.Reports {
		r := m.snapshots.all[state.FileSnapshotID(said.SnapshotId)]
		if r == nil || r.Node != n.ID {
			continue
		}
		now := state.FileSnapshotState(said.State)
		switch r.State {
		case state.FileSnapshotRemoving:
			if now != state.FileSnapshotReady {
				m.forgetSnapshot(r)
			}
		case state.FileSnapshotReady:
			switch now {
			case state.FileSnapshotReady:
				r.Bytes = said.Bytes
			case state.FileSnapshotLost:
				r.State, r.EndedAt, r.Message = now, m.now, said.Message
			}
		case state.FileSnapshotCreating:
			r.State, r.EndedAt = now, m.now
			if now == state.FileSnapshotReady {
				r.Bytes = said.Bytes
			} else {
				r.Message = said.Message
			}
		}
		m.touchSnapshot(state.FileSnapshotID(said.SnapshotId))
	}
	return result(got, &logv1.Result{Count: uint32(len(c.Reports))})
}

// loseSnapshots: nothing is left of what was on a lost node.
func (m *Model) loseSnapshots(n *node) {
	for _, r := range m.snapshots.all {
		switch {
		case r.Node != n.ID || !there(r):
			continue
		case r.State == state.FileSnapshotRemoving:
			m.forgetSnapshot(r)
			continue
		}
		r.State, r.EndedAt, r.Message = state.FileSnapshotLost, m.now, "its node was lost"
		m.touchSnapshot(r.ID)
	}
}

// forks judges a trajectory that is to begin with a snapshot, and returns the node of that; nil if it
// begins with none.
func (m *Model) forks(v *verdict, ns state.NamespaceID, c *logv1.OpenTrajectory) *node {
	if c.SnapshotId == 0 {
		return nil
	}
	r := m.snapshots.all[state.FileSnapshotID(c.SnapshotId)]
	if r == nil || r.Namespace != ns {
		v.refuse(true, "SNAPSHOT_NOT_FOUND")
		return nil
	}
	v.refuse(r.State == state.FileSnapshotLost, "SNAPSHOT_LOST")
	v.refuse(r.State != state.FileSnapshotReady && r.State != state.FileSnapshotLost, "SNAPSHOT_NOT_READY")
	v.refuse(r.Container != c.Container, "INVALID")
	n, p := m.nodeByID[r.Node], m.pools[orDefault(c.Pool)]
	if n == nil || p == nil || r.State != state.FileSnapshotReady {
		return nil
	}
	v.refuse(n.pool != p, "INVALID")
	v.refuse(n.Memory < c.MemoryBytes || !n.boxes(c.Container), "UNSATISFIABLE")
	v.refuse(p.halted, "POOL_HALTED")
	v.refuse(!n.usable(), "NODE_DRAINED")
	waits := false
	for _, t := range p.pending {
		waits = waits || !t.Aside
	}
	v.refuse(n.FreeMemory < c.MemoryBytes || len(n.hosted) >= hostedMax || waits, "NODE_FULL")
	return n
}

// compareSnapshots compares those that the entry changed, and how many there are.
func (m *Model) compareSnapshots() error {
	if got := m.s.FileSnapshotCount(); got != len(m.snapshots.all) || m.s.Meta().LastFileSnapshot != m.snapshots.last {
		return fmt.Errorf("there are %d snapshots of files up to ID %d, must be %d up to %d", got, m.s.Meta().LastFileSnapshot, len(m.snapshots.all), m.snapshots.last)
	}
	for _, id := range m.snapshots.touched {
		got, want := m.s.FileSnapshot(id), m.snapshots.all[id]
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			return fmt.Errorf("snapshot %d is %+v, must be %+v", id, got, want)
		}
	}
	return nil
}
