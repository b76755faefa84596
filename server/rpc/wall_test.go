package rpc_test

import (
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// Log time stands still in an outage. What is submitted afterwards is shown with the time
// on the wall, and what was shown before keeps its time.
func TestTimesAreThoseOfTheWall(t *testing.T) {
	w := newWorld(t)
	first := w.submit(spec("true"))
	submitted := w.get(first).SubmitTime.AsTime()
	w.ahead = 10 * time.Minute // an outage
	before := time.Unix(0, w.logTime()).Add(w.ahead)
	second := w.submit(spec("true"))
	w.agent("n1", nil)
	if got := w.get(first).SubmitTime.AsTime(); !got.Equal(submitted) {
		t.Errorf("the first action was submitted at %v, and at %v before", got, submitted)
	}
	events, err := w.watchUntil(t.Context(), &rotav1.WatchActionsRequest{ActionId: second, AfterRevision: new(uint64)}, revision(w.machine))
	if err != nil || len(events) == 0 {
		t.Fatalf("%v, %v", events, err)
	}
	trajectory, err := connectTo(t, w.addr).OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	after := time.Unix(0, w.logTime()).Add(w.ahead)
	action := w.get(second)
	for what, at := range map[string]time.Time{
		"submission": action.SubmitTime.AsTime(), "start": w.get(first).StartTime.AsTime(),
		"event": events[0].Time.AsTime(), "trajectory": trajectory.OpenTime.AsTime(),
	} {
		if at.Before(before.Add(-time.Second)) || at.After(after.Add(time.Second)) {
			t.Errorf("%s: shown as %v, was between %v and %v", what, at, before, after)
		}
	}
	status, err := w.operators().GetStatus(t.Context(), &rotav1.GetStatusRequest{})
	if err != nil || status.LogTime.AsTime().After(time.Unix(0, w.logTime())) {
		t.Errorf("log time is %v, %v", status.GetLogTime().AsTime(), err)
	}
}
