package fsm

import (
	"fmt"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/place"
)

// TestAFenceLosesSnapshotsAtOnce: a recovered state gives up all nodes in one entry, and ends what ran on
// them in later ones. Snapshots do not wait for that: none is on a node that is down.
func TestAFenceLosesSnapshotsAtOnce(t *testing.T) {
	r := newRestoring(t, "old")
	r.lines("register node=n1 numa=1 memory=4096")
	var opens []*logv1.Command
	for range place.TrajectoriesPerNodeMax { // more than one entry ends
		opens = append(opens, parseCommand(t, "open memory=1")...)
	}
	for len(opens) > 0 {
		n := min(1024, len(opens))
		r.do(opens[:n]...)
		opens = opens[n:]
	}
	inc := r.lines("register node=n2 numa=1 memory=4096").Incarnation
	last := r.lines("open memory=1").FirstId
	snapshot := r.lines(fmt.Sprintf("snapshot traj=%d", last)).FirstId
	r.lines(fmt.Sprintf("snapshot-is node=n2 inc=%d id=%d state=ready", inc, snapshot))
	r.m.View(func(s *state.State) {
		if got := s.FileSnapshot(state.FileSnapshotID(snapshot)); got.State != state.FileSnapshotReady {
			t.Fatalf("the snapshot is %+v", got)
		}
	})
	refound := &logv1.Command{Verb: &logv1.Command_Refound{Refound: &logv1.Refound{ClusterId: "new", Index: r.index, Term: 1}}}
	if got := r.do(refound); got.Refusal != nil { // and the state is consistent after it
		t.Fatal(got.Refusal)
	}
	r.m.View(func(s *state.State) {
		if got := s.FileSnapshot(state.FileSnapshotID(snapshot)); got.State != state.FileSnapshotLost || got.Message == "" {
			t.Errorf("the snapshot is %+v", got)
		}
	})
}
