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

// gangLine draws a submission of gangs, mostly one that can be.
func gangLine(n func(string, int) int) string {
	size := 1 + n("size", 4)
	line := fmt.Sprintf("submit ns=%s n=%d gang=%d cores=%d memory=%d net=%d", []string{"default", "default", "b"}[n("ns", 2)], size*(1+n("gangs", 2)/2)+n("odd", 9)/9, size, 1+n("cores", 2), 100*n("memory", 3), 200*n("net", 3)/3)
	line += []string{"", "", " spread=yes"}[n("spread", 2)] + []string{"", "", " timeout=9s"}[n("timeout", 2)]
	if n("gpus", 2) == 0 {
		line += fmt.Sprintf(" gpus=%d gpuclass=H100 gpumem=%d", 1<<n("degree", 3), 20*n("gpumem", 2))
		line += []string{"", " model=a", " model=b setup=4s"}[n("model", 2)]
	}
	return line + []string{"", "", "", "", "", " attempts=2", " max=5", " traj=1", " quotas=calls:1", " class=c0"}[n("with", 9)]
}

// TestGangsStartWholeOrNotAtAll: with actions of all kinds that come and go, a gang starts in one
// entry or not at all. That no member goes on when another did not succeed is an invariant of the
// state, and the model says the rest.
func TestGangsStartWholeOrNotAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) }
		s := newStory(t)
		for i := range 1 + n("nodes", 4) {
			s.lines(t, fmt.Sprintf("register node=n%d numa=%s memory=800 net=400 gpus=%s", i+1, []string{"4", "2+2", "6"}[n("cores", 2)], []string{"H100:8", "H100:4", "L4:4"}[n("gpus", 2)]))
		}
		if n("namespaces", 1) == 1 {
			s.lines(t, "namespace name=b", []string{"tick", "set-namespace name=b cores=7", "set-namespace name=b running=3 weight=2", "set-namespace name=default gpus=9"}[n("limits", 3)])
		}
		for range rapid.IntRange(5, 40).Draw(t, "entries") {
			s.now += int64(time.Duration(n("step", 4)) * time.Second)
			before := s.state.Meta().Revision
			var commands []string
			for range 1 + n("commands", 2) {
				commands = append(commands, gangStoryLine(t, s))
			}
			s.lines(t, commands...)
			wholeGangs(t, s, before)
		}
	})
}

// gangStoryLine draws a command of a cluster that is mostly busy with gangs and single actions.
func gangStoryLine(r *rapid.T, s *story) string {
	n := func(label string, most int) int { return rapid.IntRange(0, most).Draw(r, label) }
	node := fmt.Sprintf("n%d", 1+n("node", 4))
	switch n("what", 12) {
	case 0, 1, 2:
		return gangLine(n)
	case 3, 4:
		return fmt.Sprintf("submit ns=%s n=%d cores=%d memory=%d", []string{"default", "default", "b"}[n("ns", 2)], 1+n("n", 3), 1+n("cores", 5), 100*n("memory", 3))
	case 5:
		return gpuLine(n)
	case 6:
		return fmt.Sprintf("cancel ids=%d", 1+n("action", int(s.state.Meta().LastAction)))
	case 7:
		if n("health", 1) == 1 {
			return healthLine(n, s, node)
		}
		return fmt.Sprintf("drain node=%s%s", node, []string{"", " undo=yes"}[n("undo", 1)])
	case 8:
		if row := s.state.NodeByName(node); row != nil && n("expire", 2) == 0 {
			return fmt.Sprintf("expire node=%s inc=%d", node, row.Incarnation)
		}
		return fmt.Sprintf("register node=%s numa=4 memory=800 net=400 gpus=H100:8", node)
	}
	if id := anyRunning(r, s); id != 0 {
		a := s.state.Action(id)
		return fmt.Sprintf("report node=%s inc=%d action=%d exit=%d", s.nodeName(a.Node), s.state.Node(a.Node).Incarnation, id, n("exit", 3)/3)
	}
	return "tick"
}

// wholeGangs: the events since a revision have all starts of a gang or none.
func wholeGangs(t rapid.TB, s *story, since uint64) {
	t.Helper()
	started := map[state.ActionID]uint32{}
	for rev := since + 1; rev <= s.state.Meta().Revision; rev++ {
		e, _ := s.state.Event(rev)
		if e.Kind != state.EventAction || state.ActionState(e.State) != state.ActionRunning {
			continue
		}
		if a := s.state.Action(state.ActionID(e.Subject)); a.Gang != 0 {
			started[a.Gang]++
		}
	}
	for first, n := range started {
		if size := s.state.Action(first).GangSize; n != size {
			t.Fatalf("%d of the %d actions of gang %d started", n, size, first)
		}
	}
}

