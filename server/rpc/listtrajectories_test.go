package rpc_test

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// listTrajectories returns the IDs of all pages.
func (w *world) listTrajectories(t *testing.T, req *rotav1.ListTrajectoriesRequest) string {
	t.Helper()
	ids := []uint64{}
	for req.PageSize = 2; ; {
		resp, err := w.trajectories().ListTrajectories(t.Context(), req)
		if err != nil {
			t.Fatalf("%v: %v", req, err)
		}
		for _, tr := range resp.Trajectories {
			ids = append(ids, tr.Id)
		}
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			return fmt.Sprint(ids)
		}
	}
}

func TestListsOfTrajectoriesAreFiltered(t *testing.T) {
	w := newWorld(t)
	w.agent("n1", nil)
	for i := range 6 {
		req := &rotav1.OpenTrajectoryRequest{
			RequestId: fmt.Sprintf("r%d", i), Name: []string{"django-", "flask-"}[i%2] + fmt.Sprint(i),
			Labels: map[string]string{"run": fmt.Sprint(i / 3), "team/task": []string{"a", "b"}[i%2]},
		}
		opened, err := w.trajectories().OpenTrajectory(t.Context(), req)
		if err != nil || opened.Trajectory.Labels["run"] != req.Labels["run"] || len(opened.Trajectory.Labels) != 2 {
			t.Fatalf("%v, %v", opened, err)
		}
		if again, err := w.trajectories().OpenTrajectory(t.Context(), req); err != nil || !again.Replayed {
			t.Fatalf("repeated: %v, %v", again, err)
		}
		req.Labels["run"] = "x"
		if _, err := w.trajectories().OpenTrajectory(t.Context(), req); connect.CodeOf(err) != connect.CodeAlreadyExists {
			t.Errorf("the same request with another label: %v", err)
		}
	}
	for _, id := range []uint64{2, 5} {
		if _, err := w.trajectories().CloseTrajectory(t.Context(), &rotav1.CloseTrajectoryRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
	}
	closed, open := rotav1.TrajectoryState_TRAJECTORY_STATE_CLOSED, rotav1.TrajectoryState_TRAJECTORY_STATE_OPEN
	now := time.Now()
	for want, req := range map[string]*rotav1.ListTrajectoriesRequest{
		"[1 3 4 6]":     {},
		"[6 4 3 1]":     {NewestFirst: true, Namespace: "*"},
		"[6 5 4 3 2 1]": {NewestFirst: true, IncludeEnded: true, OpenedSince: timestamppb.New(now.Add(-24 * time.Hour))},
		"[1 2 3]":       {IncludeEnded: true, Labels: map[string]string{"run": "0"}},
		"[3 1]":         {NewestFirst: true, Labels: map[string]string{"run": "0", "team/task": "a"}},
		"[]":            {Labels: map[string]string{"run": ""}},
		"[5 2]":         {NewestFirst: true, States: []rotav1.TrajectoryState{closed}},
		"[1 3 5]":       {NamePrefix: "django-", States: []rotav1.TrajectoryState{open, closed}},
		"[6 4]":         {NamePrefix: "flask-", Labels: map[string]string{"run": "1"}, Node: "n1", States: []rotav1.TrajectoryState{open}, NewestFirst: true, OpenedSince: timestamppb.New(time.Unix(1, 0))},
	} {
		if got := w.listTrajectories(t, req); got != want {
			t.Errorf("%v: got %s, want %s", req, got, want)
		}
	}
	for _, newest := range []bool{false, true} {
		if got := w.listTrajectories(t, &rotav1.ListTrajectoriesRequest{NewestFirst: newest, OpenedSince: timestamppb.New(now.Add(24 * 365 * 100 * time.Hour))}); got != "[]" {
			t.Errorf("in the future: %s", got)
		}
	}
}

// A page token is good only for the filters that it came with, and labels of lists are checked.
func TestPageTokensKnowTheirFilters(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		if _, err := w.trajectories().OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{Labels: map[string]string{"a": "1"}}); err != nil {
			t.Fatal(err)
		}
		s := spec("true")
		s.Labels = map[string]string{"a": "1"}
		w.submit(s)
	}
	first, err := w.trajectories().ListTrajectories(t.Context(), &rotav1.ListTrajectoriesRequest{PageSize: 1, Labels: map[string]string{"a": "1"}})
	if err != nil || first.NextPageToken == "" {
		t.Fatalf("%v, %v", first, err)
	}
	actions, err := w.actions().ListActions(t.Context(), &rotav1.ListActionsRequest{PageSize: 1, Labels: map[string]string{"a": "1"}})
	if err != nil || actions.NextPageToken == "" || actions.Actions[0].Spec.Labels["a"] != "1" {
		t.Fatalf("%v, %v", actions, err)
	}
	for _, labels := range []map[string]string{nil, {"a": "2"}, {"b": "1"}, {"a": "1", "b": "1"}, {"a b": ""}} {
		if _, err := w.trajectories().ListTrajectories(t.Context(), &rotav1.ListTrajectoriesRequest{PageToken: first.NextPageToken, Labels: labels}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("trajectories with %v: %v", labels, err)
		}
		if _, err := w.actions().ListActions(t.Context(), &rotav1.ListActionsRequest{PageToken: actions.NextPageToken, Labels: labels}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("actions with %v: %v", labels, err)
		}
	}
}
