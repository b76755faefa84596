package fsm

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// No bound of a search decides whether an action ever runs, and what no living node
// could serve holds up nobody. The clusters here are larger than the bounds.

// TestTheOnlyNodeWithTheMemoryIsFound behind more nodes with more free cores than any
// bound of the scheduler.
func TestTheOnlyNodeWithTheMemoryIsFound(t *testing.T) {
	for _, small := range []int{63, 64, 65, 600} {
		s := newStory(t)
		for i := range small {
			s.lines(t, fmt.Sprintf("register node=small-%d numa=8 memory=64", i))
		}
		s.lines(t, "register node=large numa=4 memory=2000", "submit cores=1 memory=512")
		s.wantState(t, 1, state.ActionRunning)
	}
}

// TestTheOnlyNodeWithTheBandwidthIsFound likewise.
func TestTheOnlyNodeWithTheBandwidthIsFound(t *testing.T) {
	s := newStory(t)
	for i := range 70 {
		s.lines(t, fmt.Sprintf("register node=small-%d numa=8 memory=1000", i))
	}
	s.lines(t, "register node=far numa=4 memory=1000 net=100", "submit cores=1 memory=10 net=100")
	s.wantState(t, 1, state.ActionRunning)
}

// TestANodeIsKeptForTheStarved although more nodes than any bound have more free cores
// and too little memory.
func TestANodeIsKeptForTheStarved(t *testing.T) {
	s := newStory(t)
	for i := range 70 {
		s.lines(t, fmt.Sprintf("register node=small-%d numa=8 memory=64", i))
	}
	s.lines(t, "register node=large numa=4 memory=2000", "submit cores=1 memory=1500", "submit cores=1 memory=1000")
	s.wantState(t, 2, state.ActionQueued)
	for range 2000 {
		if s.now += int64(time.Second); s.state.Action(2).ReservedOn != 0 {
			break
		}
		s.lines(t, "submit cores=1 memory=80")
	}
	s.lines(t, "report node=large inc=71 action=1")
	s.wantState(t, 2, state.ActionRunning)
}

// TestTheOnlyNodeWithMemoryIsFoundForGPUs behind more nodes of the class than a pass
// chooses from.
func TestTheOnlyNodeWithMemoryIsFoundForGPUs(t *testing.T) {
	s := newStory(t)
	for i := range 520 {
		s.lines(t, fmt.Sprintf("register node=small-%d numa=8 memory=64 gpus=H100:8", i))
	}
	s.lines(t, "register node=large numa=4 memory=2000 gpus=H100:2", "submit cores=1 memory=512 gpus=1 gpuclass=H100")
	s.wantState(t, 1, state.ActionRunning)
}

// TestWhatNoLivingNodeCanServeHoldsUpNobody: the only large node is down. Whoever asks
// for it waits aside, and comes back to where it was when the node does.
func TestWhatNoLivingNodeCanServeHoldsUpNobody(t *testing.T) {
	for _, leave := range []string{"expire node=large inc=1", "drain node=large"} {
		s := newStory(t)
		s.lines(t, "register node=large numa=8 memory=2000", "register node=small numa=4 memory=100")
		s.lines(t, leave)
		s.lines(t, "open memory=1000", "open memory=50", "submit n=100 cores=8", "submit cores=1")
		if got := s.state.Trajectory(2).State; got != state.TrajectoryOpen {
			t.Fatalf("%s: trajectory 2 is %s", leave, trajectoryStates[got])
		}
		s.wantState(t, 101, state.ActionRunning)
		if got := s.state.PendingTrajectory(1, 0); got != nil {
			t.Fatalf("%s: trajectory %d waits in line", leave, got.ID)
		}
		if leave == "drain node=large" {
			s.lines(t, "drain node=large undo=yes")
		} else {
			s.lines(t, "register node=large numa=8 memory=2000")
		}
		if got := s.state.Trajectory(1).State; got != state.TrajectoryOpen {
			t.Fatalf("after %s: trajectory 1 is %s", leave, trajectoryStates[got])
		}
		s.wantState(t, 1, state.ActionRunning)
	}
}

