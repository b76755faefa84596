package rpc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// watchUntil collects events until the stream has reached a revision.
func (w *world) watchUntil(ctx context.Context, req *rotav1.WatchActionsRequest, revision uint64) (events []*rotav1.ActionEvent, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	stream, err := w.actions().WatchActions(ctx, req)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for stream.Receive() {
		events = append(events, stream.Msg().Events...)
		if stream.Msg().Revision >= revision {
			return events, nil
		}
	}
	return events, stream.Err()
}

func TestAWatchHasEveryEventOnce(t *testing.T) {
	w := newWorld(t)
	const n = 300
	var submitting sync.WaitGroup
	defer submitting.Wait() // an event may be faster than the answer
	submitting.Go(func() {
		for range n {
			w.submit(spec("true"))
		}
	})
	// Two watchers that each lose their stream again and again.
	for _, namespace := range []string{"default", "*"} {
		after, seen := uint64(0), 0
		for seen < n {
			events, err := w.watchUntil(t.Context(), &rotav1.WatchActionsRequest{Namespace: namespace, AfterRevision: &after}, after+1)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Revision <= after || e.ActionId != uint64(seen+1) || e.State != rotav1.ActionState_ACTION_STATE_QUEUED {
					t.Fatalf("after revision %d and %d actions comes %v", after, seen, e)
				}
				after = e.Revision
				seen++
			}
		}
	}
}

