package rpc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/codec"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// list returns the IDs of all pages.
func (w *world) list(t *testing.T, req *rotav1.ListActionsRequest) string {
	t.Helper()
	ids := []uint64{}
	for req.PageSize = 2; ; {
		resp, err := w.actions().ListActions(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range resp.Actions {
			ids = append(ids, a.Id)
		}
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			return fmt.Sprint(ids)
		}
	}
}

// TestPagesOfLargeRowsAreShort: a page has not much more than 4 MiB, and the next one goes on behind it.
func TestPagesOfLargeRowsAreShort(t *testing.T) {
	w := newWorld(t)
	large := spec("true", strings.Repeat("x", 60<<10))
	const submissions, each = 3, 50
	for range submissions {
		if _, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Actions: slices.Repeat([]*rotav1.ActionSpec{large}, each)}); err != nil {
			t.Fatal(err)
		}
	}
	req, next, pages := &rotav1.ListActionsRequest{PageSize: 1000}, uint64(1), 0
	for ; pages == 0 || req.PageToken != ""; pages++ {
		resp, err := w.actions().ListActions(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if n := proto.Size(resp); n > 5<<20 {
			t.Errorf("a page has %d bytes", n)
		}
		for _, a := range resp.Actions {
			if a.Id != next {
				t.Fatalf("action %d is where %d should be", a.Id, next)
			}
			next++
		}
		req.PageToken = resp.NextPageToken
	}
	if next != submissions*each+1 || pages != 3 {
		t.Errorf("%d pages end before action %d", pages, next)
	}
}

func TestListsAreFiltered(t *testing.T) {
	w := newWorld(t)
	w.agent("n1", nil)
	trajectories := rotav1connect.NewTrajectoryServiceClient(w.http, w.url, codec.ForClient())
	opened, err := trajectories.OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	in := opened.Trajectory.Id
	for i := range 6 {
		s := spec("true")
		s.Labels = map[string]string{"third": fmt.Sprint(i % 3)}
		s.Name, s.Class = []string{"even", "odd"}[i%2], []string{"", "small"}[i/3]
		if i%3 == 0 {
			s.TrajectoryId = in
		}
		w.submit(s)
	}
	now := time.Now()
	for want, req := range map[string]*rotav1.ListActionsRequest{
		"[1 2 3 4 5 6]": {},
		"[6 5 4 3 2 1]": {NewestFirst: true, Namespace: "*"},
		"[1 3 5]":       {Name: "even"},
		"[5 3 1]":       {Name: "even", NewestFirst: true},
		"[4 5 6]":       {Class: "small", SubmittedSince: timestamppb.New(now.Add(-24 * time.Hour))},
		"[1 4]":         {TrajectoryId: in},
		"[4 1]":         {TrajectoryId: in, NewestFirst: true},
		"[]":            {Class: "none", NewestFirst: true},
		"[2 5]":         {Labels: map[string]string{"third": "1"}},
		"[6]":           {Labels: map[string]string{"third": "2"}, Name: "odd", Class: "small", NewestFirst: true},
		"[4]":           {Class: "small", Name: "odd", SubmittedSince: timestamppb.New(time.Unix(1, 0)), NewestFirst: true, Node: "n1"},
	} {
		if got := w.list(t, req); got != want {
			t.Errorf("%v: got %s, want %s", req, got, want)
		}
	}
	for _, newest := range []bool{false, true} {
		if got := w.list(t, &rotav1.ListActionsRequest{NewestFirst: newest, SubmittedSince: timestamppb.New(now.Add(24 * 365 * 100 * time.Hour))}); got != "[]" {
			t.Errorf("in the future: %s", got)
		}
	}
	_, err = w.actions().ListActions(t.Context(), &rotav1.ListActionsRequest{Node: "nowhere"})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("of no node: %v", err)
	}
}

