package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/place"
)

// fileSnapshotReportsMax bounds the reports of one command.
const fileSnapshotReportsMax = 256

// snapshotVerb carries out a command about snapshots of files; nil if it is none.
func (x *execution) snapshotVerb(c *logv1.Command) *logv1.Result {
	switch v := c.Verb.(type) {
	case *logv1.Command_ChangeSnapshot:
		switch change := v.ChangeSnapshot.Change.(type) {
		case *logv1.ChangeSnapshot_Create:
			return x.createSnapshot(change.Create)
		case *logv1.ChangeSnapshot_Delete:
			return x.deleteSnapshot(state.FileSnapshotID(change.Delete))
		}
		return refuse(codeInvalidArgument, "INVALID", "the command says nothing to do with a snapshot")
	case *logv1.Command_ReportSnapshots:
		return x.reportSnapshots(v.ReportSnapshots)
	}
	return nil
}

// isSnapshots: the command came with snapshots of files.
func isSnapshots(c *logv1.Command) bool {
	return c.GetChangeSnapshot() != nil || c.GetReportSnapshots() != nil || c.GetOpenTrajectory().GetSnapshotId() != 0
}

// createSnapshot asks the node of a trajectory for a snapshot of its files.
func (x *execution) createSnapshot(c *logv1.CreateSnapshot) *logv1.Result {
	t := x.s.Trajectory(state.TrajectoryID(c.GetTrajectoryId()))
	var ns *state.Namespace
	if t != nil {
		ns = x.s.Namespace(t.Namespace)
	}
	if r := x.replay(c.GetRequest(), ns, state.VerbCreateSnapshot, 1); r != nil {
		return r
	}
	if r := x.maySnapshot(t, c); r != nil {
		return r
	}
	m := *x.s.Meta()
	m.LastFileSnapshot++
	x.s.SetMeta(m)
	x.s.PutFileSnapshot(&state.FileSnapshot{
		ID: m.LastFileSnapshot, Namespace: t.Namespace, Node: t.Node, Trajectory: t.ID, Name: c.Name,
		State: state.FileSnapshotCreating, Container: t.Container, Spec: t.Spec, CreatedAt: x.now(),
	})
	x.dirtyNodes.add(t.Node)
	x.remember(c.Request, ns, state.VerbCreateSnapshot, uint64(m.LastFileSnapshot), 1)
	return &logv1.Result{FirstId: uint64(m.LastFileSnapshot), Count: 1}
}

// maySnapshot refuses a snapshot that cannot be taken, or one too many.
func (x *execution) maySnapshot(t *state.Trajectory, c *logv1.CreateSnapshot) *logv1.Result {
	switch {
	case len(c.GetName()) > nameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "the name of a snapshot must be at most %d bytes", nameBytesMax)
	case t == nil:
		return refuse(codeNotFound, "TRAJECTORY_NOT_FOUND", "trajectory %d does not exist, or ended too long ago to be kept", c.GetTrajectoryId())
	case t.State == state.TrajectoryPending:
		return refuse(codeFailedPrecondition, "TRAJECTORY_PENDING", "trajectory %d waits for a node with enough free memory; it has no files before", t.ID)
	case t.State != state.TrajectoryOpen:
		return refuse(codeFailedPrecondition, "TRAJECTORY_ENDED", "trajectory %d is not open any more, and its files go with it", t.ID)
	case x.s.Node(t.Node).State != state.NodeUp: // it is about to be ended
		return refuse(codeFailedPrecondition, "TRAJECTORY_ENDED", "trajectory %d is lost with its node %s, and so are its files", t.ID, x.s.Node(t.Node).Name)
	}
	if a := x.runningIn(t.ID); a != nil {
		return refuse(codeFailedPrecondition, "TRAJECTORY_BUSY", "action %d of trajectory %d runs, and may be writing; wait for it or cancel it, then try again", a.ID, t.ID)
	}
	return x.roomForSnapshot(t)
}

