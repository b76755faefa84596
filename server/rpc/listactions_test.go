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
