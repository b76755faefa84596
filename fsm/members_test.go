package fsm

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// TestMembersAreNeverGivenTwice drives groups with members, and what can happen to them,
// with jobs, turns and actions on the same GPUs. story.apply checks after each entry that no
// GPU has two users, and the model that no action starts in a gap that would end after it.
// In the end no turn waits for actions. That one is granted which need not wait for them
// the model checks, too.
func TestMembersAreNeverGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStory(t)
		s.now = int64(time.Second)
		for _, line := range []string{"register node=n1 numa=4 gpus=H100:8 labels=zone:a", "register node=n2 numa=4 gpus=H100:4 labels=zone:a", "register node=n3 numa=4 gpus=H100:4 labels=zone:b"} {
			s.apply(t, parseCommand(t, line)...)
		}
		for range rapid.IntRange(5, 60).Draw(t, "entries") {
			s.now += rapid.Int64Range(0, int64(8*time.Second)).Draw(t, "step")
			var lines []string
			for range rapid.IntRange(1, 4).Draw(t, "commands") {
				if line := randomMemberLine(t, s); line != "" {
					t.Logf("entry %d at %d: %s", s.index+1, s.now, line)
					lines = append(lines, line)
				}
			}
			s.entryOfLines(t, lines)
		}
		s.nobodyWaitsForActions(t)
	})
}

// nobodyWaitsForActions lets nodes come back, actions and turns end, and time pass.
func (s *story) nobodyWaitsForActions(t *rapid.T) {
	for _, line := range []string{
		"register node=n1 numa=4 gpus=H100:8 labels=zone:a", "register node=n2 numa=4 gpus=H100:4 labels=zone:a", "register node=n3 numa=4 gpus=H100:4 labels=zone:b",
		"drain node=n1 undo=1", "drain node=n2 undo=1", "drain node=n3 undo=1",
		"drain node=n1 gpus=0,1,2,3 undo=1", "drain node=n2 gpus=0,1,2,3 undo=1", "drain node=n3 gpus=0,1,2,3 undo=1",
	} {
		s.apply(t, parseCommand(t, line)...)
	}
	for range 300 {
		waiting := s.state.Counts().Running
		var lines []string
		s.state.LiveTurns(func(u *state.Turn) bool {
			if u.State == state.TurnHeld {
				lines = append(lines, fmt.Sprintf("yield turn=%d token=%d", u.ID, u.Token))
			}
			return true
		})
		s.state.NodeGroups(func(g *state.NodeGroup) bool {
			if g.Members.Waits != state.NobodyWaits {
				waiting++
			}
			return true
		})
		s.now += int64(time.Second)
		for _, line := range append(lines, endOfOne(s)) {
			if line != "" {
				s.apply(t, parseCommand(t, line)...)
			}
		}
		s.apply(t)
		if waiting == 0 {
			return
		}
	}
	t.Fatalf("turns still wait:\n%s%s", s.showLedger(), s.show())
}

// endOfOne reports the end of the oldest action that runs.
func endOfOne(s *story) (line string) {
	s.state.Actions(0, func(a *state.Action) bool {
		if a.State == state.ActionRunning {
			line = fmt.Sprintf("report node=%s inc=%d action=%d attempt=%d exec=%dms", s.state.Node(a.Node).Name, s.state.Node(a.Node).Incarnation, a.ID, a.Attempt, max(1, (s.now-a.StartedAt)/1_000_000))
		}
		return line == ""
	})
	return line
}

// randomMemberLine draws one command about groups with members.
func randomMemberLine(r *rapid.T, s *story) string {
	n := func(label string, most int) int { return rapid.IntRange(0, most).Draw(r, label) }
	group := []string{"a", "b"}[n("group", 1)]
	node := fmt.Sprintf("n%d", 1+n("node", 2))
	switch n("verb", 19) {
	case 0, 1:
		return fmt.Sprintf("group name=%s %s", group, randomMembers(n))
	case 2:
		return fmt.Sprintf("set-members name=%s %s", group, randomMembers(n))
	case 3:
		return fmt.Sprintf("job name=j%d nodes=%d backfill=%s cycle=%s", n("job", 3), 1+n("nodes", 1), []string{"", "1"}[n("backfill", 1)], []string{"", "20:0+5x1", "30:2+4x2,12+5x1"}[n("cycle", 2)])
	case 4, 5:
		return fmt.Sprintf("turn of=j%d/%s step=%d expect=%ds preemptible=%s", n("job", 3), []string{"x", "y"}[n("deployment", 1)], n("step", 3), n("expect", 8), []string{"", "1"}[n("preemptible", 1)])
	case 6, 7:
		return endOfATurn(n, s)
	case 8, 9, 10:
		return fmt.Sprintf("submit n=%d cores=0 gpus=%s class=%s single=%ds serial=%d attempts=2 model=%s", 1+n("n", 2), []string{"1", "2", "4", "8", "1,2,4"}[n("gpus", 4)], []string{"", "c"}[n("class", 1)], n("single", 15), 100_000*n("serial", 3), []string{"", "m"}[n("model", 1)])
	case 11, 12:
		return endOfOne(s)
	case 13:
		if row := s.state.NodeByName(node); row != nil {
			return fmt.Sprintf("expire node=%s inc=%d", node, row.Incarnation)
		}
		return "remove node=" + node
	case 18:
		return "delete-group name=" + group
	case 19:
		return fmt.Sprintf("%s job=j%d", []string{"suspend", "resume-job", "complete"}[n("change", 2)], n("job", 3))
	case 14:
		return fmt.Sprintf("register node=%s numa=4 gpus=H100:%d labels=zone:%s", node, []int{4, 8}[n("gpus", 1)], []string{"a", "b"}[n("zone", 1)])
	}
	if n("health", 1) == 1 {
		return healthLine(n, s, node)
	}
	return fmt.Sprintf("%s node=%s undo=%s", []string{"drain", "remove"}[n("how", 1)], node, []string{"", "1"}[n("undo", 1)])
}

