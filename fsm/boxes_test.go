package fsm

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// wantHome fails unless a trajectory is on a node; "" means that it is pending.
func (s *story) wantHome(t rapid.TB, id state.TrajectoryID, want string) {
	t.Helper()
	if got := s.nodeName(s.state.Trajectory(id).Node); s.state.Trajectory(id).Node != 0 && got != want || s.state.Trajectory(id).Node == 0 && want != "" {
		t.Fatalf("trajectory %d is %s on %q, want it on %q", id, trajectoryStates[s.state.Trajectory(id).State], got, want)
	}
}

func TestATrajectoryWithAContainerGoesWhereContainersRun(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=plain numa=8 memory=2000")
	r := s.apply(t, parseCommand(t, "open container=yes")...)[0].Refusal
	if r.GetReason() != "UNSATISFIABLE" || !strings.Contains(r.GetMessage(), `no node of pool "default" runs containers: start an agent there with --containerd`) {
		t.Fatalf("without a node for it: %v", r)
	}
	s.lines(t, "register node=box numa=4 memory=1000 containers=yes labels=zone:a")
	for _, line := range []string{"open container=yes memory=1500", "open container=yes memory=1001"} {
		if r := s.apply(t, parseCommand(t, line)...)[0].Refusal; r.GetReason() != "UNSATISFIABLE" || !strings.Contains(r.GetMessage(), "and containers together") {
			t.Fatalf("%s: %v", line, r)
		}
	}
	s.lines(t, "open memory=100 container=yes", "open memory=100", "open memory=100 container=yes group=g label=zone", "open memory=100 container=yes group=g label=zone")
	for id, home := range []string{"box", "plain", "box", "box"} {
		s.wantHome(t, state.TrajectoryID(1+id), home)
	}
	s.lines(t, "open memory=1000 container=yes")
	if r := s.apply(t, parseCommand(t, "submit traj=5 cores=5")...)[0].Refusal; r.GetReason() != "UNSATISFIABLE" {
		t.Fatalf("five cores in a container: %v", r)
	}
}

// TestContainersHoldUpNobody: who waits for a node that runs containers, while there is none in office,
// does not hold up others, and goes to the first that comes to run them.
func TestContainersHoldUpNobody(t *testing.T) {
	for _, leave := range []string{"expire node=box inc=2", "drain node=box", "register node=box numa=4 memory=1000 inc=2"} {
		for _, comes := range []string{"register node=plain numa=4 memory=2000 inc=1 containers=yes", "register node=new numa=4 containers=yes"} {
			s := newStory(t)
			s.lines(t, "register node=plain numa=4 memory=2000", "register node=box numa=4 memory=1000 containers=yes")
			s.lines(t, "open memory=800 container=yes", "open memory=800 container=yes", "open memory=2000", "open memory=50")
			s.wantHome(t, 1, "box")
			s.wantHome(t, 4, "") // in line, as behind any other that waits for memory
			s.lines(t, leave)
			s.wantHome(t, 3, "plain")
			s.wantHome(t, 2, "")
			s.lines(t, "close id=3", comes)
			s.wantHome(t, 2, strings.TrimPrefix(strings.Fields(comes)[1], "node="))
		}
	}
}

// TestContainersCameWithALevel: before it a node says so in vain, and a trajectory is not proposed.
func TestContainersCameWithALevel(t *testing.T) {
	open := parseCommand(t, "open container=yes")[0]
	for level, want := range map[state.Level]bool{2: false, 3: true} {
		if r := Premature(open, func() state.Level { return level }); (r == nil) != want {
			t.Errorf("at level %d: %v", level, r)
		}
		b := newBuild(state.LevelResizing)
		b.Apply(entryLog(t, 1, 1, bootstrapBy(level)))
		b.do(t, 2, "register node=n1 numa=4 containers=yes")
		b.View(func(s *state.State) {
			if n := s.NodeByName("n1"); n.Containers != want || s.Check() != nil {
				t.Errorf("at level %d: %v, %v", level, n.Containers, s.Check())
			}
		})
	}
}

// A node is told of a trajectory with a container when that gets the node, and of no other.
func TestNodesAreToldOfPlacedContainers(t *testing.T) {
	s := newStory(t)
	for _, step := range []struct {
		line string
		want []string
	}{
		{"register node=box numa=4 memory=1000 containers=yes", nil},
		{"open container=yes memory=600", []string{"box"}},
		{"open memory=100", nil},
		{"open container=yes memory=600", nil}, // it waits
		{"submit trajectory=3", nil},
		{"close id=1", []string{"box"}},
	} {
		if got := s.toldOf(t, EffectPlaced, step.line); !slices.Equal(got, step.want) {
			t.Errorf("%s: nodes %v are told, want %v", step.line, got, step.want)
		}
	}
}
