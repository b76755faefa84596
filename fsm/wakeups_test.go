package fsm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// tell plays a story: "entry at=TIME" begins an entry, and the lines below are its commands.
func (s *story) tell(t rapid.TB, text string) {
	t.Helper()
	for _, entry := range strings.Split(text, "entry at=")[1:] {
		lines := strings.Split(strings.TrimSpace(entry), "\n")
		now, err := time.ParseDuration(lines[0])
		if err != nil {
			t.Fatal(err)
		}
		s.now = int64(now)
		s.entryOfLines(t, lines[1:])
	}
}

// entryOfLines applies lines together.
func (s *story) entryOfLines(t rapid.TB, lines []string) {
	t.Helper()
	var commands []*logv1.Command
	for _, line := range lines {
		commands = append(commands, parseCommand(t, line)...)
	}
	s.apply(t, commands...)
}

// wakeup is a story whose last entry makes something possible, after which nothing else happens.
type wakeup struct {
	name, story string
	holds       func(*story) bool
}

func actionIs(id state.ActionID, want state.ActionState) func(*story) bool {
	return func(s *story) bool { return s.state.Action(id).State == want }
}

func turnIs(id state.TurnID, want state.TurnState) func(*story) bool {
	return func(s *story) bool { return s.state.Turn(id).State == want }
}

// groupWakeups are of node groups, and wakeups of all else.
var groupWakeups = []wakeup{
	{"a turn that is given up makes another the first of its deployment, before an action has the gap", `
		entry at=10s
		register node=n1 numa=4 gpus=H100:4
		group name=a members=n1
		job name=one nodes=1 cycle=100:0+40x1
		entry at=60s
		job name=two nodes=1 backfill=1
		turn of=two/x expect=100s
		turn of=two/x expect=5s
		entry at=61s
		submit gpus=4 cores=0 single=20s
		give-up turn=1`, turnIs(2, state.TurnHeld)},
	{"a spare completes a group before an action has the gap", `
		entry at=1s
		register node=n1 numa=4 gpus=H100:8
		register node=n2 numa=4 gpus=H100:4 labels=zone:a
		group name=a members=n1,n2:0+4 select=zone:a:4
		job name=j nodes=2 backfill=1
		entry at=2s
		expire node=n2 inc=2
		turn of=j/x expect=5s
		entry at=3s
		submit gpus=8 cores=0 single=20s
		register node=n3 numa=4 gpus=H100:4 labels=zone:a`, turnIs(1, state.TurnHeld)},
	{"a member of a deleted group is a spare", `
		entry at=1s
		register node=n1 numa=4 gpus=H100:4 labels=zone:a
		register node=n2 numa=4 gpus=H100:4 labels=zone:a
		group name=a nodes=1 select=zone:a:4
		job name=j nodes=1
		entry at=2s
		group name=b members=n2
		entry at=3s
		expire node=n1 inc=1
		entry at=4s
		turn of=j/x step=1 expect=5s
		entry at=5s
		delete-group name=b`, turnIs(1, state.TurnHeld)},
	{"a node whose GPUs join a group is not kept for an action that may never get them", `
		entry at=1s
		register node=n1 numa=4 gpus=H100:4
		submit cores=1
		submit gpus=4 cores=4
		entry at=2s
		group name=a members=n1
		entry at=3s
		report node=n1 inc=1 action=1
		entry at=4s
		submit cores=1`, actionIs(3, state.ActionRunning)},
}

