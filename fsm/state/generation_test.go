package state

import "testing"

// TestNextWaiting: the longest goes first, unless one has waited for too long.
func TestNextWaiting(t *testing.T) {
	const second = 1_000_000_000
	s := New()
	for i, g := range []Generation{
		{Policy: "p", Predicted: 10, Since: 30 * second}, {Policy: "p", Predicted: 20, Since: 50 * second}, {Policy: "p", Predicted: 5, Since: 40 * second},
		{Policy: "p", Predicted: 99, Suspended: true}, {Policy: "p", Predicted: 99, Worker: "w"}, {Policy: "p", Predicted: 99, Ended: true},
		{Policy: "q", Predicted: 7},
	} {
		g.Trajectory = TrajectoryID(i + 1)
		s.PutTrajectory(&Trajectory{ID: g.Trajectory, State: TrajectoryOpen})
		s.PutGeneration(&g)
	}
	for _, test := range []struct {
		now    int64
		policy string
		want   TrajectoryID
	}{{0, "p", 2}, {89 * second, "p", 2}, {90 * second, "p", 1}, {100 * second, "p", 1}, {0, "q", 7}, {0, "o", 0}} {
		s.SetMeta(Meta{Now: test.now})
		got := TrajectoryID(0)
		if g := s.NextWaiting(test.policy); g != nil {
			got = g.Trajectory
		}
		if got != test.want {
			t.Errorf("after %d s, policy %s: trajectory %d, want %d", test.now/second, test.policy, got, test.want)
		}
	}
	if l := s.WorkerLoad("w"); l != (WorkerLoad{Trajectories: 1, Predicted: 99}) || s.WaitingGenerations() != 4 {
		t.Errorf("worker w has to do %+v, and %d wait", l, s.WaitingGenerations())
	}
}
