package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/rights"
)

// TestAPageWithoutRowsHasAWayOn: a list that has looked at many rows and found none says so, and leads
// to the rest.
func TestAPageWithoutRowsHasAWayOn(t *testing.T) {
	got := get(newPage(&actionsOnly{}), "/ui/actions?name=rare").Body.String()
	if strings.Contains(got, "No such action.") || !strings.Contains(got, "looked at so far") || !strings.Contains(got, "page=next%2Bpage") {
		t.Error(got)
	}
}

// TestTheOverviewFollowsPagesWithoutRows, a bounded number of them.
func TestTheOverviewFollowsPagesWithoutRows(t *testing.T) {
	api := &actionsOnly{}
	v := newViewer(newPage(api), httptest.NewRequest(http.MethodGet, "/ui/", nil), "")
	err := v.look()
	rows, more := v.firstActions(&err, &rotav1.ListActionsRequest{PageSize: 2})
	if err != nil || len(rows) != 0 || !more || api.lists != followMax {
		t.Errorf("%d rows after %d pages, more: %t, %v", len(rows), api.lists, more, err)
	}
	api.lists, api.actions = 0, []*rotav1.Action{{Id: 1}, {Id: 2}, {Id: 3}}
	if rows, more = v.firstActions(&err, &rotav1.ListActionsRequest{PageSize: 2}); err != nil || len(rows) != 2 || !more || api.lists != 1 {
		t.Errorf("%d rows after %d pages, more: %t, %v", len(rows), api.lists, more, err)
	}
}

// TestCoresInUseAreNotFree: a core or a GPU is free if its node says so, whichever actions are listed.
func TestCoresInUseAreNotFree(t *testing.T) {
	n := oneNode{
		Node: &rotav1.Node{
			NumaNodes: []*rotav1.NumaNode{{Cpus: []uint32{0, 1, 2}}}, FreeCpus: []uint32{2},
			Gpus: &rotav1.GpuInventory{Count: 4}, FreeGpus: []uint32{3},
			HeldChunks: []*rotav1.HeldChunk{{Chunk: &rotav1.GpuChunk{First: 0, Gpus: 2}, ActionId: 9}},
		},
		Actions: []*rotav1.Action{{Id: 7, Cpus: []uint32{0, 2}}}, // it was given core 2 after the node was read
	}
	n.fill()
	if want := []core{{Number: 0, Action: 7}, {Number: 1}, {Number: 2, Free: true}}; !slices.Equal(n.NUMA[0], want) {
		t.Errorf("cores %+v, want %+v", n.NUMA[0], want)
	}
	if want := []core{{Number: 0, Action: 9}, {Number: 1, Action: 9}, {Number: 2}, {Number: 3, Free: true}}; !slices.Equal(n.GPUs, want) {
		t.Errorf("GPUs %+v, want %+v", n.GPUs, want)
	}
}

// TestACutTimelineDoesNotThinkBefore: nothing is known of the time before the oldest action that is kept.
func TestACutTimelineDoesNotThinkBefore(t *testing.T) {
	actions := []*rotav1.Action{{Id: 5, State: rotav1.ActionState_ACTION_STATE_SUCCEEDED, SubmitTime: at(100), StartTime: at(101), EndTime: at(104)}}
	of := &rotav1.Trajectory{OpenTime: at(0), EndTime: at(110)}
	if l := timelineOf(of, actions, true, time.Time{}); l.Think != 6*time.Second || l.From != at(100).AsTime() {
		t.Errorf("%+v", l)
	}
	if l := timelineOf(of, actions, false, time.Time{}); l.Think != 106*time.Second {
		t.Errorf("%+v", l)
	}
}

// forgetful is an API with a trajectory of which older actions may have been forgotten.
type forgetful struct {
	actionsOnly
	rotav1connect.UnimplementedTrajectoryServiceHandler
	kept *timestamppb.Timestamp
}

func (f *forgetful) ListActions(context.Context, *rotav1.ListActionsRequest) (*rotav1.ListActionsResponse, error) {
	return &rotav1.ListActionsResponse{Actions: []*rotav1.Action{{Id: 5, Spec: &rotav1.ActionSpec{}, SubmitTime: at(100), EndTime: at(104)}}}, nil
}

func (f *forgetful) SummarizeActions(context.Context, *rotav1.SummarizeActionsRequest) (*rotav1.SummarizeActionsResponse, error) {
	return &rotav1.SummarizeActionsResponse{KeptSince: f.kept}, nil
}

func (f *forgetful) GetTrajectory(context.Context, *rotav1.GetTrajectoryRequest) (*rotav1.GetTrajectoryResponse, error) {
	return &rotav1.GetTrajectoryResponse{Trajectory: &rotav1.Trajectory{Id: 3, Namespace: "default", OpenTime: at(50), EndTime: at(110)}}, nil
}