var wakeups = []wakeup{
	{"the only action of a node gets more cores when its namespace holds less elsewhere", `
			entry at=1s
			register node=a numa=8 resizes=yes
			register node=b pool=p numa=8
			namespace name=team
			set-namespace name=team cores=8
			submit ns=team pool=p cores=4
			submit ns=team cores=1 max=8
			entry at=100s
			report node=b inc=2 action=1`, func(s *story) bool { return s.state.Attempt(1, 2).Cores.Len() == 8 }},
	{"a class becomes known in another pool, and an action of it fits into a gap", `
			entry at=1s
			register node=n1 numa=4 gpus=H100:4
			register node=n2 pool=b numa=20
			group name=a members=n1
			submit pool=b class=c n=20
			submit gpus=4 cores=0 class=c
			entry at=2s
			` + reports(1, 19) + `
			entry at=3s
			report node=n2 inc=2 action=20 exec=1s`, actionIs(21, state.ActionRunning)},
	{"a node comes back with other GPUs, and those behind what only it could take start elsewhere", `
			entry at=1s
			register node=big numa=4 gpus=A100:8
			register node=small numa=4 memory=400 gpus=A100:4
			open memory=600
			entry at=2s
			submit n=33 gpus=8 cores=0 memory=500
			submit gpus=4 cores=0
			entry at=3s
			register node=big numa=4 gpus=H100:8`, actionIs(34, state.ActionRunning)},
	{"a due turn comes before the holder only because it has waited", `
			entry at=10s
			group name=a nodes=4
			job name=cold nodes=4
			turn of=cold/train expect=1000s preemptible=1
			entry at=20s
			turn of=cold/rollout expect=1s
			entry at=100s
			tick`, func(s *story) bool { return s.state.Turn(1).Stop }},
	{"a node is not kept for a gang that needs the memory of a trajectory", `
		entry at=1s
		register node=n1 numa=4 memory=1000
		submit cores=3
		submit n=2 gang=2 cores=2 memory=400
		submit cores=1 n=5
		entry at=2s
		report node=n1 action=4
		entry at=3s
		report node=n1 action=5
		entry at=4s
		report node=n1 action=6
		entry at=5s
		open memory=500
		submit traj=1 cores=1
		entry at=6s
		report node=n1 action=1`, actionIs(8, state.ActionRunning)},
	{"a gang keeps its node when a trajectory leaves it enough memory", `
			entry at=1s
			register node=n1 numa=4 memory=1000
			submit cores=3
			submit n=2 gang=2 cores=2 memory=200
			submit cores=1 n=5
			entry at=2s
			report node=n1 action=4
			entry at=3s
			report node=n1 action=5
			entry at=4s
			report node=n1 action=6
			entry at=5s
			open memory=500`, func(s *story) bool { return s.state.Node(1).ReservedFor == 2 }},
	{"the end of a reservation leaves room under the limit of a namespace", `
		entry at=1s
		register node=n1 numa=4 gpus=H100:2
		namespace name=team
		set-namespace name=team cores=4
		submit cores=1
		entry at=2s
		register node=n3 numa=4 gpus=H100:2
		submit gpus=2 cores=4
		submit ns=team gpus=1 cores=4
		register node=n2 pool=b numa=4
		entry at=3s
		submit ns=team pool=b cores=1
		entry at=4s
		drain node=n1`, actionIs(4, state.ActionRunning)},
	{"a trajectory that no node may hold any more lets the next one open", `
		entry at=1s
		register node=large numa=8 memory=1000
		register node=small numa=4 memory=500
		drain node=large
		open memory=400
		open memory=300
		open memory=50
		entry at=2s
		submit traj=2 cores=8`, func(s *story) bool { return s.state.Trajectory(3).State == state.TrajectoryOpen }},
	{"a group that was kept for a job is another's when that one leaves", `
		entry at=10s
		group name=a nodes=4
		job name=first nodes=4 cycle=100:0+40x4
		job name=large nodes=4 cycle=100:0+60x4
		job name=second nodes=4 cycle=100:0+40x4
		entry at=1h
		complete job=first
		job name=third nodes=4 cycle=100:0+40x4
		entry at=8h10s
		complete job=second
		job name=fourth nodes=4 cycle=100:0+40x4
		entry at=8h1m
		complete job=large`, func(s *story) bool { return s.state.Job(5).State == state.JobRunning }},
	{"an action that goes on when another node was divided gets the idle cores of its own", `
		entry at=1s
		register node=a numa=4 resizes=yes
		namespace name=team
		set-namespace name=team cores=8
		open memory=10 ns=team
		submit traj=1 ns=team cores=2 max=4
		entry at=100s
		pause id=1
		frozen node=a inc=1 action=1 pause=1
		drain node=a
		register node=b numa=8 resizes=yes
		submit ns=team cores=1 max=8
		entry at=200s
		resume-trajectory id=1
		entry at=300s
		submit cores=1 max=8`, func(s *story) bool { return s.state.Attempt(1, 1).Cores.Len() == 4 }},
}

// reports are lines by which actions on node n2 have succeeded.
func reports(first, last int) (lines string) {
	for id := first; id <= last; id++ {
		lines += fmt.Sprintf("report node=n2 inc=2 action=%d exec=1s\n", id)
	}
	return strings.TrimSpace(lines)
}

// TestWhatBecomesPossibleIsLookedAt: what waits gets what has become possible at once.
func TestWhatBecomesPossibleIsLookedAt(t *testing.T) {
	for _, c := range append(groupWakeups, wakeups...) {
		t.Run(c.name, func(t *testing.T) {
			s := newStory(t)
			s.tell(t, c.story)
			if !c.holds(s) {
				t.Errorf("not so:\n%s%s", s.show(), s.showLedger())
			}
		})
	}
}
