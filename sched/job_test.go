package sched

import (
	"testing"

	"rota/fsm/state"
)

// TestLeastHeld: the group that is reserved for a job is the one that is held least, of those
// that are wide enough; none, if one of these has room for anybody.
func TestLeastHeld(t *testing.T) {
	v := state.New()
	groups := []struct {
		nodes int64
		held  []int64 // slots of 100 by each of its jobs
	}{{2, []int64{1}}, {4, []int64{20, 20}}, {4, []int64{20}}, {4, []int64{30}}}
	job := state.JobID(0)
	for i, g := range groups {
		id := state.GroupID(i + 1)
		v.PutNodeGroup(&state.NodeGroup{ID: id, Name: string(rune('a' + i)), Nodes: g.nodes, Period: 100})
		for _, held := range g.held {
			job++
			v.PutJob(&state.Job{ID: job, Name: string(rune('a' + job)), State: state.JobRunning, Group: id})
			v.PutReservation(&state.Reservation{Job: job, Group: id, Cycle: state.Cycle{Period: 100, Segments: []state.Segment{{Length: held, Nodes: 1}}}})
		}
	}
	for _, c := range []struct {
		nodes int64
		want  state.GroupID
	}{{5, 0}, {4, 3}, {1, 1}} {
		if id, _ := leastHeld(v, c.nodes); id != c.want {
			t.Errorf("for a job of %d nodes group %d is kept, want %d", c.nodes, id, c.want)
		}
	}
	v.PutNodeGroup(&state.NodeGroup{ID: 9, Name: "empty", Nodes: 8})
	if id, _ := leastHeld(v, 4); id != 0 {
		t.Errorf("a group without jobs is there for whoever needs it, and group %d is to be kept", id)
	}
	v.PutJob(&state.Job{ID: 99, Name: "backfill", State: state.JobRunning, Group: 9, Backfill: true})
	if id, _ := leastHeld(v, 4); id != 0 {
		t.Errorf("nobody has reserved a group with a backfill job, and group %d is to be kept", id)
	}
}
