package fsm

import (
	"strings"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// The specification of a trajectory came with a feature level, is bounded, and stays as it is.
func TestTheSpecificationOfATrajectory(t *testing.T) {
	open := func(spec string) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{Spec: []byte(spec)}}}
	}
	for level, premature := range map[state.Level]bool{2: true, 3: false} {
		if r := Premature(open("x"), func() state.Level { return level }); (r != nil) != premature {
			t.Errorf("at level %d: %v", level, r)
		}
		if r := Premature(open(""), func() state.Level { return level }); r != nil {
			t.Errorf("without a specification, at level %d: %v", level, r)
		}
	}
	b := newBuild(state.LevelResizing)
	b.Apply(entryLog(t, 1, 1, bootstrapBy(state.LevelResizing)))
	b.do(t, 2, "register node=n1 numa=4 memory=1000")
	b.Apply(entryLog(t, 3, 3, open(strings.Repeat("x", 4096)), open(strings.Repeat("x", 4097)), open("")))
	b.do(t, 4, "submit traj=1")
	b.View(func(s *state.State) {
		if got := s.Trajectory(1); got == nil || len(got.Spec) != 4096 || got.State != state.TrajectoryOpen {
			t.Errorf("the first is %+v", got)
		}
		if got := s.Trajectory(2); got == nil || got.Spec != "" || s.Trajectory(3) != nil {
			t.Errorf("the second of two is %+v", got)
		}
	})
}