// TestListsOfLiveActionsUseIndexes: lists of queued actions, and of those that run on a node, have the
// rows that a look at all actions has, in both orders and page by page.
func TestListsOfLiveActionsUseIndexes(t *testing.T) {
	w := newWorld(t)
	w.agent("n1", nil) // with 4 cores
	w.agent("n2", nil)
	for range 12 {
		w.submit(spec("true"))
	}
	if _, err := w.actions().CancelActions(t.Context(), &rotav1.CancelActionsRequest{Ids: []uint64{10}}); err != nil {
		t.Fatal(err)
	}
	queued, running := rotav1.ActionState_ACTION_STATE_QUEUED, rotav1.ActionState_ACTION_STATE_RUNNING
	for _, newest := range []bool{false, true} {
		for _, req := range []*rotav1.ListActionsRequest{
			{States: []rotav1.ActionState{queued}},
			{States: []rotav1.ActionState{running}, Node: "n1"},
			{States: []rotav1.ActionState{running}, Node: "n2"},
		} {
			all, err := w.actions().ListActions(t.Context(), &rotav1.ListActionsRequest{NewestFirst: newest})
			if err != nil {
				t.Fatal(err)
			}
			want := []uint64{}
			for _, a := range all.Actions {
				if a.State == req.States[0] && (req.Node == "" || a.Node == req.Node) {
					want = append(want, a.Id)
				}
			}
			req.NewestFirst = newest
			if got := w.list(t, req); len(want) < 2 || got != fmt.Sprint(want) {
				t.Errorf("%v: got %s, want %v", req, got, want)
			}
		}
	}
}

// TestALiveActionBehindManyThatEnded: a list of live actions finds one behind more rows than a page looks at.
func TestALiveActionBehindManyThatEnded(t *testing.T) {
	const ended, each = 100_000, 4000 // as many as a page looks at
	w := newWorldOf(t, &logv1.Settings{QueueActionsMax: ended, QueueBytesMax: 1 << 30, RetentionBytesMax: 1 << 40})
	batch := make([]*logv1.Action, each)
	for i := range batch {
		batch[i] = &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1}
	}
	for range ended / each {
		first := w.apply(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{Namespace: "default", Actions: batch}}})[0].FirstId
		ids := make([]uint64, each)
		for i := range ids {
			ids[i] = first + uint64(i)
		}
		w.apply(&logv1.Command{Verb: &logv1.Command_CancelActions{CancelActions: &logv1.CancelActions{Ids: ids}}})
	}
	w.agent("n1", nil)
	for range 5 { // the last waits for a core
		w.submit(spec("true"))
	}
	for state, node := range map[rotav1.ActionState]string{rotav1.ActionState_ACTION_STATE_QUEUED: "", rotav1.ActionState_ACTION_STATE_RUNNING: "n1"} {
		resp, err := w.actions().ListActions(t.Context(), &rotav1.ListActionsRequest{States: []rotav1.ActionState{state}, Node: node})
		if err != nil || len(resp.Actions) == 0 {
			t.Errorf("%v: %d actions, token %q: %v", state, len(resp.GetActions()), resp.GetNextPageToken(), err)
		}
	}
}

// TestRowsThatMayNotBeReadTakeNoRoom on a page.
func TestRowsThatMayNotBeReadTakeNoRoom(t *testing.T) {
	s := newSecured(t)
	_, secret := s.token("reader-of-b", allow("b", "action", "read"), allow("b", "trajectory", "read"), allow("b", "snapshot", "read"))
	c := s.with(t, secret)
	actions, err := c.Actions.ListActions(t.Context(), &rotav1.ListActionsRequest{Namespace: "*", PageSize: 1})
	if err != nil || len(actions.Actions) != 1 || actions.NextPageToken != "" {
		t.Errorf("the first page of actions: %v, %v", actions, err)
	}
	trajectories, err := c.Trajectories.ListTrajectories(t.Context(), &rotav1.ListTrajectoriesRequest{Namespace: "*", PageSize: 1})
	if err != nil || len(trajectories.Trajectories) != 1 || trajectories.NextPageToken != "" {
		t.Errorf("the first page of trajectories: %v, %v", trajectories, err)
	}
	snapshots, err := c.Snapshots.ListSnapshots(t.Context(), &rotav1.ListSnapshotsRequest{Namespace: "*", PageSize: 1})
	if err != nil || len(snapshots.Snapshots) != 1 || snapshots.NextPageToken != "" {
		t.Errorf("the first page of snapshots: %v, %v", snapshots, err)
	}
}