// TestARemovedNodeIsMissedByNobody: the trajectory that waits for it alone does not
// hold up those that came before it was removed.
func TestARemovedNodeIsMissedByNobody(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=large numa=8 memory=2000", "register node=small numa=4 memory=100",
		"open memory=2000", "open memory=1500", "open memory=50")
	if got := s.state.Trajectory(3).State; got != state.TrajectoryPending {
		t.Fatalf("trajectory 3 is %s although it is behind another", trajectoryStates[got])
	}
	s.lines(t, "expire node=large inc=1", "remove node=large")
	if got := s.state.Trajectory(3).State; got != state.TrajectoryOpen {
		t.Fatalf("trajectory 3 is %s", trajectoryStates[got])
	}
}

// TestATrajectoryGoesWhereItsActionsCanRun, not to the node with the most memory; and
// what no one node could run together is refused.
func TestATrajectoryGoesWhereItsActionsCanRun(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=fat numa=2 memory=1000", "register node=fast numa=8 memory=900",
		"register node=far numa=2 memory=500 net=100",
		"open memory=1000", "open memory=900", "open memory=500", "open memory=10", "submit traj=4 cores=8")
	s.lines(t, "close id=1", "close id=3")
	if got := s.state.Trajectory(4).State; got != state.TrajectoryPending {
		t.Fatalf("trajectory 4 is %s on node %s", trajectoryStates[got], s.nodeName(s.state.Trajectory(4).Node))
	}
	if out := s.apply(t, parseCommand(t, "submit traj=4 net=100")...); out[0].Refusal.GetReason() != "UNSATISFIABLE" {
		t.Fatalf("actions that no node can run together: %v", out[0])
	}
	s.lines(t, "close id=2")
	s.wantState(t, 1, state.ActionRunning)
	if n := s.nodeName(s.state.Trajectory(4).Node); n != "fast" {
		t.Fatalf("the trajectory is on node %s", n)
	}
}

// TestATrajectoryAsksForLessWhenAnActionEnds, and goes where it could not before.
func TestATrajectoryAsksForLessWhenAnActionEnds(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=fast numa=8 memory=900", "register node=slow numa=2 memory=100", "open memory=900", "open memory=100",
		"open memory=50", "submit traj=3 cores=8", "submit traj=3 cores=2", "expire node=fast inc=1", "close id=2")
	if got := s.state.Trajectory(3); got.State != state.TrajectoryPending || !got.Aside || got.RequestedCores != 8 {
		t.Fatalf("trajectory 3 is %+v", got)
	}
	s.lines(t, "cancel ids=1")
	s.wantState(t, 2, state.ActionRunning)
}

// TestALoweredLimitHoldsUpNobody: more actions than any bound ask for more than the
// quota has since an operator lowered it. They come back when it is raised.
func TestALoweredLimitHoldsUpNobody(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=n numa=8", "quota name=q kind=concurrency limit=10", "submit quotas=q:10 cores=0",
		"submit n=3000 quotas=q:10 cores=0", "submit quotas=q:1 cores=0", "update-quota name=q limit=9", "report node=n inc=1 action=1")
	s.settle(t)
	s.wantState(t, 3002, state.ActionRunning)
	s.lines(t, "update-quota name=q limit=20")
	s.settle(t)
	s.wantState(t, 2, state.ActionRunning)
	s.wantState(t, 3, state.ActionQueued)
}

// settle lets everything happen that is due or left over.
func (s *story) settle(t rapid.TB) {
	t.Helper()
	for range 100_000 {
		if due, ok := nextDue(s.state); !ok || due > s.now {
			return
		}
		s.apply(t, parseCommand(t, "tick")...)
	}
	t.Fatal("there is work without end")
}
