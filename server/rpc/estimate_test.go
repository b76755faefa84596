package rpc_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
)

// lasting is an action with all four cores of a node that takes a while.
func lasting(d time.Duration) *rotav1.ActionSpec {
	s := spec("make")
	s.Resources = &rotav1.Resources{Cores: new(uint32(4))}
	s.Profile = &rotav1.Profile{Duration: durationpb.New(d), Speedup: &rotav1.Profile_SerialPpm{SerialPpm: 1_000_000}}
	return s
}

// within reports whether an estimate is up to so long, and not much shorter: log time goes on
// while the test does.
func within(e *rotav1.StartEstimate, d time.Duration) bool {
	p50, p90 := e.GetP50().AsDuration(), e.GetP90().AsDuration()
	return e.GetUnknownReason() == "" && e.GetP50() != nil && p50 <= p90 && p50 <= d && p90 <= d*5/4 && (d == 0 || p50 > d-10*time.Minute)
}

// Each action of a submission is answered with when it starts, and so is who asks for it
// while it waits, and not later.
func TestSubmissionsAreAnsweredWithAnEstimate(t *testing.T) {
	w := newWorld(t)
	a := w.agent("n1", nil)
	req := &rotav1.SubmitActionsRequest{RequestId: "r", Actions: []*rotav1.ActionSpec{lasting(time.Hour), lasting(2 * time.Hour), lasting(time.Hour)}}
	resp, err := w.actions().SubmitActions(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if e := resp.Estimates; len(e) != 3 || !within(e[0], 0) || !within(e[1], time.Hour) || !within(e[2], 3*time.Hour) {
		t.Errorf("estimates %v", e)
	}
	if got := w.get(resp.Ids[0]); got.Estimate != nil || got.State != rotav1.ActionState_ACTION_STATE_RUNNING {
		t.Errorf("an action that runs is to start: %v", got)
	}
	if got := w.get(resp.Ids[2]); !within(got.Estimate, 3*time.Hour) {
		t.Errorf("an action that waits: %v", got.Estimate)
	}
	if again, err := w.actions().SubmitActions(t.Context(), req); err != nil || !again.Replayed || !within(again.Estimates[1], time.Hour) {
		t.Errorf("the same request again: %v, %v", again, err)
	}
	a.report(resp.Ids[0], 1, exited(0))
	if got := w.get(resp.Ids[2]); !within(got.Estimate, 2*time.Hour) {
		t.Errorf("with one fewer before it: %v", got.Estimate)
	}
	batch, err := w.actions().BatchSubmitActions(t.Context(), &rotav1.BatchSubmitActionsRequest{Requests: []*rotav1.SubmitActionsRequest{
		{Actions: []*rotav1.ActionSpec{lasting(time.Hour)}}, {Actions: []*rotav1.ActionSpec{{}}}, {Actions: []*rotav1.ActionSpec{spec("true"), spec("true")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if e := batch.Results[0].GetResponse().GetEstimates(); len(e) != 1 || !within(e[0], 3*time.Hour) {
		t.Errorf("first of a batch: %v", e)
	}
	if e := batch.Results[2].GetResponse().GetEstimates(); len(e) != 2 || !within(e[1], 4*time.Hour) {
		t.Errorf("last of a batch: %v", e)
	}
}

func TestWhatIsNotKnownHasAReason(t *testing.T) {
	w := newWorld(t)
	resp, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{spec("true")}})
	if err != nil {
		t.Fatal(err)
	}
	if e := resp.Estimates[0]; e.P50 != nil || e.P90 != nil || !strings.Contains(e.UnknownReason, `pool "default" has no node`) {
		t.Errorf("without a node: %v", e)
	}
	w.agent("n1", nil)
	long := spec("make")
	long.Resources = &rotav1.Resources{Cores: new(uint32(4))}
	w.submit(long)
	if got := w.get(w.submit(long)).Estimate; got.GetP90() != nil || !strings.Contains(got.GetUnknownReason(), "it is not known how long") {
		t.Errorf("behind what is unknown: %v", got)
	}
}

// What has no room in the queue, or in that of its namespace, costs no entry of the log.
func TestARefusalForWantOfRoomIsNotProposed(t *testing.T) {
	w := newWorldOf(t, &logv1.Settings{EventsMax: 2048, QueueActionsMax: 2})
	w.submit(lasting(time.Hour))
	w.apply(&logv1.Command{Verb: &logv1.Command_UpdateNamespace{UpdateNamespace: &logv1.UpdateNamespace{Name: "default", QueuedMax: new(uint32(1))}}})
	for reason, actions := range map[string]int{"NAMESPACE_QUEUE_FULL": 1, "QUEUE_FULL": 2} {
		before := w.machine.Applied()
		_, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Actions: slices.Repeat([]*rotav1.ActionSpec{spec("true")}, actions)})
		if d := client.Detail(err); connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetReason() != reason || d.RetryDelay.AsDuration() < time.Second {
			t.Errorf("%s: %v", reason, err)
		}
		if w.machine.Applied() != before {
			t.Errorf("%s: the refusal costs an entry of the log", reason)
		}
	}
}

// Who meets a full queue is told when there will be room.
func TestAFullQueueSaysWhenThereIsRoom(t *testing.T) {
	w := newWorldOf(t, &logv1.Settings{EventsMax: 2048, QueueActionsMax: 1})
	w.agent("n1", nil)
	w.submit(lasting(time.Hour))
	w.submit(lasting(time.Second))
	_, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{spec("true")}})
	d := client.Detail(err)
	if connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetReason() != "QUEUE_FULL" {
		t.Fatal(err)
	}
	if delay := d.RetryDelay.AsDuration(); delay != 10*time.Second {
		t.Errorf("try again after %v, want the most that there is: the next starts in an hour", delay)
	}
}
