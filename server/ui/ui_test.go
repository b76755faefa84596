package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/rights"
)

// actionsOnly is an API that has actions of the test and refuses everything else.
type actionsOnly struct {
	rotav1connect.UnimplementedActionServiceHandler
	actions []*rotav1.Action
	err     error
	lists   int // calls of ListActions
}

func (a *actionsOnly) ListActions(_ context.Context, req *rotav1.ListActionsRequest) (*rotav1.ListActionsResponse, error) {
	a.lists++
	return &rotav1.ListActionsResponse{Actions: a.actions, NextPageToken: "next+page"}, a.err
}

func (a *actionsOnly) GetAction(_ context.Context, req *rotav1.GetActionRequest) (*rotav1.GetActionResponse, error) {
	return &rotav1.GetActionResponse{Action: &rotav1.Action{Id: req.Id, WaitingFor: "waits for <the test>"}}, a.err
}

// allowed is an API that says what its caller may do.
type allowed struct {
	rotav1connect.UnimplementedAccessServiceHandler
	rules []*rotav1.AccessRule
	err   error
}

func (a *allowed) GetAccess(context.Context, *rotav1.GetAccessRequest) (*rotav1.GetAccessResponse, error) {
	return &rotav1.GetAccessResponse{CallerKind: "none", Rules: a.rules}, a.err
}

func newPage(api *actionsOnly) *UI {
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewAccessServiceHandler(&allowed{rules: rights.Everything().Rules()}, codec.ForHandler()))
	mux.Handle(rotav1connect.NewActionServiceHandler(api, codec.ForHandler()))
	return New(Options{API: mux, Counts: func() Counts { return Counts{} }, Logger: hclog.NewNullLogger()})
}

