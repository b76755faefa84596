package dispatch

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// The agent hears which trajectories are open whenever it hears of every attempt.
func TestOpenTrajectoriesComeWithTheWholeState(t *testing.T) {
	c := newCluster(t)
	c.change(func(s *state.State) {
		for id, st := range map[state.TrajectoryID]state.TrajectoryState{
			1: state.TrajectoryOpen, 2: state.TrajectoryClosed, 3: state.TrajectoryClosing,
		} {
			s.PutTrajectory(&state.Trajectory{ID: id, Namespace: 1, Pool: 1, Node: 1, State: st})
		}
		s.PutTrajectory(&state.Trajectory{ID: 4, Namespace: 1, Pool: 1, Node: 2, State: state.TrajectoryOpen})
	})
	s := c.changing()
	if m := mustNext(t, s); m.OpenTrajectories == nil || !slices.Equal(m.OpenTrajectories.Ids, []uint64{1, 3}) {
		t.Errorf("the whole state: %v", m)
	}
	if m := mustNext(t, s); m.OpenTrajectories != nil {
		t.Errorf("changes: %v", m)
	}
	c.change(func(s *state.State) {
		for _, id := range []state.TrajectoryID{1, 3} {
			s.PutTrajectory(&state.Trajectory{ID: id, Namespace: 1, Pool: 1, Node: 1, State: state.TrajectoryClosed})
		}
	})
	s.whole = true
	if m := mustNext(t, s); m.OpenTrajectories == nil || len(m.OpenTrajectories.Ids) != 0 {
		t.Errorf("none is open: %v", m)
	}
}

// What the commands of a trajectory have in common gives way to what a command says itself.
func TestCommandsOfATrajectoryShareAnEnvironment(t *testing.T) {
	common, err := (&rotav1.TrajectorySpec{Env: map[string]string{"A": "common", "B": "common"}, Dir: "project"}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ command, want *rotav1.Command }{
		{&rotav1.Command{Argv: []string{"x"}}, &rotav1.Command{Argv: []string{"x"}, Env: map[string]string{"A": "common", "B": "common"}, Dir: "project"}},
		{&rotav1.Command{Env: map[string]string{"B": "own", "C": "own"}, Dir: "/srv"},
			&rotav1.Command{Env: map[string]string{"A": "common", "B": "own", "C": "own"}, Dir: "/srv"}},
		{nil, nil},
	} {
		if err := addCommon(tt.command, string(common)); err != nil || !proto.Equal(tt.command, tt.want) {
			t.Errorf("got %v, want %v, %v", tt.command, tt.want, err)
		}
	}
	c := &rotav1.Command{Dir: "x"}
	if err := addCommon(c, ""); err != nil || c.Env != nil || c.Dir != "x" {
		t.Errorf("with nothing in common: %v, %v", c, err)
	}
	if addCommon(c, "\xff") == nil {
		t.Error("nonsense was taken")
	}
}
