package rpc_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm/state"
)

// TestAChangeIsNoFailureWhenItsRowIsGone: what was changed may have been dropped
// before the answer is made. The change was committed all the same, and NOT_FOUND
// would say that it was refused.
func TestAChangeIsNoFailureWhenItsRowIsGone(t *testing.T) {
	w := newWorld(t)
	nodes := rotav1connect.NewNodeServiceClient(w.http, w.url, codec.ForClient())
	trajectories := rotav1connect.NewTrajectoryServiceClient(w.http, w.url, codec.ForClient())
	w.apply(&logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
		Name: "n1", JournalId: "j", MemoryBytes: 1 << 30, NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0}}},
	}}})
	w.lost = func(c *logv1.Command) error {
		if c.GetDrainNode() != nil {
			w.apply(
				&logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: "n1", Incarnation: 1}}},
				&logv1.Command{Verb: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Name: "n1"}}})
		}
		return nil
	}
	drained, err := nodes.DrainNode(t.Context(), &rotav1.DrainNodeRequest{Name: "n1"})
	if err != nil || drained.Node.GetName() != "n1" || !drained.Node.GetDraining() {
		t.Errorf("drain: %v, %v", drained, err)
	}

	opened, err := trajectories.OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{IdleTimeout: durationpb.New(1)})
	if err != nil {
		t.Fatal(err)
	}
	kept := func() (kept bool) {
		w.machine.View(func(s *state.State) { kept = s.Trajectory(state.TrajectoryID(opened.Trajectory.Id)) != nil })
		return kept
	}
	w.lost = func(c *logv1.Command) error {
		if c.GetCloseTrajectory() != nil {
			w.start = w.start.Add(-2 * time.Hour) // longer than anything is kept
			w.apply(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
		}
		return nil
	}
	closed, err := trajectories.CloseTrajectory(t.Context(), &rotav1.CloseTrajectoryRequest{Id: opened.Trajectory.Id})
	if err != nil || closed.Trajectory.GetState() != rotav1.TrajectoryState_TRAJECTORY_STATE_CLOSED || kept() {
		t.Errorf("close: %v, %v", closed, err)
	}
}
