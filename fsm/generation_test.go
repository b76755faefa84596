package fsm

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// at applies lines at a log time.
func (s *story) at(t rapid.TB, seconds int64, lines ...string) {
	t.Helper()
	s.now = seconds * int64(time.Second)
	for _, line := range lines {
		s.apply(t, parseCommand(t, line)...)
	}
}

// TestReportsOfGenerationsAreSignsOfLife: a trajectory that only generates is not closed as idle,
// and one of which nothing is heard any more is.
func TestReportsOfGenerationsAreSignsOfLife(t *testing.T) {
	s := newStory(t)
	s.at(t, 1, "register node=n1 numa=4", "worker name=w policy=p", "open idle=10s policy=p")
	s.at(t, 9, "generated traj=1 worker=w now=yes")
	s.at(t, 17, "generated traj=1 worker=w turns=1 out=10 took=9s")
	s.at(t, 26, "tick")
	if got := s.state.Trajectory(1).State; got >= state.TrajectoryClosing {
		t.Errorf("it is in state %d nine seconds after a report", got)
	}
	s.at(t, 27, "tick")
	if got := s.state.Trajectory(1).State; got < state.TrajectoryClosing {
		t.Errorf("it is in state %d ten seconds after the last report", got)
	}
}

// TestWhatRolloutsEndTeachesNoLength: a trajectory that was closed as redundant, as stale, or with
// its rollout, would have generated more.
func TestWhatRolloutsEndTeachesNoLength(t *testing.T) {
	for _, last := range []string{"sample traj=1", "publish version=1", "close-rollout id=1"} {
		s := newStory(t)
		s.at(t, 1, "register node=n1 numa=4", "rollout samples=1 redundant=1", "open rollout=1/0 policy=p class=c", "open rollout=1/0 policy=p class=c",
			"generated traj=1 turns=1 out=100", "generated traj=2 turns=1 out=100", last)
		learned := uint64(0)
		if c := s.state.LengthClass("p", "c"); c != nil {
			learned = c.Trajectories
		}
		want := uint64(0)
		if s.state.Trajectory(1).State < state.TrajectoryClosing || s.state.Trajectory(2).State < state.TrajectoryClosing {
			t.Errorf("%s: the trajectories go on", last)
		}
		if last == "sample traj=1" {
			want = 1 // the one that made the sample
		}
		if learned != want {
			t.Errorf("%s: %d trajectories taught how much they generate, want %d", last, learned, want)
		}
	}
}

// TestAWorkerRegisteredAgainHasNoMoreTime to receive a version: its trajectories would wait for
// ever at one that is registered every few seconds.
func TestAWorkerRegisteredAgainHasNoMoreTime(t *testing.T) {
	s := newStory(t)
	s.at(t, 1, "worker name=w policy=p", "publish version=1")
	s.at(t, 20, "worker name=w policy=p")
	s.at(t, 31, "tick")
	if w := s.state.Worker("w"); !w.Overdue {
		t.Errorf("30 seconds after the version: %+v", *w)
	}
	s.at(t, 32, "worker name=w policy=p")
	if w := s.state.Worker("w"); !w.Overdue {
		t.Errorf("registered again: %+v", *w)
	}
	s.at(t, 33, "worker name=w policy=p version=1")
	if w := s.state.Worker("w"); w.Overdue || w.LeaveAt != 0 {
		t.Errorf("with the version: %+v", *w)
	}
}

// TestAMemberIsGeneratedByThePolicyOfItsRollout, of which its samples are.
func TestAMemberIsGeneratedByThePolicyOfItsRollout(t *testing.T) {
	s := newStory(t)
	s.at(t, 1, "rollout policy=p samples=2", "publish policy=q version=1")
	for policy, want := range map[string]string{"p": "", "q": "INVALID"} {
		if r := s.apply(t, parseCommand(t, "open rollout=1/0 policy="+policy)...)[0]; r.GetRefusal().GetReason() != want {
			t.Errorf("policy %s: %v, want %q", policy, r, want)
		}
	}
}

// TestPlacementIsBounded: when workers for thousands of trajectories come, fail and come back, no
// entry moves them all, the next one goes on, and in the end all have a worker.
func TestPlacementIsBounded(t *testing.T) {
	const workers, each, most = 6, 1000, placementLooksMax/placementCost + 2*1000
	s := newStory(t)
	s.now = int64(time.Second)
	s.quick(t, "rollout")
	for range workers {
		lines := make([]string, each)
		for i := range lines {
			lines[i] = "open policy=p"
		}
		s.quick(t, lines...)
	}
	var register, fail, back []string
	for i := range workers {
		register = append(register, fmt.Sprintf("worker name=w%d policy=p slots=%d", i, each))
		fail = append(fail, fmt.Sprintf("generated failed=w%d", i))
		back = append(back, fmt.Sprintf("update-worker name=w%d up=yes", i))
	}
	for _, step := range []struct {
		lines   []string
		waiting int
	}{{register, 0}, {fail, workers * each}, {back, 0}} {
		lines, entries := step.lines, 0
		for before := -1; before != s.state.WaitingGenerations() || s.state.HasWork(); entries++ {
			before = s.state.WaitingGenerations()
			s.quick(t, lines...)
			if lines = []string{"tick"}; abs(before-s.state.WaitingGenerations()) > most {
				t.Errorf("%s: one entry placed or dismissed %d", step.lines[0], abs(before-s.state.WaitingGenerations()))
			}
		}
		if got := s.state.WaitingGenerations(); got != step.waiting || entries < 3 {
			t.Errorf("%s: %d wait after %d entries, want %d after several", step.lines[0], got, entries, step.waiting)
		}
	}
	if err := s.state.Check(); err != nil {
		t.Error(err)
	}
}

func abs(n int) int { return max(n, -n) }

// TestSiblingsAreBounded: a prediction looks at the last ones of a large group.
func TestSiblingsAreBounded(t *testing.T) {
	const samples = siblingsMax + 20
	s := newStory(t)
	s.quick(t, fmt.Sprintf("rollout samples=%d", samples+1))
	for id := 1; id <= samples; id++ {
		s.quick(t, "open rollout=1/0 policy=p", fmt.Sprintf("generated traj=%d turns=1 out=%d", id, id), fmt.Sprintf("sample traj=%d", id))
	}
	s.quick(t, "open rollout=1/0 policy=p")
	if got := siblingsOf(s.state, samples+1); got.Finished != siblingsMax || got.MeanTokens != (2*samples-siblingsMax+1)/2 {
		t.Errorf("%+v", got)
	}
}

// TestNoIdleTimeoutRunsWhileRotaHasATrajectoryWait for memory, or for a worker. It runs from then on.
func TestNoIdleTimeoutRunsWhileRotaHasATrajectoryWait(t *testing.T) {
	s := newStory(t)
	open := func(after int64, want ...bool) {
		t.Helper()
		s.at(t, after, "tick")
		for i, w := range want {
			if got := s.state.Trajectory(state.TrajectoryID(1+i)).State < state.TrajectoryClosing; got != w {
				t.Errorf("after %d s, trajectory %d is open: %v, want %v", after, 1+i, got, w)
			}
		}
	}
	s.at(t, 1, "worker name=w policy=p slots=1", "open memory=1 idle=10s", "open memory=1 idle=10s policy=p", "open memory=1 idle=10s policy=p")
	open(20, true, true, true)
	s.at(t, 21, "register node=n1 numa=4 memory=100")
	open(30, true, true, true)
	open(31, false, false, true) // its worker has a free slot from now on
	open(40, false, false, true)
	open(41, false, false, false)
}
