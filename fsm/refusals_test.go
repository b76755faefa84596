package fsm

import (
	"strings"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/place"
)

// joining is a submission with so many actions of trajectory 1, and then of trajectory 2.
func joining(first, second int) *logv1.Command {
	c := &logv1.SubmitActions{}
	for i := range first + second {
		a := &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, TrajectoryId: 1}
		if i >= first {
			a.TrajectoryId = 2
		}
		c.Actions = append(c.Actions, a)
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}}
}

// TestATrajectoryIsFullByItsOwnActions: those of others in the same submission do not count from
// feature level 3 on.
func TestATrajectoryIsFullByItsOwnActions(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=x numa=1 memory=1000", "open memory=1", "open memory=1", "submit traj=1 cores=1")
	r := s.apply(t, joining(trajectoryLiveMax, 1))[0].Refusal
	if want := "has 1 live actions, and the submission adds 4096"; r.GetReason() != "TRAJECTORY_FULL" || !strings.Contains(r.GetMessage(), want) {
		t.Errorf("refused with %v, want %q", r, want)
	}
	if r := s.apply(t, joining(1, trajectoryLiveMax-1))[0].Refusal; r != nil {
		t.Errorf("what fits is refused: %v", r)
	}
	d := newDriver(t) // of level 2
	d.register("x", 1)
	open := &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{MemoryBytes: 1}}}
	d.do(open, open, joining(1, 0))
	d.refused("TRAJECTORY_FULL", joining(1, trajectoryLiveMax-1))
}

// TestARefusedRegistrationChangesNothing: neither a pool nor a class of GPUs comes into being with it,
// from feature level 3 on.
func TestARefusedRegistrationChangesNothing(t *testing.T) {
	for level, pools := range map[state.Level]int{2: 2, state.LevelResizing: 1} {
		d := busyNode(t)
		m := *d.state.Meta()
		m.Level = level
		d.state.SetMeta(m)
		d.do(expire(d.state.NodeByName("n")))
		back := registration("n", 8)
		back.GetRegisterNode().Pool = "other"
		back.GetRegisterNode().Gpus = &logv1.GpuInventory{Class: "H100", Count: 8, MemoryBytes: 1}
		d.refused("NODE_TEARDOWN", back)
		if n := d.state.PoolCount(); n != pools || (d.state.GPUClassByName("H100") != nil) != (pools == 2) {
			t.Errorf("level %d: there are %d pools, must be %d", level, n, pools)
		}
		d.settle()
		d.do(back)
		d.check()
		if p := d.state.PoolByName("other"); p == nil || d.state.NodeByName("n").Pool != p.ID {
			t.Errorf("level %d: the node is not in its pool", level)
		}
	}
}

// TestASubmissionThatIsTooLargeIsNotToBeRepeated: there will never be room for it.
func TestASubmissionThatIsTooLargeIsNotToBeRepeated(t *testing.T) {
	for level, want := range map[state.Level]string{2: "QUEUE_FULL", state.LevelResizing: "UNSATISFIABLE"} {
		d := newDriver(t)
		m := *d.state.Meta()
		m.Level, m.Settings.QueueActionsMax, m.Settings.QueueBytesMax = level, 4, 100
		d.state.SetMeta(m)
		submit := func(n, bytes int) *logv1.Refusal {
			c := &logv1.SubmitActions{}
			for range n {
				c.Actions = append(c.Actions, &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, Spec: make([]byte, bytes)})
			}
			return d.try(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}})[0].Refusal
		}
		for _, r := range []*logv1.Refusal{submit(5, 0), submit(1, 101)} {
			if r.GetReason() != want || (r.GetRetryNs() == 0) != (want == "UNSATISFIABLE") {
				t.Errorf("level %d: refused with %v, want %s", level, r, want)
			}
		}
		if r := submit(1, 60); r != nil {
			t.Fatal(r)
		}
		r := submit(1, 60)
		if r.GetReason() != "QUEUE_FULL" || !strings.Contains(r.GetMessage(), "the queue holds 1 actions of ") {
			t.Errorf("level %d: a full queue is refused with %v", level, r)
		}
	}
}

// TestAReviewCostsStepsFromLevel3: at level 2, a reservation is reviewed for nothing.
func TestAReviewCostsStepsFromLevel3(t *testing.T) {
	d := newDriver(t)
	d.register("n", 4)
	d.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{Actions: []*logv1.Action{
		{CoresMin: 4, CoresMax: 4, AttemptsMax: 1}, {CoresMin: 4, CoresMax: 4, AttemptsMax: 1},
	}}}})
	for level, want := range map[state.Level]int{2: workBudget, state.LevelResizing: workBudget - 1} {
		x := &execution{s: d.state.Copy(), budget: workBudget}
		m := *x.s.Meta()
		m.Level = level
		x.s.SetMeta(m)
		x.reserveNode(x.s.Action(2), x.s.NodeByName("n"))
		x.reviewReservation(x.s.NodeByName("n"))
		if n := x.s.NodeByName("n"); x.budget != want || n.ReservedFor != 2 || !place.CouldRun(x.s, n, x.s.Action(2)) {
			t.Errorf("level %d: %d steps are left, want %d; the node is reserved for action %d", level, x.budget, want, n.ReservedFor)
		}
	}
}