func TestAWatchFilters(t *testing.T) {
	w := newWorld(t)
	if _, err := w.operators().CreateNamespace(t.Context(), &rotav1.CreateNamespaceRequest{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	first := w.submit(spec("true"))
	second := w.submit(spec("true"))
	if _, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Namespace: "other", Actions: []*rotav1.ActionSpec{spec("true")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.actions().CancelActions(t.Context(), &rotav1.CancelActionsRequest{Ids: []uint64{first, second}}); err != nil {
		t.Fatal(err)
	}
	if status, answer := w.post("TrajectoryService/OpenTrajectory", `{}`); status != 200 {
		t.Fatalf("open a trajectory: %d %v", status, answer)
	}
	zero := proto.Uint64(0)
	for name, c := range map[string]struct {
		req  *rotav1.WatchActionsRequest
		want string
	}{
		"an action":       {&rotav1.WatchActionsRequest{ActionId: first, AfterRevision: zero}, "1:QUEUED 1:CANCELED "},
		"a namespace":     {&rotav1.WatchActionsRequest{AfterRevision: zero}, "1:QUEUED 2:QUEUED 1:CANCELED 2:CANCELED "},
		"another":         {&rotav1.WatchActionsRequest{Namespace: "other", AfterRevision: zero}, "3:QUEUED "},
		"all namespaces":  {&rotav1.WatchActionsRequest{Namespace: "*", AfterRevision: zero}, "1:QUEUED 2:QUEUED 3:QUEUED 1:CANCELED 2:CANCELED "},
		"a trajectory":    {&rotav1.WatchActionsRequest{TrajectoryId: 1, AfterRevision: zero}, ""},
		"from now on":     {&rotav1.WatchActionsRequest{}, ""},
		"an ended action": {&rotav1.WatchActionsRequest{ActionId: first}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			events, err := w.watchUntil(t.Context(), c.req, revision(w.machine))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, e := range events {
				got += fmt.Sprintf("%d:%s ", e.ActionId, e.State.String()[len("ACTION_STATE_"):])
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestAWatchBehindTheRingIsToldWhereToGoOn(t *testing.T) {
	w := newWorld(t) // keeps 2048 events
	old := w.submit(spec("true"))
	batch := make([]*rotav1.ActionSpec, 2500)
	for i := range batch {
		batch[i] = spec("true")
	}
	if _, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Actions: batch}); err != nil {
		t.Fatal(err)
	}
	_, err := w.watchUntil(t.Context(), &rotav1.WatchActionsRequest{AfterRevision: proto.Uint64(1)}, 1<<40)
	if d := client.Detail(err); connect.CodeOf(err) != connect.CodeOutOfRange || d.GetRevision() != revision(w.machine) {
		t.Errorf("watching from revision 1: %v with %v", err, d)
	}
	// Nothing of this action was lost, so its watcher need not notice.
	events, err := w.watchUntil(t.Context(), &rotav1.WatchActionsRequest{ActionId: old, AfterRevision: proto.Uint64(w.get(old).Revision)}, revision(w.machine))
	if err != nil || len(events) != 0 {
		t.Errorf("watching a quiet action: %v, %v", events, err)
	}
}

func TestAWatchFromTheFutureOfThisServer(t *testing.T) {
	w := newWorld(t)
	future := revision(w.machine) + 5
	// Nobody in the cluster has it, so it is from another one.
	_, err := w.watchUntil(t.Context(), &rotav1.WatchActionsRequest{AfterRevision: &future}, future)
	if connect.CodeOf(err) != connect.CodeOutOfRange || client.Detail(err).GetReason() != "REVISION_UNKNOWN" {
		t.Errorf("got %v", err)
	}
	// The cluster has it, only this server is behind: it catches up first.
	for range 5 {
		w.submit(spec("true"))
	}
	if events, err := w.watchUntil(t.Context(), &rotav1.WatchActionsRequest{AfterRevision: &future}, future); err != nil || len(events) != 0 {
		t.Errorf("got %v, %v", events, err)
	}
}

func TestADrainingServerEndsItsStreams(t *testing.T) {
	w := newWorld(t)
	stream, err := w.actions().WatchActions(t.Context(), &rotav1.WatchActionsRequest{})
	if err != nil || !stream.Receive() {
		t.Fatal(err, stream.Err())
	}
	health := grpchealth.NewClient(w.http, w.url)
	if h, err := health.Check(t.Context(), &grpchealth.CheckRequest{}); err != nil || h.Status != grpchealth.StatusServing {
		t.Errorf("before the drain, health is %v, %v", h, err)
	}
	w.server.Drain()
	if h, err := health.Check(t.Context(), &grpchealth.CheckRequest{}); err != nil || h.Status != grpchealth.StatusNotServing {
		t.Errorf("after it, health is %v, %v", h, err)
	}
	for range health.Watch(t.Context(), &grpchealth.CheckRequest{}) {
	} // ends as well
	for stream.Receive() {
	}
	if d := client.Detail(stream.Err()); d.GetReason() != "DRAINING" || d.RetryDelay == nil {
		t.Errorf("got %v with %v", stream.Err(), d)
	}
}

// A watch of something that has never been would wait for ever.
func TestAWatchOfNothingIsRefused(t *testing.T) {
	w := newWorld(t)
	id := w.submit(spec("true"))
	for reason, req := range map[string]*rotav1.WatchActionsRequest{
		"":                     {ActionId: id},
		"ACTION_NOT_FOUND":     {ActionId: id + 1},
		"TRAJECTORY_NOT_FOUND": {TrajectoryId: 1, Namespace: "*"},
	} {
		stream, err := w.actions().WatchActions(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := stream.Receive(); got != (reason == "") || client.Detail(stream.Err()).GetReason() != reason {
			t.Errorf("%v: %v, %v", req, got, stream.Err())
		}
		stream.Close()
	}
}

func TestListsArePaged(t *testing.T) {
	w := newWorld(t)
	for range 7 {
		w.submit(spec("true"))
	}
	canceled := w.submit(spec("true"))
	if _, err := w.actions().CancelActions(t.Context(), &rotav1.CancelActionsRequest{Ids: []uint64{canceled}}); err != nil {
		t.Fatal(err)
	}
	queued := []rotav1.ActionState{rotav1.ActionState_ACTION_STATE_QUEUED}
	var ids []uint64
	req := &rotav1.ListActionsRequest{PageSize: 3, States: queued}
	pages := 0
	for {
		resp, err := w.actions().ListActions(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, a := range resp.Actions {
			ids = append(ids, a.Id)
		}
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			break
		}
	}
	if fmt.Sprint(ids) != "[1 2 3 4 5 6 7]" || pages != 3 {
		t.Errorf("%d pages with %v", pages, ids)
	}
	// The token of one list is no good for another.
	resp, err := w.actions().ListActions(t.Context(), &rotav1.ListActionsRequest{PageSize: 3, States: queued})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.actions().ListActions(t.Context(), &rotav1.ListActionsRequest{PageSize: 3, PageToken: resp.NextPageToken})
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("token of another list: %v", err)
	}
}
