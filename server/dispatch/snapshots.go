package dispatch

import (
	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// snapshotsOn are the snapshots of files of a node, and who began with one there.
func snapshotsOn(st *state.State, n *state.Node) *rotav1.NodeSnapshots {
	out := &rotav1.NodeSnapshots{}
	st.NodeFileSnapshots(n.ID, func(r *state.FileSnapshot) bool {
		t := st.Trajectory(r.Trajectory)
		out.Snapshots = append(out.Snapshots, &rotav1.DesiredSnapshot{
			SnapshotId: uint64(r.ID), TrajectoryId: uint64(r.Trajectory), State: rotav1.SnapshotState(r.State),
			Container: r.Container, Counted: r.Bytes > 0, TrajectoryOpen: t != nil && t.State == state.TrajectoryOpen,
		})
		return true
	})
	st.Forks(n.ID, func(t state.TrajectoryID, of state.FileSnapshotID) bool {
		out.Forks = append(out.Forks, &rotav1.Fork{TrajectoryId: uint64(t), SnapshotId: uint64(of)})
		return true
	})
	return out
}

// newSnapshots leaves the snapshots out of a message if they are as the agent was told.
func (s *stream) newSnapshots(msg *rotav1.WatchNodeResponse) {
	if s.snapshots != nil && proto.Equal(s.snapshots, msg.Snapshots) {
		msg.Snapshots = nil
		return
	}
	s.snapshots = msg.Snapshots
}