func get(u *UI, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	u.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestPageEscapesAndLinks(t *testing.T) {
	api := &actionsOnly{actions: []*rotav1.Action{{
		Id: 7, State: rotav1.ActionState_ACTION_STATE_QUEUED,
		Spec: &rotav1.ActionSpec{Name: `<script>alert("x")</script>`, Command: &rotav1.Command{Argv: []string{"</code>"}}},
	}}}
	got := get(newPage(api), "/ui/actions?namespace=%22%3E&page=old").Body.String()
	for _, bad := range []string{"<script>alert", "</code></code>", `value="">"`} {
		if strings.Contains(got, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, want := range []string{"waits for &lt;the test&gt;", "page=next%2Bpage", `href="/ui/actions/7"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the page does not have %q:\n%s", want, got)
		}
	}
}

func TestPageShowsErrors(t *testing.T) {
	u := newPage(&actionsOnly{err: connect.NewError(connect.CodePermissionDenied, errors.New("you may not read this"))})
	if w := get(u, "/ui/actions"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "you may not read this") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get(u, "/ui/actions/abc"); !strings.Contains(w.Body.String(), "an ID is a number") {
		t.Error(w.Body)
	}
	for _, path := range []string{"/ui/nothing", "/ui/overview/1", "/ui/live/nothing", "/ui/static/../ui.go", "/ui/a/b/c"} {
		if w := get(u, path); w.Code == http.StatusOK {
			t.Errorf("%s answers %d", path, w.Code)
		}
	}
	w := httptest.NewRecorder()
	if u.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/ui/actions", nil)); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST answers %d", w.Code)
	}
}

func TestOpenPagesAreBounded(t *testing.T) {
	u := newPage(&actionsOnly{})
	for held := true; held; {
		_, held = u.open.Take("none ") // as one without an identity
	}
	if _, ok := u.open.Take("session somebody else"); !ok {
		t.Error("one user has all pages")
	}
	if w := get(u, "/ui/live/actions"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("one page too many: %d", w.Code)
	}
}

func at(seconds int64) *timestamppb.Timestamp {
	return &timestamppb.Timestamp{Seconds: 1_800_000_000 + seconds}
}

func TestTimeline(t *testing.T) {
	done := rotav1.ActionState_ACTION_STATE_SUCCEEDED
	l := timelineOf(&rotav1.Trajectory{OpenTime: at(0), EndTime: at(20)}, []*rotav1.Action{
		{Id: 2, State: rotav1.ActionState_ACTION_STATE_CANCELED, SubmitTime: at(12), EndTime: at(15)}, // it never started
		{Id: 1, State: done, SubmitTime: at(2), StartTime: at(4), EndTime: at(10)},
	}, false, time.Time{})
	if l.Think != 9*time.Second || l.Queue != 5*time.Second || l.Run != 6*time.Second || len(l.Bars) != 6 {
		t.Errorf("%+v", l)
	}
	if last := l.Bars[len(l.Bars)-1]; last.Kind != "think" || last.X != 750 || last.W != 250 {
		t.Errorf("%+v", last)
	}
	if !l.Bars[4].Failed || l.Bars[4].Kind != "queue" {
		t.Errorf("%+v", l.Bars[4])
	}
}

// TestTimelineStaysInside: whatever times an action has, no bar leaves the drawing.
func TestTimelineStaysInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		second := rapid.Int64Range(0, 100)
		var actions []*rotav1.Action
		for i := range rapid.IntRange(1, 5).Draw(t, "actions") {
			a := &rotav1.Action{Id: uint64(i + 1), SubmitTime: at(second.Draw(t, "submit"))}
			if rapid.Bool().Draw(t, "started") {
				a.StartTime = at(a.SubmitTime.Seconds - 1_800_000_000 + second.Draw(t, "wait"))
			}
			if rapid.Bool().Draw(t, "ended") {
				a.EndTime = at(a.SubmitTime.Seconds - 1_800_000_000 + second.Draw(t, "took"))
			}
			actions = append(actions, a)
		}
		l := timelineOf(&rotav1.Trajectory{OpenTime: at(0)}, actions, rapid.Bool().Draw(t, "cut"), at(400).AsTime())
		for _, b := range l.Bars {
			if b.X < 0 || b.W < 1 || b.X+b.W > timelineWidth+1 {
				t.Errorf("%+v", b)
			}
		}
	})
}

func TestRing(t *testing.T) {
	l := &rotav1.GetLedgerResponse{Slot: durationpb.New(time.Second), NowSlot: 100, Slots: 40}
	r := ringOf(l, &rotav1.LedgerGroup{Group: &rotav1.NodeGroup{Name: "g"}, Intervals: []*rotav1.ReservedInterval{
		{JobId: 9, Job: "default/a", Start: 90, End: 110}, // it began before now
		{JobId: 1, Job: "default/b", Start: 120, End: 130},
		{JobId: 1, Job: "default/b", Start: 200, End: 210}, // beyond what is shown
	}})
	if r.Reserved != 50 || len(r.Arcs) != 2 || r.Arcs[0].Colour != 1 || r.Arcs[1].Title != "default/b: in 20s, for 10s" {
		t.Errorf("%+v", r)
	}
	if path := arcPath(0, 0.25); path != "M0.00 -100.00A100 100 0 0 1 100.00 -0.00L70.00 -0.00A70 70 0 0 0 0.00 -70.00Z" {
		t.Error(path)
	}
}

func TestHistory(t *testing.T) {
	c := Counts{}
	h := newHistory(func() Counts { return c })
	now := time.Unix(1_800_000_000, 0)
	h.take(now)
	c = Counts{Queued: 6, Running: 2, Submitted: 20}
	h.take(now.Add(2 * time.Second))
	if s := h.newest(); s != (sample{1_800_000_002, 6, 2, 10, 6}) {
		t.Error(s)
	}
	c = Counts{Submitted: 3} // another cluster's state was restored
	h.take(now.Add(4 * time.Second))
	if s := h.newest(); s[3] != 0 || s[4] != 0 {
		t.Error(s)
	}
	for i := range samplesMax {
		h.take(now.Add(time.Duration(i) * time.Minute))
	}
	if len(h.samples) != samplesMax {
		t.Error(len(h.samples))
	}
	var read sample
	if err := json.Unmarshal([]byte(functions["json"].(func(sample) string)(h.newest())), &read); err != nil || read != h.newest() {
		t.Error(read, err)
	}
}

func TestPhases(t *testing.T) {
	ended := []*rotav1.Action{
		{SubmitTime: at(0), EndTime: at(1)}, // it never started
		{SubmitTime: at(0), StartTime: at(2), EndTime: at(10), Result: &rotav1.ActionResult{ExecDuration: durationpb.New(7 * time.Second)}},
	}
	want := []phase{
		{"in the queue", 2 * time.Second, 2 * time.Second, 2 * time.Second},
		{"command", 7 * time.Second, 7 * time.Second, 7 * time.Second},
		{"overhead", time.Second, time.Second, time.Second},
		{"completion time", 10 * time.Second, 10 * time.Second, 10 * time.Second},
	}
	for i, p := range phasesOf(ended) {
		if p != want[i] {
			t.Errorf("%+v, want %+v", p, want[i])
		}
	}
	if phasesOf(ended[:1]) != nil {
		t.Error("an action that never started has phases")
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 1234 * time.Nanosecond: "1µs", 12345 * time.Microsecond: "12.3ms", 1234 * time.Millisecond: "1.23s",
		90 * time.Second: "1m30s", 10 * time.Minute: "10m", 2 * time.Hour: "2h0m",
	} {
		if got := brief(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := ranges([]uint32{7, 1, 2, 3, 9}); got != "1-3,7,9" {
		t.Error(got)
	}
	if got := bytesText(3 << 30); got != "3.0 GiB" {
		t.Error(got)
	}
	if got := word(rotav1.ActionState_ACTION_STATE_SUCCEEDED); got != "succeeded" {
		t.Error(got)
	}
}
