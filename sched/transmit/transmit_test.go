package transmit_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
	"rota/sched/transmit"
)

// world is a view that a test makes up.
type world struct {
	nodes        map[state.NodeID]*state.Node
	trajectories map[state.TrajectoryID]*state.Trajectory
	running      map[state.NodeID]*state.Migration
}

func (w *world) Node(id state.NodeID) *state.Node                   { return w.nodes[id] }
func (w *world) Trajectory(id state.TrajectoryID) *state.Trajectory { return w.trajectories[id] }
func (w *world) RunningMigration(id state.NodeID) *state.Migration  { return w.running[id] }

func (w *world) start(m *state.Migration) { w.running[m.Source], w.running[m.Target] = m, m }

// pass starts what may start, as the state machine does.
func (w *world) pass(queued []*state.Migration) (started []state.MigrationID) {
	for _, m := range transmit.Order(queued) {
		if transmit.WaitsFor(w, m).Obstacle == transmit.None {
			w.start(m)
			started = append(started, m.ID)
		}
	}
	return started
}

func newWorld(nodes int) *world {
	w := &world{nodes: map[state.NodeID]*state.Node{}, trajectories: map[state.TrajectoryID]*state.Trajectory{}, running: map[state.NodeID]*state.Migration{}}
	for i := 1; i <= nodes; i++ {
		id := state.NodeID(i)
		w.nodes[id] = &state.Node{ID: id, State: state.NodeUp, CacheBytes: 1}
	}
	return w
}

