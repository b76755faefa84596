package rpc_test

import (
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

// TestATrajectoryThatEndsIsNotPaused any more, however it was when it ended.
func TestATrajectoryThatEndsIsNotPaused(t *testing.T) {
	w := newWorld(t)
	w.agent("n1", nil)
	opened, err := w.trajectories().OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{RequestId: "r"})
	if err != nil {
		t.Fatal(err)
	}
	id := opened.Trajectory.Id
	for _, changed := range []bool{true, false} {
		paused, err := w.trajectories().PauseTrajectory(t.Context(), &rotav1.PauseTrajectoryRequest{Id: id})
		if err != nil || paused.Changed != changed || paused.Trajectory.Pause != rotav1.PauseState_PAUSE_STATE_PAUSED || paused.Trajectory.PauseTime == nil {
			t.Fatalf("%v, %v", paused, err)
		}
	}
	closed, err := w.trajectories().CloseTrajectory(t.Context(), &rotav1.CloseTrajectoryRequest{Id: id})
	if err != nil || closed.Trajectory.Pause != rotav1.PauseState_PAUSE_STATE_UNSPECIFIED || closed.Trajectory.PauseTime != nil {
		t.Errorf("%v, %v", closed, err)
	}
}