// TestATrajectoryOlderThanItsActionsIsCut: it may have had actions that are forgotten.
func TestATrajectoryOlderThanItsActionsIsCut(t *testing.T) {
	for kept, cut := range map[*timestamppb.Timestamp]bool{nil: false, at(40): false, at(60): true} {
		api := &forgetful{kept: kept}
		mux := http.NewServeMux()
		mux.Handle(rotav1connect.NewAccessServiceHandler(&allowed{rules: rights.Everything().Rules()}, codec.ForHandler()))
		mux.Handle(rotav1connect.NewActionServiceHandler(api, codec.ForHandler()))
		mux.Handle(rotav1connect.NewTrajectoryServiceHandler(api, codec.ForHandler()))
		u := New(Options{API: mux, Counts: func() Counts { return Counts{} }, Logger: hclog.NewNullLogger()})
		if got := get(u, "/ui/trajectories/3").Body.String(); strings.Contains(got, "begins with the oldest action") != cut || !strings.Contains(got, "<rect") {
			t.Errorf("with actions kept since %v:\n%s", kept, got)
		}
	}
}

// narrow is an API whose caller may read rollouts and the status of the cluster. It counts the calls that it refuses.
type narrow struct {
	rotav1connect.UnimplementedRolloutServiceHandler
	rotav1connect.UnimplementedOperatorServiceHandler
	refused atomic.Int32
}

func (*narrow) ListRollouts(context.Context, *rotav1.ListRolloutsRequest) (*rotav1.ListRolloutsResponse, error) {
	return &rotav1.ListRolloutsResponse{Rollouts: []*rotav1.Rollout{{Id: 4, Spec: &rotav1.RolloutSpec{Name: "my-rollout"}, Counts: &rotav1.RolloutCounts{}}}}, nil
}

func (*narrow) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	return &rotav1.GetStatusResponse{LeaderId: "my-leader"}, nil
}

func (n *narrow) page() *UI {
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewAccessServiceHandler(&allowed{
		rules: []*rotav1.AccessRule{{Namespace: "*", Noun: "rollout", Verbs: []string{rights.Read}}},
	}, codec.ForHandler()))
	_, rollouts := rotav1connect.NewRolloutServiceHandler(n, codec.ForHandler())
	_, operator := rotav1connect.NewOperatorServiceHandler(n, codec.ForHandler())
	mux.Handle(rotav1connect.RolloutServiceListRolloutsProcedure, rollouts)
	mux.Handle(rotav1connect.OperatorServiceGetStatusProcedure, operator)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n.refused.Add(1)
		_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodePermissionDenied, errors.New("you may not read this")))
	})
	return New(Options{API: mux, Counts: func() Counts { return Counts{} }, Logger: hclog.NewNullLogger()})
}

// TestAPartThatMayNotBeReadIsLeftOut: the page names it, shows the rest, and makes no call that would be refused.
func TestAPartThatMayNotBeReadIsLeftOut(t *testing.T) {
	n := &narrow{}
	u := n.page()
	for path, wants := range map[string][]string{
		"rollouts": {"my-rollout", "You may not read workers.", "You may not read policies."},
		"":         {"my-leader", "You may not read pools.", "You may not read namespaces.", "You may not read actions.", "You may not read the list of servers."},
	} {
		got := get(u, "/ui/"+path).Body.String()
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("page %q does not have %q:\n%s", path, want, got)
			}
		}
		for _, bad := range []string{`class="error"`, "ended per second", "data-sample", "There are no pools", "Nothing waits"} {
			if strings.Contains(got, bad) {
				t.Errorf("page %q has %q", path, bad)
			}
		}
	}
	if got := n.refused.Load(); got != 0 {
		t.Errorf("%d calls were refused", got)
	}
}

// TestWithoutTLSThePageLeadsToTheForm: a cluster that accepts tokens needs one on this machine, too.
func TestWithoutTLSThePageLeadsToTheForm(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewAccessServiceHandler(&allowed{err: connect.NewError(connect.CodeUnauthenticated, errors.New("no token"))}, codec.ForHandler()))
	u := New(Options{API: mux, Counts: func() Counts { return Counts{} }, Logger: hclog.NewNullLogger()})
	if w := get(u, "/ui/nodes"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != loginPath {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
}

// TestLongListsSayThatThereIsMore than they show.
func TestLongListsSayThatThereIsMore(t *testing.T) {
	var out strings.Builder
	s := shown{Data: gpuList{Models: []*rotav1.Model{{Name: "m"}}, ModelsCut: true}}
	if err := parse("gpus").ExecuteTemplate(&out, "content", s); err != nil || !strings.Contains(out.String(), "rota model list") {
		t.Error(out.String(), err)
	}
	out.Reset()
	s.Data = rolloutList{
		Policies: []*rotav1.Policy{{Name: "p"}}, PoliciesCut: true, Workers: []*rotav1.Worker{{Spec: &rotav1.WorkerSpec{}}}, WorkersCut: true,
	}
	if err := parse("rollouts").ExecuteTemplate(&out, "content", s); err != nil || !strings.Contains(out.String(), "rota policy list") || !strings.Contains(out.String(), "rota worker list") {
		t.Error(out.String(), err)
	}
	out.Reset()
	s.Data = ledgerPage{Ledger: &rotav1.GetLedgerResponse{}, Jobs: []*rotav1.Job{{Name: "j"}}, JobsCut: true, Namespace: "team"}
	if err := parse("ledger").ExecuteTemplate(&out, "content", s); err != nil || !strings.Contains(out.String(), fmt.Sprint("rota job list -n ", "team")) {
		t.Error(out.String(), err)
	}
}