// healthLine draws what a node or an operator says of its GPUs.
func healthLine(n func(string, int) int, s *story, node string) string {
	gpus := []string{"", "0", "1", "0,3", "2,3", "9"}[n("sick", 5)]
	if n("who", 2) == 0 {
		return fmt.Sprintf("drain node=%s gpus=%s undo=%s reason=fan", node, gpus, []string{"", "1"}[n("undo", 1)])
	}
	inc := uint64(0)
	if row := s.state.NodeByName(node); row != nil {
		inc = row.Incarnation
	}
	reasons := ""
	for range strings.FieldsFunc(gpus, func(r rune) bool { return r == ',' }) {
		reasons += []string{"XID_79,", "ECC,"}[n("reason", 1)]
	}
	return fmt.Sprintf("sick node=%s inc=%d gpus=%s reasons=%s", node, inc, gpus, strings.TrimSuffix(reasons, ","))
}

func randomMembers(n func(string, int) int) string {
	list := []string{"", "members=n1:0+4", "members=n1:0+4,n1:4+4", "members=n1:4+2,n2:0+4", "members=n2,n3", "members=n3:0+2,n3:2+2", "members=n1"}[n("members", 6)]
	selector := []string{"", " select=zone:a:4", " select=zone:b:2"}[n("select", 2)]
	if list == "" {
		list = fmt.Sprintf("nodes=%d", 1+n("nodes", 1))
	}
	return list + selector
}

// endOfATurn ends the first turn that holds a group, or gives up the first that waits.
func endOfATurn(n func(string, int) int, s *story) (line string) {
	verb := []string{"yield", "yield", "lost", "give-up", "give-up"}[n("end", 4)]
	s.state.LiveTurns(func(u *state.Turn) bool {
		if u.State == state.TurnHeld || verb == "give-up" {
			line = fmt.Sprintf("%s turn=%d token=%d", verb, u.ID, u.Token)
		}
		return line == ""
	})
	return line
}

// TestGapOfABackfillGroup: without reservations a gap has no end, and an action of which
// nothing is known gets no part of it.
func TestGapOfABackfillGroup(t *testing.T) {
	s := newStory(t)
	s.now = int64(time.Second)
	for _, line := range []string{"register node=n1 numa=4 gpus=H100:4", "group name=a members=n1", "submit gpus=4 cores=0", "submit gpus=4 cores=0 single=900s"} {
		s.apply(t, parseCommand(t, line)...)
	}
	if until := s.state.NodeGroup(1).Members.GapUntil; until != math.MaxInt64 {
		t.Errorf("the gap ends at %d", until)
	}
	if a, b := s.state.Action(1).State, s.state.Action(2).State; a != state.ActionQueued || b != state.ActionRunning {
		t.Errorf("the action without a duration is in state %d, the other in state %d", a, b)
	}
}

// TestBackfillClosesTheGap: the turn of a job without a reservation has the group that the job
// is placed on, and no action of the same entry starts in the gap that was open till then.
func TestBackfillClosesTheGap(t *testing.T) {
	s := newStory(t)
	s.tell(t, `
		entry at=1s
		register node=n1 numa=4 gpus=H100:4
		group name=a members=n1
		job name=j nodes=1 backfill=1
		entry at=1s
		suspend job=j
		entry at=1s
		resume-job job=j
		turn of=j/x step=1 expect=5s
		submit gpus=4 cores=0 single=900s`)
	if turn, action := s.state.Turn(1).State, s.state.Action(1).State; turn != state.TurnHeld || action != state.ActionQueued {
		t.Errorf("the turn is in state %d, the action in state %d", turn, action)
	}
}

// TestAReplacedMemberLeavesItsGPUs: when a spare takes the place of a member of which one GPU is
// sick, its other GPU is there for actions that wait, though nothing else was freed.
func TestAReplacedMemberLeavesItsGPUs(t *testing.T) {
	s := newStory(t)
	s.tell(t, `
		entry at=1s
		register node=n1 numa=4 gpus=H100:4 labels=zone:b
		group name=a nodes=1 select=zone:b:2
		job name=j nodes=1
		submit gpus=2 cores=0 single=9s
		entry at=1s
		submit gpus=1 cores=0 single=9s
		drain node=n1 gpus=0 reason=fan`)
	if members, action := s.state.NodeGroup(1).Members.List, s.state.Action(2).State; members[0].First != 2 || action != state.ActionRunning {
		t.Errorf("the members are %+v, the action is in state %d", members, action)
	}
}