func TestWaitsFor(t *testing.T) {
	running := &state.Migration{ID: 9, Source: 2, Target: 3}
	for _, c := range []struct {
		name string
		with func(*world)
		want transmit.Wait
	}{
		{"nothing", func(*world) {}, transmit.Wait{}},
		{"a source that drains", func(w *world) { w.nodes[1].Draining = true }, transmit.Wait{}},
		{"a source that is down", func(w *world) { w.nodes[1].State = state.NodeDown }, transmit.Wait{Obstacle: transmit.NodeDown, Node: 1}},
		{"a target that is gone", func(w *world) { delete(w.nodes, 2) }, transmit.Wait{Obstacle: transmit.NodeDown, Node: 2}},
		{"a target that drains", func(w *world) { w.nodes[2].Draining = true }, transmit.Wait{Obstacle: transmit.TargetDrains, Node: 2}},
		{"a source without a cache", func(w *world) { w.nodes[1].CacheBytes = 0 }, transmit.Wait{Obstacle: transmit.NoCache, Node: 1}},
		{"no action", func(w *world) { w.trajectories[5].Live = 0 }, transmit.Wait{Obstacle: transmit.NoGap}},
		{"a trajectory that ends", func(w *world) { w.trajectories[5].State = state.TrajectoryClosing }, transmit.Wait{Obstacle: transmit.NoGap}},
		{"no such trajectory", func(w *world) { delete(w.trajectories, 5) }, transmit.Wait{Obstacle: transmit.NoGap}},
		{"a busy target", func(w *world) { w.start(running) }, transmit.Wait{Obstacle: transmit.NodeBusy, Node: 2, Migration: 9}},
	} {
		w := newWorld(3)
		w.trajectories[5] = &state.Trajectory{ID: 5, State: state.TrajectoryOpen, Live: 1}
		c.with(w)
		if got := transmit.WaitsFor(w, &state.Migration{ID: 1, Trajectory: 5, Source: 1, Target: 2}); got != c.want {
			t.Errorf("with %s it waits for %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestOrderIsLongestFirstAndEachOnce(t *testing.T) {
	a, b, c := &state.Migration{ID: 1, Length: 5}, &state.Migration{ID: 2, Length: 9}, &state.Migration{ID: 3, Length: 5}
	if got := transmit.Order([]*state.Migration{c, a, b, a, c}); !slices.Equal(got, []*state.Migration{b, a, c}) {
		t.Errorf("order %v", got)
	}
}

// drawn is a world with migrations that are queued, each of a trajectory with a gap, without
// one, or of none.
func drawn(r *rapid.T, nodes, most int) (*world, []*state.Migration) {
	w := newWorld(nodes)
	w.trajectories[1] = &state.Trajectory{ID: 1, State: state.TrajectoryOpen, Live: 1}
	w.trajectories[2] = &state.Trajectory{ID: 2, State: state.TrajectoryOpen}
	w.nodes[1].Draining = rapid.Bool().Draw(r, "drains")
	var queued []*state.Migration
	for i := range rapid.IntRange(1, most).Draw(r, "migrations") {
		source := rapid.IntRange(1, nodes).Draw(r, "source")
		target := (source+rapid.IntRange(0, nodes-2).Draw(r, "target"))%nodes + 1
		queued = append(queued, &state.Migration{
			ID: state.MigrationID(i + 1), Source: state.NodeID(source), Target: state.NodeID(target), State: state.MigrationQueued,
			Trajectory: state.TrajectoryID(rapid.IntRange(0, 2).Draw(r, "trajectory")), Length: rapid.Uint64Range(0, 4).Draw(r, "length"),
		})
	}
	return w, queued
}

// fits says by itself which sets of migrations may run together: an oracle shares nothing with
// what it checks.
func fits(w *world, set []*state.Migration) bool {
	used := map[state.NodeID]int{}
	for _, m := range set {
		used[m.Source]++
		used[m.Target]++
		if m.Trajectory == 2 || w.nodes[m.Target].Draining {
			return false
		}
	}
	for _, n := range used {
		if n > 1 {
			return false
		}
	}
	return true
}

// TestTheLongestRunOfAllSetsThatFit: of all sets of migrations that may run together, the one is
// chosen that is first when their members are compared longest first. That is what greedy means.
func TestTheLongestRunOfAllSetsThatFit(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w, queued := drawn(r, 5, 9)
		ranked := slices.Clone(queued)
		slices.SortStableFunc(ranked, func(a, b *state.Migration) int { return int(b.Length) - int(a.Length) })
		best := ""
		var want []state.MigrationID
		for mask := range 1 << len(ranked) {
			var set []*state.Migration
			var ids []state.MigrationID
			key := ""
			for i, m := range ranked {
				if mask>>i&1 == 1 {
					set, ids, key = append(set, m), append(ids, m.ID), key+"1"
				} else {
					key += "0"
				}
			}
			if key > best && fits(w, set) {
				best, want = key, ids
			}
		}
		if got := w.pass(queued); !slices.Equal(got, want) {
			r.Fatalf("started %v, want %v", got, want)
		}
	})
}

// TestNobodyWaitsInVain: what runs shares no node, and all that still waits waits for something
// that is true.
func TestNobodyWaitsInVain(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w, queued := drawn(r, 12, 60)
		started := w.pass(queued)
		var set []*state.Migration
		for _, m := range queued {
			if slices.Contains(started, m.ID) {
				set = append(set, m)
			}
		}
		if !fits(w, set) {
			r.Fatalf("%v run together", started)
		}
		for _, m := range queued {
			if !slices.Contains(started, m.ID) && fits(w, append(slices.Clone(set), m)) {
				r.Fatalf("migration %d waits beside %v", m.ID, started)
			}
			if blocker := transmit.WaitsFor(w, m).Migration; blocker != 0 && !slices.Contains(started, blocker) {
				r.Fatalf("migration %d waits for migration %d, which does not run", m.ID, blocker)
			}
		}
	})
}

// BenchmarkPass decides over 1,024 queued migrations of 256 nodes, none of which is busy.
func BenchmarkPass(b *testing.B) {
	w := newWorld(256)
	var queued []*state.Migration
	for i := range 1024 {
		queued = append(queued, &state.Migration{
			ID: state.MigrationID(i + 1), Source: state.NodeID(i*37%256 + 1), Target: state.NodeID((i*37+1+i*11%255)%256 + 1), Length: uint64(i * 7919 % 1009),
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.running)
		if len(w.pass(slices.Clone(queued))) < 64 {
			b.Fatal("too few run")
		}
	}
}

func ExampleOrder() {
	for _, m := range transmit.Order([]*state.Migration{{ID: 1, Length: 100}, {ID: 2, Length: 4000}, {ID: 3, Length: 100}}) {
		fmt.Println(m.ID, m.Length)
	}
	// Output:
	// 2 4000
	// 1 100
	// 3 100
}