// roomForSnapshot refuses one snapshot too many, on its node or of its namespace. Of those that are
// kept, the oldest that has ended makes room.
func (x *execution) roomForSnapshot(t *state.Trajectory) *logv1.Result {
	onNode, ofOwn := 0, 0
	x.s.NodeFileSnapshots(t.Node, func(o *state.FileSnapshot) bool {
		onNode++
		if o.Namespace == t.Namespace {
			ofOwn++
		}
		return true
	})
	switch {
	case onNode >= state.FileSnapshotsPerNodeMax:
		return refuse(codeResourceExhausted, "TOO_MANY_SNAPSHOTS", "node %s has %d snapshots, which is the limit; delete some with: rota snapshot delete", x.s.Node(t.Node).Name, onNode)
	case !x.mayHaveMore(state.FileSnapshotsPerNodeMax, onNode, func() int { return ofOwn }):
		return refuse(codeResourceExhausted, "TOO_MANY_SNAPSHOTS", "node %s has %d snapshots of the namespace, and other namespaces may have the %d that are left; delete some with: rota snapshot delete",
			x.s.Node(t.Node).Name, ofOwn, state.FileSnapshotsPerNodeMax-onNode)
	}
	if live, own := x.s.LiveFileSnapshots(t.Namespace); !x.mayHaveMore(state.FileSnapshotsMax, live, func() int { return own }) {
		return refuse(codeResourceExhausted, "TOO_MANY_SNAPSHOTS", "the namespace has %d snapshots, and other namespaces may have the %d that are left; delete some with: rota snapshot delete", own, state.FileSnapshotsMax-live)
	}
	if x.s.FileSnapshotCount() < state.FileSnapshotsMax {
		return nil
	}
	if oldest, ok := x.s.OldestEndedSnapshot(); ok {
		x.s.DeleteFileSnapshot(oldest)
		return nil
	}
	return refuse(codeResourceExhausted, "TOO_MANY_SNAPSHOTS", "there are %d snapshots, which is the limit; delete some with: rota snapshot delete", state.FileSnapshotsMax)
}

// runningIn returns a running action of a trajectory, nil if there is none.
func (x *execution) runningIn(id state.TrajectoryID) (running *state.Action) {
	x.s.VisitLive(id, func(a *state.Action) bool {
		if a.State == state.ActionRunning {
			running = a
		}
		return running == nil
	})
	return running
}

// deleteSnapshot has a snapshot removed from its node, or forgets one that is not there.
func (x *execution) deleteSnapshot(id state.FileSnapshotID) *logv1.Result {
	r := x.s.FileSnapshot(id)
	switch {
	case r == nil:
		return x.snapshotNotFound(id)
	case r.State.Ended():
		x.s.DeleteFileSnapshot(id)
	case r.State != state.FileSnapshotRemoving:
		u := *r
		u.State = state.FileSnapshotRemoving
		x.s.PutFileSnapshot(&u)
		x.dirtyNodes.add(r.Node)
	}
	return &logv1.Result{FirstId: uint64(id), Count: 1}
}

func (x *execution) snapshotNotFound(id state.FileSnapshotID) *logv1.Result {
	return refuse(codeNotFound, "SNAPSHOT_NOT_FOUND", "snapshot %d does not exist; see: rota snapshot list", id)
}

// reportSnapshots takes down what an agent says of snapshots on its node. What it says of others is
// a no-op.
func (x *execution) reportSnapshots(c *logv1.ReportSnapshots) *logv1.Result {
	if len(c.Reports) > fileSnapshotReportsMax {
		return refuse(codeInvalidArgument, "INVALID", "node %q reports %d snapshots at once; at most %d are allowed", c.Node, len(c.Reports), fileSnapshotReportsMax)
	}
	for _, r := range c.Reports {
		if s := state.FileSnapshotState(r.State); len(r.Message) > state.FileSnapshotMessageBytesMax || r.State > 5 || s != state.FileSnapshotReady && !s.Ended() {
			return refuse(codeInvalidArgument, "INVALID", "the report of snapshot %d has state %d and a message of %d bytes; at most %d are allowed", r.SnapshotId, r.State, len(r.Message), state.FileSnapshotMessageBytesMax)
		}
	}
	n := x.s.NodeByName(c.Node)
	if n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp {
		return &logv1.Result{}
	}
	for _, report := range c.Reports {
		if r := x.s.FileSnapshot(state.FileSnapshotID(report.SnapshotId)); r != nil && r.Node == n.ID && !r.State.Ended() {
			x.snapshotReported(r, report)
		}
	}
	return &logv1.Result{Count: uint32(len(c.Reports))}
}