// TestAGangIsNotOvertakenForEver: actions of one core come without an end, each as soon as one has
// ended, and a gang that needs all nodes starts all the same, within the bounds of the bypass and
// what runs then.
func TestAGangIsNotOvertakenForEver(t *testing.T) {
	for _, gang := range []string{"submit n=3 gang=3 cores=4", "submit n=3 gang=3 cores=3 spread=yes", "submit n=6 gang=6 cores=1 gpus=2 gpuclass=H100"} {
		single := "submit cores=1"
		if strings.Contains(gang, "gpus") {
			single = "submit cores=1 gpus=1 gpuclass=H100"
		}
		s := newStory(t)
		for i := range 3 {
			s.lines(t, fmt.Sprintf("register node=n%d numa=4 gpus=H100:4", i+1))
		}
		for range 12 {
			s.lines(t, single)
		}
		s.lines(t, gang)
		rounds := 0
		for ; s.state.Action(13).State == state.ActionQueued && rounds < 200; rounds++ {
			s.now += int64(100 * time.Millisecond)
			oldest := state.ActionID(0)
			s.state.Actions(0, func(a *state.Action) bool {
				if a.State == state.ActionRunning {
					oldest = a.ID
				}
				return oldest == 0
			})
			a := s.state.Action(oldest)
			s.lines(t, fmt.Sprintf("report node=%s inc=%d action=%d", s.nodeName(a.Node), s.state.Node(a.Node).Incarnation, oldest), single)
		}
		if rounds > 3+12 { // as many bypasses as the story allows, then what ran
			t.Errorf("%s waits after %d ends", gang, rounds)
		}
	}
}

// TestEveryMemberOfALargeGangIsToldToEnd although that is more than one entry does.
func TestEveryMemberOfALargeGangIsToldToEnd(t *testing.T) {
	s := newStory(t)
	const gangs = 8
	for i := range gangs {
		s.lines(t, fmt.Sprintf("register node=n%d numa=256", i+1))
	}
	s.lines(t, fmt.Sprintf("submit n=%d gang=256 cores=1", gangs*256))
	s.wantState(t, gangs*256, state.ActionRunning)
	var reports []*logv1.Command
	for i := range gangs {
		a := s.state.Action(state.ActionID(1 + 256*i))
		reports = append(reports, parseCommand(t, fmt.Sprintf("report node=%s inc=%d action=%d exit=1", s.nodeName(a.Node), s.state.Node(a.Node).Incarnation, a.ID))...)
	}
	s.apply(t, reports...)
	if !s.state.HasWork() {
		t.Fatal("one entry did it all, which is not what this is about")
	}
	for range 4 {
		s.lines(t, "tick")
	}
	s.state.Actions(0, func(a *state.Action) bool {
		if a.State == state.ActionRunning && a.CancelReason != state.EndGangEnded {
			t.Fatalf("action %d goes on", a.ID)
		}
		return true
	})
}

// TestAGangComesBackWithItsGPUs: a gang for which too few GPUs are in use waits aside, and starts when
// they are well or in use again.
func TestAGangComesBackWithItsGPUs(t *testing.T) {
	for _, c := range [][2]string{
		{"sick node=n2 inc=2 gpus=3 reasons=ECC", "sick node=n2 inc=2"},
		{"drain node=n2 gpus=3 reason=fan", "drain node=n2 gpus=3 undo=1"},
	} {
		s := newStory(t)
		s.lines(t, "register node=n1 numa=4 gpus=H100:4", "register node=n2 numa=4 gpus=H100:4")
		s.lines(t, "submit n=4 gang=2 cores=1 gpus=4 gpuclass=H100")
		s.lines(t, c[0])
		if a := s.state.Action(3); !a.Aside {
			t.Fatalf("after %q it does not wait aside: %+v", c[0], a)
		}
		s.lines(t, "report node=n1 inc=1 action=1", "report node=n2 inc=2 action=2")
		s.lines(t, c[1])
		if a := s.state.Action(3); a.State != state.ActionRunning {
			t.Errorf("after %q it does not run: %+v", c[1], a)
		}
	}
}
