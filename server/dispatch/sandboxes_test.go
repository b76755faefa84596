package dispatch

import (
	"fmt"
	"slices"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// sandboxSpec is the encoded specification of a trajectory with a container.
func sandboxSpec(t testing.TB, image string) string {
	t.Helper()
	spec, err := (&rotav1.TrajectorySpec{Container: &rotav1.Container{Image: image}}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	return string(spec)
}

// sandboxesIn are the trajectories and images that a message names.
func sandboxesIn(m *rotav1.WatchNodeResponse) (out []string) {
	for _, d := range m.GetSandboxes() {
		out = append(out, fmt.Sprint(d.GetTrajectoryId(), " ", d.GetContainer().GetImage(), " ", d.GetSnapshotId()))
	}
	return out
}

// The agent hears once on a stream of each sandbox to open ahead: of those that are open when the stream
// begins, and then of what was placed.
func TestSandboxesToOpenAhead(t *testing.T) {
	c := newCluster(t)
	put := func(rows ...state.Trajectory) {
		c.change(func(s *state.State) {
			for _, r := range rows {
				r.Namespace, r.Pool, r.Spec = 1, 1, sandboxSpec(t, fmt.Sprint("image:", r.ID))
				s.PutTrajectory(&r)
			}
		})
	}
	on := func(id state.TrajectoryID, node state.NodeID) state.Trajectory {
		return state.Trajectory{ID: id, Node: node, State: state.TrajectoryOpen, Container: true}
	}
	directory, closing, paused, forked := on(2, 1), on(3, 1), on(5, 1), on(6, 1)
	directory.Container = false
	closing.State, paused.PausedAt, forked.Snapshot = state.TrajectoryClosing, 1, 9
	put(on(1, 1), directory, closing, on(4, 2), paused, forked)
	s := c.changing()
	told := func(when string, want ...string) {
		t.Helper()
		if got := sandboxesIn(mustNext(t, s)); !slices.Equal(got, want) {
			t.Errorf("%s: told of %q, want %q", when, got, want)
		}
	}
	told("at first", "1 image:1 0", "6 image:6 9")
	put(on(7, 1))
	told("not placed, as far as the stream was told")
	s.placed.Store(true)
	told("placed", "7 image:7 0")
	s.placed.Store(true)
	told("told before")
	put(on(5, 1)) // resumed
	s.whole = true
	told("with the whole state", "5 image:5 0")
	s = c.changing()
	told("on another stream", "1 image:1 0", "5 image:5 0", "6 image:6 9", "7 image:7 0")
	c.change(func(s *state.State) {
		s.PutTrajectory(&state.Trajectory{ID: 8, Namespace: 1, Pool: 1, Node: 1, State: state.TrajectoryOpen, Container: true, Spec: "\xff"})
	})
	s.placed.Store(true)
	if m, err := s.next(); err == nil {
		t.Errorf("nonsense was told: %v", m)
	}
}

// A placement wakes up the stream of its node, and of no other.
func TestAPlacementIsToldAtOnce(t *testing.T) {
	c := newCluster(t)
	a := c.watch(t, &rotav1.WatchNodeRequest{Name: nodeName, Incarnation: 5, Changes: true})
	if m := a.next(); len(m.Sandboxes) != 0 {
		t.Fatalf("nothing is open: %v", m)
	}
	c.mu.Lock()
	next := c.st.Copy()
	next.PutTrajectory(&state.Trajectory{ID: 1, Namespace: 1, Pool: 1, Node: 1, State: state.TrajectoryOpen, Container: true, Spec: sandboxSpec(t, "tools:1")})
	c.st = next
	c.mu.Unlock()
	c.hub.Placed(2)
	c.hub.Placed(1)
	if m := a.next(); m.Since == 0 || !slices.Equal(sandboxesIn(m), []string{"1 tools:1 0"}) {
		t.Errorf("told %v", m)
	}
}

// BenchmarkPlaced is one placement on a node with 1,000 open sandboxes.
func BenchmarkPlaced(b *testing.B) {
	c := newCluster(b)
	open := func(id state.TrajectoryID) {
		c.change(func(s *state.State) {
			s.PutTrajectory(&state.Trajectory{ID: id, Namespace: 1, Pool: 1, Node: 1, State: state.TrajectoryOpen, Container: true, Spec: sandboxSpec(b, "tools:1")})
		})
	}
	const opened = 1000
	for id := range state.TrajectoryID(opened) {
		open(id + 1)
	}
	s := c.changing()
	mustNext(b, s)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		last := state.TrajectoryID(opened + i)
		c.change(func(st *state.State) {
			t := *st.Trajectory(last)
			t.State = state.TrajectoryClosed
			st.PutTrajectory(&t)
		})
		open(last + 1)
		s.placed.Store(true)
		b.StartTimer()
		if m := mustNext(b, s); len(m.Sandboxes) != 1 {
			b.Fatalf("told %v", m)
		}
	}
}
