package rpc_test

import (
	"maps"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// Actions are added up by trajectory, by labels, and by the values of a label.
func TestActionsAreSummarized(t *testing.T) {
	w := newWorld(t)
	w.agent("n1", nil)
	opened, err := w.trajectories().OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		s := spec("true")
		s.Labels = map[string]string{"run": []string{"a", "b", "c"}[i%3]}
		if i == 0 {
			s.TrajectoryId = opened.Trajectory.Id
			s.Labels["only"] = "this"
		}
		w.submit(s)
	}
	w.submit(spec("true")) // without labels
	if _, err := w.actions().CancelActions(t.Context(), &rotav1.CancelActionsRequest{Ids: []uint64{7}}); err != nil {
		t.Fatal(err)
	}
	count := func(req *rotav1.SummarizeActionsRequest) (all []uint64) {
		resp, err := w.actions().SummarizeActions(t.Context(), req)
		if err != nil || resp.Truncated {
			t.Fatalf("%v: %v, %v", req, resp, err)
		}
		for _, s := range resp.Summaries {
			all = append(all, s.Actions)
			if s.Succeeded+s.Failed+s.Running > s.Actions || s.Actions > 0 && s.Span.AsDuration() < 0 {
				t.Errorf("%v: %v", req, s)
			}
		}
		return all
	}
	for _, c := range []struct {
		req  *rotav1.SummarizeActionsRequest
		want []uint64
	}{
		{&rotav1.SummarizeActionsRequest{}, []uint64{7}},
		{&rotav1.SummarizeActionsRequest{TrajectoryId: opened.Trajectory.Id}, []uint64{1}},
		{&rotav1.SummarizeActionsRequest{Labels: map[string]string{"run": "b"}}, []uint64{2}},
		{&rotav1.SummarizeActionsRequest{GroupBy: "run"}, []uint64{2, 2, 2}},
		{&rotav1.SummarizeActionsRequest{GroupBy: "run", Labels: map[string]string{"only": "this"}}, []uint64{1}},
		{&rotav1.SummarizeActionsRequest{GroupBy: "none"}, nil},
		{&rotav1.SummarizeActionsRequest{Class: "none"}, []uint64{0}},
		{&rotav1.SummarizeActionsRequest{SubmittedSince: timestamppb.New(time.Now().Add(24 * 365 * 100 * time.Hour))}, []uint64{0}},
	} {
		got := count(c.req)
		if len(got) != len(c.want) {
			t.Errorf("%v: got %v, want %v", c.req, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%v: got %v, want %v", c.req, got, c.want)
			}
		}
	}
	for _, req := range []*rotav1.SummarizeActionsRequest{{Namespace: "*"}, {GroupBy: "no key"}, {Labels: map[string]string{"": ""}}} {
		if _, err := w.actions().SummarizeActions(t.Context(), req); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%v: %v", req, err)
		}
	}
}

// Reports add up what ended in a range of time, by namespace, and say what reservations would have
// held.
func TestSummariesOfARange(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	if _, err := w.operators().CreateNamespace(ctx, &rotav1.CreateNamespaceRequest{Name: "team"}); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"default", "team", "team"} {
		s := spec("true")
		s.Labels = map[string]string{"run": "a"}
		if _, err := w.actions().SubmitActions(ctx, &rotav1.SubmitActionsRequest{Namespace: ns, Actions: []*rotav1.ActionSpec{s}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.actions().CancelActions(ctx, &rotav1.CancelActionsRequest{Ids: []uint64{2}}); err != nil {
		t.Fatal(err)
	}
	early, late := timestamppb.New(time.Unix(0, 0)), timestamppb.New(time.Now().Add(24*365*100*time.Hour))
	all := func(req *rotav1.SummarizeActionsRequest) map[string]uint64 {
		t.Helper()
		resp, err := w.actions().SummarizeActions(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		for _, s := range resp.Summaries {
			got[s.Namespace+"/"+s.Value] = s.Actions
		}
		return got
	}
	for _, c := range []struct {
		req  *rotav1.SummarizeActionsRequest
		want map[string]uint64
	}{
		{&rotav1.SummarizeActionsRequest{Namespace: "*", ByNamespace: true}, map[string]uint64{"default/": 1, "team/": 2}},
		{&rotav1.SummarizeActionsRequest{Namespace: "*", ByNamespace: true, GroupBy: "run"}, map[string]uint64{"default/a": 1, "team/a": 2}},
		{&rotav1.SummarizeActionsRequest{Namespace: "*", ByNamespace: true, EndedSince: early, EndedBefore: late}, map[string]uint64{"team/": 1}},
		{&rotav1.SummarizeActionsRequest{Namespace: "*", ByNamespace: true, EndedSince: late}, map[string]uint64{}},
		{&rotav1.SummarizeActionsRequest{Namespace: "team", EndedBefore: early}, map[string]uint64{"team/": 0}},
	} {
		if got := all(c.req); !maps.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.req, got, c.want)
		}
	}
	if _, err := w.actions().SummarizeActions(ctx, &rotav1.SummarizeActionsRequest{EndedSince: late, EndedBefore: early}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a range that ends before it begins: %v", err)
	}
}