// snapshotReported changes a snapshot as its node says that it has changed.
func (x *execution) snapshotReported(r *state.FileSnapshot, report *logv1.SnapshotReport) {
	u := *r
	switch now := state.FileSnapshotState(report.State); {
	case r.State == state.FileSnapshotRemoving && now == state.FileSnapshotReady:
		return
	case r.State == state.FileSnapshotRemoving:
		x.s.DeleteFileSnapshot(r.ID)
		x.dirtyNodes.add(r.Node)
		return
	case r.State == state.FileSnapshotReady && now == state.FileSnapshotReady:
		u.Bytes = report.Bytes
	case r.State == state.FileSnapshotReady && now == state.FileSnapshotFailed:
		return
	default:
		u.State, u.EndedAt, u.Message = now, x.now(), report.Message
		if now == state.FileSnapshotReady {
			u.Bytes, u.Message = report.Bytes, ""
		}
	}
	x.s.PutFileSnapshot(&u)
	x.dirtyNodes.add(r.Node)
}

// loseSnapshots ends the snapshots of a node that is lost.
func (x *execution) loseSnapshots(n *state.Node) {
	var lost []*state.FileSnapshot
	x.s.NodeFileSnapshots(n.ID, func(r *state.FileSnapshot) bool {
		lost = append(lost, r)
		return true
	})
	for _, r := range lost {
		x.budget--
		if r.State == state.FileSnapshotRemoving {
			x.s.DeleteFileSnapshot(r.ID)
			continue
		}
		u := *r
		u.State, u.EndedAt, u.Message = state.FileSnapshotLost, x.now(), "its node was lost"
		x.s.PutFileSnapshot(&u)
	}
}

// mayFork refuses a trajectory that cannot begin with its snapshot now. What begins with none may
// always.
func (x *execution) mayFork(ns state.NamespaceID, p *state.Pool, c *logv1.OpenTrajectory) *logv1.Result {
	id := state.FileSnapshotID(c.SnapshotId)
	if id == 0 {
		return nil
	}
	r := x.s.FileSnapshot(id)
	switch {
	case r == nil || r.Namespace != ns:
		return x.snapshotNotFound(id)
	case r.State == state.FileSnapshotLost:
		return refuse(codeFailedPrecondition, "SNAPSHOT_LOST", "snapshot %d is lost: %s; take another with: rota snapshot create", id, r.Message)
	case r.State != state.FileSnapshotReady:
		return refuse(codeFailedPrecondition, "SNAPSHOT_NOT_READY", "snapshot %d %s", id, unready(r))
	case r.Container != c.Container:
		return refuse(codeInvalidArgument, "INVALID", "snapshot %d was taken in a container: %v; what begins with it is the same", id, r.Container)
	}
	n := x.s.Node(r.Node) // there is one: an invariant of state
	switch {
	case n.Pool != p.ID:
		return refuse(codeInvalidArgument, "INVALID", "snapshot %d is on node %s, which is not of pool %q; leave pool empty", id, n.Name, p.Name)
	case n.Memory < c.MemoryBytes || c.Container && !n.Containers:
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "node %s of snapshot %d could never hold %d bytes of memory, or runs no containers any more", n.Name, id, c.MemoryBytes)
	case p.Halted != "":
		return refuse(codeFailedPrecondition, "POOL_HALTED", "pool %q is halted: %s; see: rota operator pool resume", p.Name, p.Halted)
	case !n.Usable():
		return refuse(codeFailedPrecondition, "NODE_DRAINED", "node %s of snapshot %d takes no new work; see: rota node get %s", n.Name, id, n.Name)
	case n.FreeMemory < c.MemoryBytes || n.Trajectories >= place.TrajectoriesPerNodeMax || x.s.PendingTrajectory(p.ID, 0) != nil:
		return retryAfter(refuse(codeResourceExhausted, "NODE_FULL", "node %s of snapshot %d has %d bytes of memory free, and older trajectories may wait for them; try again", n.Name, id, n.FreeMemory), 1_000_000_000)
	}
	return nil
}

// unready says why nothing can begin with a snapshot, and what to do.
func unready(r *state.FileSnapshot) string {
	switch r.State {
	case state.FileSnapshotCreating:
		return "has not been taken yet; wait until it is ready, and try again"
	case state.FileSnapshotRemoving:
		return "was deleted; take another with: rota snapshot create"
	default:
		return "could not be taken: " + r.Message + "; take another with: rota snapshot create"
	}
}

// fork places a trajectory that begins with a snapshot, on the node of that.
func (x *execution) fork(id state.TrajectoryID, snapshot state.FileSnapshotID) {
	if snapshot == 0 {
		return
	}
	t := *x.s.Trajectory(id)
	t.Snapshot = snapshot
	node := x.s.FileSnapshot(snapshot).Node
	x.place(&t, x.s.Node(node))
	x.dirtyNodes.add(node)
}
