package place_test

import (
	"cmp"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
	"rota/sched/place"
)

// newCluster has nodes of one core, which zone and rack say where they are.
func newCluster(nodes int, zone func(i int) string) *state.State {
	s := state.New()
	s.SetMeta(state.Meta{LastNode: state.NodeID(nodes), LastIncarnation: 1, LastNamespace: 1, LastPool: 1})
	s.PutNamespace(&state.Namespace{ID: 1, Name: "default"})
	s.PutPool(&state.Pool{ID: 1, Name: "default"})
	for i := range nodes {
		n := &state.Node{
			ID: state.NodeID(1 + i), Name: fmt.Sprint("n", i), Pool: 1, Incarnation: 1, State: state.NodeUp,
			NUMA: []state.CoreSet{state.CoreRange(0, 1)}, Free: state.CoreRange(0, 1), Memory: 1 << 30, FreeMemory: 1 << 30,
			Labels: []state.Label{{Key: "host", Value: fmt.Sprint("n", i)}, {Key: "rack", Value: fmt.Sprint("r", i/40)}},
		}
		if z := zone(i); z != "" {
			n.Labels = append(n.Labels, state.Label{Key: "zone", Value: z})
		}
		s.PutNode(n)
	}
	return s
}

// open puts a trajectory on a node.
func open(s *state.State, t *state.Trajectory, n *state.Node) {
	m := *s.Meta()
	m.LastTrajectory++
	s.SetMeta(m)
	u := *t
	u.ID, u.State, u.Node, u.Spread.Domain = m.LastTrajectory, state.TrajectoryOpen, n.ID, n.Label(t.Spread.Label)
	s.PutTrajectory(&u)
	o := *n
	o.FreeMemory -= t.Memory
	o.Trajectories++
	s.PutNode(&o)
}

func inGroup(group, label string, memory uint64) *state.Trajectory {
	return &state.Trajectory{Namespace: 1, Pool: 1, State: state.TrajectoryPending, Memory: memory, Spread: state.Spread{Group: group, Label: label}}
}

// naive is the node that the documents promise, by looking at everything.
func naive(s *state.State, t *state.Trajectory) (best *state.Node) {
	group := func(n *state.Node) (count int) {
		s.Trajectories(0, func(o *state.Trajectory) bool {
			same := o.State == state.TrajectoryOpen && o.Spread.Group == t.Spread.Group && o.Spread.Label == t.Spread.Label
			if same && s.Node(o.Node).Label(t.Spread.Label) == n.Label(t.Spread.Label) {
				count++
			}
			return true
		})
		return count
	}
	s.Nodes(0, func(n *state.Node) bool {
		better := best == nil || cmp.Or(cmp.Compare(group(n), group(best)), cmp.Compare(best.FreeMemory, n.FreeMemory),
			cmp.Compare(n.Trajectories, best.Trajectories)) < 0
		if n.Usable() && n.FreeMemory >= t.Memory && (n.Containers || !t.Container) && better {
			best = n
		}
		return true
	})
	return best
}

// TestTrajectoriesAreSpread compares with a search through everything, while
// trajectories come and go, nodes come to be drained, and labels change.
func TestTrajectoriesAreSpread(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		zones := rapid.SampledFrom([]string{"", "a", "b", "c"})
		s := newCluster(rapid.IntRange(1, 12).Draw(r, "nodes"), func(int) string { return zones.Draw(r, "zone") })
		node := func() *state.Node {
			n := *s.Node(state.NodeID(rapid.IntRange(1, int(s.Meta().LastNode)).Draw(r, "node")))
			return &n
		}
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			switch rapid.IntRange(0, 6).Draw(r, "step") {
			case 0:
				n := node()
				n.Draining = !n.Draining
				s.PutNode(n)
			case 1:
				if id := state.TrajectoryID(rapid.IntRange(0, int(s.Meta().LastTrajectory)).Draw(r, "trajectory")); id != 0 {
					o := *s.Trajectory(id)
					o.State = state.TrajectoryClosed
					s.PutTrajectory(&o)
				}
			case 2:
				n := node()
				n.Containers = !n.Containers
				s.PutNode(n)
			default:
				group := rapid.SampledFrom([]string{"g", "h"}).Draw(r, "group")
				label := rapid.SampledFrom([]string{"zone", "host", "none"}).Draw(r, "label")
				o := inGroup(group, label, rapid.Uint64Range(0, 1<<29).Draw(r, "memory"))
				o.ID, o.Container = s.Meta().LastTrajectory+1, rapid.Bool().Draw(r, "container")
				s.PutTrajectory(o) // which waits
				got, _ := place.ForTrajectory(s, o)
				if want := naive(s, o); got != want {
					r.Fatalf("placed on %+v, want %+v", got, want)
				}
				if got == nil {
					s.DeleteTrajectory(o.ID)
				} else {
					open(s, o, got)
				}
			}
		}
	})
}

// TestSpreadOverManyDomains: of a thousand, not all are looked at, and still no
// domain gets a second one of a group before half of them have one.
func TestSpreadOverManyDomains(t *testing.T) {
	s := newCluster(1000, func(int) string { return "" })
	domains := map[string]int{}
	for i := range 500 {
		o := inGroup("g", "host", 1<<20)
		o.ID = state.TrajectoryID(i + 1)
		s.PutTrajectory(o)
		n, steps := place.ForTrajectory(s, o)
		if steps > 2*64+1 {
			t.Fatalf("the search took %d steps", steps)
		}
		if domains[n.Name]++; domains[n.Name] > 1 {
			t.Fatalf("trajectory %d is the second on %s", i+1, n.Name)
		}
		open(s, o, n)
	}
}

// BenchmarkForTrajectory is the choice of a node among 10,000, of which all have
// something of the group already.
func BenchmarkForTrajectory(b *testing.B) {
	const nodes = 10_000
	for _, label := range []string{"", "zone", "rack", "host"} {
		b.Run("label="+cmp.Or(label, "none"), func(b *testing.B) {
			s := newCluster(nodes, func(i int) string { return string(rune('a' + i%3)) })
			group := ""
			if label != "" {
				group = "g"
			}
			for i := range nodes {
				open(s, inGroup(group, label, 1<<20), s.Node(state.NodeID(1+i)))
			}
			t := inGroup(group, label, 1<<20)
			b.ReportAllocs()
			for b.Loop() {
				if n, _ := place.ForTrajectory(s, t); n == nil {
					b.Fatal("no node")
				}
			}
		})
	}
}

// BenchmarkFirstOfLabel is what it costs that the first trajectory over a label
// comes among 10,000 nodes, and that the last goes.
func BenchmarkFirstOfLabel(b *testing.B) {
	s := newCluster(10_000, func(i int) string { return string(rune('a' + i%3)) })
	t := inGroup("g", "zone", 1<<20)
	t.ID = 1
	b.ReportAllocs()
	for b.Loop() {
		s.PutTrajectory(t)
		s.DeleteTrajectory(t.ID)
	}
}
