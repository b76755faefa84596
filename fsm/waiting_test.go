package fsm

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// What once waited although nothing kept it from starting, or started although
// something did. All were found by stepping jepsen/model beside the machine.

// lines applies entries of one command each.
func (s *story) lines(t rapid.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		s.apply(t, parseCommand(t, line)...)
	}
}

func (s *story) wantState(t rapid.TB, id state.ActionID, want state.ActionState) {
	t.Helper()
	if got := s.state.Action(id).State; got != want {
		t.Fatalf("action %d is %s, want %s", id, actionStates[got], actionStates[want])
	}
}

// TestALongQueueHidesNoTrajectory: however many actions wait that do not fit a
// node, the queue of its own trajectories is looked at.
func TestALongQueueHidesNoTrajectory(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=small numa=3", "register node=big numa=4", "open", "submit n=40 cores=4")
	if n := s.state.Trajectory(1).Node; s.nodeName(n) != "small" {
		t.Fatalf("the trajectory is on %s", s.nodeName(n))
	}
	s.lines(t, "submit traj=1 cores=1")
	s.wantState(t, 41, state.ActionRunning)
}

// TestWhoComesWithinReachIsLookedAt: an action that fits a node which nothing
// else happens on starts as soon as enough of those ahead of it have left the
// queue, by a start elsewhere, a cancel or a timeout.
func TestWhoComesWithinReachIsLookedAt(t *testing.T) {
	leave := map[string]func(s *story){
		"a start elsewhere": func(s *story) { s.lines(t, "report node=big inc=2 action=1") },
		"a cancel":          func(s *story) { s.lines(t, "cancel ids=7") },
		"a timeout": func(s *story) {
			s.now = int64(time.Minute)
			s.apply(t)
		},
	}
	for name, do := range leave {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.lines(t, "register node=small numa=3 memory=2000", "register node=big numa=4",
				"submit cores=4", "submit cores=4 timeout=30s", "submit n=31 cores=4")
			s.lines(t, "submit cores=1 memory=1500")
			s.wantState(t, 34, state.ActionQueued)
			do(s)
			s.wantState(t, 34, state.ActionRunning)
		})
	}
}

// TestTheNextTrajectoryInLineIsPlaced when the first one gives up.
func TestTheNextTrajectoryInLineIsPlaced(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=n1 numa=1 memory=1000", "open memory=600", "open memory=900", "open memory=300", "close id=2")
	if got := s.state.Trajectory(3).State; got != state.TrajectoryOpen {
		t.Fatalf("trajectory 3 is %s", trajectoryStates[got])
	}
}

// TestNothingStartsInAClosingTrajectory, even if the pass over its node comes
// before the end of its queue.
func TestNothingStartsInAClosingTrajectory(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=n1 numa=1", "open", "submit traj=1", "submit traj=1")
	s.apply(t, append(parseCommand(t, "report node=n1 inc=1 action=1"), parseCommand(t, "close id=1")...)...)
	s.wantState(t, 2, state.ActionCanceled)
	if n := s.state.Action(2).Attempt; n != 0 {
		t.Fatalf("action 2 has attempt %d", n)
	}
}

// TestTheTimeItRanWasNotSpentInTheQueue: an action that is queued again after a
// loss has what was left of its queue timeout, and nobody has bypassed it yet.
func TestTheTimeItRanWasNotSpentInTheQueue(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=n1 numa=2", "submit cores=1", "submit cores=2 attempts=2 timeout=10s", "submit cores=1")
	s.now = int64(4 * time.Second)
	s.lines(t, "report node=n1 inc=1 action=1", "report node=n1 inc=1 action=3")
	s.wantState(t, 2, state.ActionRunning)
	s.now = int64(time.Minute)
	s.lines(t, "expire node=n1 inc=1", "tick")
	s.wantState(t, 2, state.ActionQueued)
	if a := s.state.Action(2); a.Bypassed != 0 {
		t.Fatalf("it was bypassed %d times", a.Bypassed)
	}
	s.now = int64(time.Minute+6*time.Second) - 1
	s.lines(t, "tick")
	s.wantState(t, 2, state.ActionQueued)
	s.now++
	s.lines(t, "tick")
	s.wantState(t, 2, state.ActionExpired)
}

// TestMemoryIsNotTakenBeforeAnOlderActionForEver: those without cores and those with
// cores wait in two queues for the same memory. Whoever has waited for it longer is
// passed by no more often than any.
func TestMemoryIsNotTakenBeforeAnOlderActionForEver(t *testing.T) {
	const some, most = "memory=300", "memory=900"
	with, without := "submit cores=1 ", "submit cores=0 quotas=api "
	for name, c := range map[string]struct{ waits, passes string }{
		"one with cores":    {with + most, without + some},
		"one without cores": {without + most, with + some},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.lines(t, "register node=n1 numa=8 memory=1000", "quota name=api kind=concurrency limit=1000000", c.passes, c.passes)
			s.lines(t, c.waits)
			const waits = state.ActionID(3)
			passed := 0
			for running := []state.ActionID{1, 2}; s.state.Action(waits).State == state.ActionQueued; passed++ {
				if passed > 2*int(s.state.Meta().Settings.BypassMax) {
					t.Fatalf("it was passed by %d times, and waits still", passed)
				}
				s.lines(t, c.passes)
				if next := s.state.Meta().LastAction; s.state.Action(next).State == state.ActionRunning {
					running = append(running, next)
				}
				if len(running) == 0 {
					t.Fatal("nothing runs, and it waits")
				}
				s.lines(t, fmt.Sprintf("report node=n1 inc=1 action=%d", running[0]))
				running = running[1:]
			}
			if least := int(s.state.Meta().Settings.BypassMax); passed < least {
				t.Errorf("it was passed by %d times, want at least the %d that may", passed, least)
			}
		})
	}
}
