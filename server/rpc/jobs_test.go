package rpc_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

func (w *world) jobs() rotav1connect.JobServiceClient {
	return rotav1connect.NewJobServiceClient(w.http, w.url, codec.ForClient())
}

func (w *world) turns() rotav1connect.TurnServiceClient {
	return rotav1connect.NewTurnServiceClient(w.http, w.url, codec.ForClient())
}

func (w *world) ledger() rotav1connect.LedgerServiceClient {
	return rotav1connect.NewLedgerServiceClient(w.http, w.url, codec.ForClient())
}

func (w *world) nodeGroup(name string, nodes uint32) {
	w.t.Helper()
	if _, err := w.ledger().CreateNodeGroup(w.t.Context(), &rotav1.CreateNodeGroupRequest{Name: name, Nodes: nodes}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) job(req *rotav1.SubmitJobRequest) *rotav1.Job {
	w.t.Helper()
	resp, err := w.jobs().SubmitJob(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Job
}

// acquire asks for a turn of a deployment.
func (w *world) acquire(deployment string) *rotav1.Turn {
	w.t.Helper()
	resp, err := w.turns().AcquireTurn(w.t.Context(), &rotav1.AcquireTurnRequest{
		Deployment: deployment, Operation: rotav1.Operation_OPERATION_GENERATE,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.LeaseDuration.AsDuration() <= resp.LeaseMargin.AsDuration() {
		w.t.Fatalf("lease %v, margin %v", resp.LeaseDuration.AsDuration(), resp.LeaseMargin.AsDuration())
	}
	return resp.Turn
}

func cycle(period time.Duration, segments ...*rotav1.Segment) *rotav1.Cycle {
	return &rotav1.Cycle{Period: durationpb.New(period), Segments: segments}
}

func segment(offset, length time.Duration, nodes uint32) *rotav1.Segment {
	return &rotav1.Segment{Offset: durationpb.New(offset), Length: durationpb.New(length), Nodes: nodes}
}

// TestTheLifeOfAJob: it waits for a group, is placed, suspended, resumed and deleted.
func TestTheLifeOfAJob(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	known := cycle(5*time.Minute, segment(0, 90*time.Second, 8))
	req := &rotav1.SubmitJobRequest{Name: "a", Nodes: 8, Cycle: known, RequestId: "r1", Labels: map[string]string{"team": "vision"}}
	if j := w.job(req); j.State != rotav1.JobState_JOB_STATE_QUEUED || j.Message == "" || j.Group != "" {
		t.Errorf("without a group the job is %v, want it queued, and why", j)
	}
	w.nodeGroup("g", 8)
	again, err := w.jobs().SubmitJob(ctx, req)
	if err != nil || !again.Replayed {
		t.Fatalf("repeated: %v, %v", again, err)
	}
	j := again.Job
	if j.State != rotav1.JobState_JOB_STATE_RUNNING || j.Group != "g" || j.Reservation.GetCycle().GetPeriod().AsDuration() != 5*time.Minute || j.Placement == nil {
		t.Errorf("placed as %v", j)
	}
	if _, err := w.ledger().DeleteNodeGroup(ctx, &rotav1.DeleteNodeGroupRequest{Name: "g"}); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a group that a job is on is deleted: %v", err)
	}
	for value, want := range map[string]int{"vision": 1, "speech": 0} {
		if list, err := w.jobs().ListJobs(ctx, &rotav1.ListJobsRequest{Labels: map[string]string{"team": value}}); err != nil || len(list.Jobs) != want {
			t.Errorf("of team %s: %v, %v", value, list, err)
		}
	}
	if _, err := w.jobs().SubmitJob(ctx, &rotav1.SubmitJobRequest{Name: "b", Nodes: 1, Labels: map[string]string{"": "x"}}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a label without a key: %v", err)
	}
	suspended, err := w.jobs().SuspendJob(ctx, &rotav1.SuspendJobRequest{Name: "a"})
	if err != nil || suspended.Job.State != rotav1.JobState_JOB_STATE_SUSPENDED || suspended.Job.Reservation != nil {
		t.Errorf("suspended: %v, %v", suspended, err)
	}
	resumed, err := w.jobs().ResumeJob(ctx, &rotav1.ResumeJobRequest{Name: "a"})
	if err != nil || resumed.Job.State != rotav1.JobState_JOB_STATE_RUNNING {
		t.Errorf("resumed: %v, %v", resumed, err)
	}
	completed, err := w.jobs().CompleteJob(ctx, &rotav1.CompleteJobRequest{Name: "a"})
	if err != nil || completed.Job.State != rotav1.JobState_JOB_STATE_COMPLETED || completed.Job.EndTime == nil {
		t.Errorf("completed: %v, %v", completed, err)
	}
	for ended, want := range map[bool]int{false: 0, true: 1} {
		if list, err := w.jobs().ListJobs(ctx, &rotav1.ListJobsRequest{IncludeEnded: ended}); err != nil || len(list.Jobs) != want {
			t.Errorf("listed with ended %v: %v, %v", ended, list, err)
		}
	}
	if _, err := w.jobs().DeleteJob(ctx, &rotav1.DeleteJobRequest{Name: "a"}); err != nil {
		t.Error(err)
	}
	if _, err := w.jobs().GetJob(ctx, &rotav1.GetJobRequest{Name: "a"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a job that is gone: %v", err)
	}
}

// TestARenewalAnswersWithNews: it waits while there are none, and wakes for the grant
// of its turn.
func TestARenewalAnswersWithNews(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.nodeGroup("g", 2)
	w.job(&rotav1.SubmitJobRequest{Name: "a", Nodes: 2})
	first, second := w.acquire("a/actor"), w.acquire("a/actor")
	if first.State != rotav1.TurnState_TURN_STATE_HELD || first.Token == 0 || !first.SetUpNeeded || first.Group != "g" || first.Nodes != 2 {
		t.Fatalf("first turn is %v", first)
	}
	if second.State != rotav1.TurnState_TURN_STATE_WAITING || second.Token != 0 {
		t.Fatalf("second turn is %v", second)
	}
	waits := &rotav1.RenewTurnRequest{TurnId: second.Id, Wait: durationpb.New(30 * time.Millisecond)}
	begin := time.Now()
	if got, err := w.turns().RenewTurn(ctx, waits); err != nil || !got.Renewed || got.Turn.Token != 0 || time.Since(begin) < 30*time.Millisecond {
		t.Fatalf("without news: %v, %v after %v", got, err, time.Since(begin))
	}
	if got, err := w.turns().RenewTurn(ctx, &rotav1.RenewTurnRequest{TurnId: second.Id}); err != nil || !got.Renewed {
		t.Fatalf("without a wait: %v, %v", got, err)
	}
	answer := make(chan *rotav1.RenewTurnResponse, 1)
	waits.Wait = durationpb.New(time.Minute)
	go func() {
		got, err := w.turns().RenewTurn(ctx, waits)
		if err != nil {
			t.Error(err)
		}
		answer <- got
	}()
	time.Sleep(20 * time.Millisecond) // most often it waits by then
	if got, err := w.turns().YieldTurn(ctx, &rotav1.YieldTurnRequest{TurnId: first.Id, Token: first.Token}); err != nil || got.Turn.State != rotav1.TurnState_TURN_STATE_YIELDED {
		t.Fatalf("yielded: %v, %v", got, err)
	}
	select {
	case got := <-answer:
		if u := got.GetTurn(); u.GetState() != rotav1.TurnState_TURN_STATE_HELD || u.Token <= first.Token || u.SetUpNeeded {
			t.Errorf("granted %v, want a higher token than %d and no set-up", u, first.Token)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the grant did not wake the renewal")
	}
	if got, err := w.turns().RenewTurn(ctx, &rotav1.RenewTurnRequest{TurnId: first.Id, Token: first.Token, Wait: durationpb.New(time.Minute)}); err != nil || got.Renewed || got.Turn.State != rotav1.TurnState_TURN_STATE_YIELDED {
		t.Errorf("renewal of a turn that has ended: %v, %v", got, err)
	}
}

// TestTurnsEndOnce: a token that is not the turn's changes nothing, and repeating does no
// harm; work that failed leaves nobody resident.
func TestTurnsEndOnce(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.nodeGroup("g", 2)
	w.job(&rotav1.SubmitJobRequest{Name: "a", Nodes: 2})
	held, waiting := w.acquire("a/actor"), w.acquire("a/actor")
	end := func(id, token uint64, failed bool) (*rotav1.YieldTurnResponse, error) {
		return w.turns().YieldTurn(ctx, &rotav1.YieldTurnRequest{TurnId: id, Token: token, Failed: failed})
	}
	if _, err := end(held.Id, 0, false); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a held turn is ended without its token: %v", err)
	}
	for range 2 {
		if got, err := end(waiting.Id, 0, false); err != nil || got.Turn.State != rotav1.TurnState_TURN_STATE_CANCELED {
			t.Errorf("canceled: %v, %v", got, err)
		}
	}
	if got, err := end(held.Id, held.Token, true); err != nil || got.Turn.State != rotav1.TurnState_TURN_STATE_CANCELED {
		t.Errorf("failed: %v, %v", got, err)
	}
	if next := w.acquire("a/actor"); !next.SetUpNeeded {
		t.Errorf("after a failure %v, want it to be set up again", next)
	}
	list, err := w.turns().ListTurns(ctx, &rotav1.ListTurnsRequest{Job: "a"})
	if err != nil || len(list.Turns) != 1 {
		t.Errorf("live are %v, %v", list, err)
	}
	all, err := w.turns().ListTurns(ctx, &rotav1.ListTurnsRequest{IncludeEnded: true, PageSize: 2})
	if err != nil || len(all.Turns) != 2 || all.NextPageToken == "" {
		t.Errorf("first page: %v, %v", all, err)
	}
}

// TestTheLedgerShowsReservations of two jobs on one group, which do not overlap.
func TestTheLedgerShowsReservations(t *testing.T) {
	w := newWorld(t)
	w.nodeGroup("g", 8)
	for _, name := range []string{"a", "b"} {
		w.job(&rotav1.SubmitJobRequest{Name: name, Nodes: 8, Cycle: cycle(100*time.Second, segment(0, 30*time.Second, 8))})
	}
	got, err := w.ledger().GetLedger(t.Context(), &rotav1.GetLedgerRequest{Slots: 300})
	if err != nil || len(got.Groups) != 1 || got.Slot.AsDuration() != time.Second {
		t.Fatal(got, err)
	}
	held, last := map[string]int64{}, got.NowSlot
	for _, r := range got.Groups[0].Intervals {
		if r.Start < last || r.End <= r.Start || r.End > got.NowSlot+300 {
			t.Errorf("reservation %v after slot %d", r, last)
		}
		held[r.Job] += r.End - r.Start
		last = r.End
	}
	for _, name := range []string{"default/a", "default/b"} {
		if held[name] < 60 || held[name] > 90 {
			t.Errorf("%s holds %d of 300 slots, want 60 to 90", name, held[name])
		}
	}
	if g := got.Groups[0].Group; g.Jobs != 2 || g.Period.AsDuration() < 100*time.Second {
		t.Errorf("group %v", g)
	}
	if _, err := w.ledger().GetLedger(t.Context(), &rotav1.GetLedgerRequest{Group: "x"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a group that does not exist: %v", err)
	}
}

// TestBadJobsAndTurnsAreRefused says which field is wrong.
func TestBadJobsAndTurnsAreRefused(t *testing.T) {
	w := newWorld(t)
	ok := segment(0, time.Second, 1)
	for want, r := range map[string]*rotav1.SubmitJobRequest{
		"name is required":                            {Nodes: 1},
		"nodes must be at least 1":                    {Name: "a"},
		"cycle must be absent for a backfill job":     {Name: "a", Nodes: 1, Backfill: true, Cycle: cycle(time.Minute, ok)},
		"cycle.period must be more than 0":            {Name: "a", Nodes: 1, Cycle: &rotav1.Cycle{Segments: []*rotav1.Segment{ok}}},
		"cycle.segments must be at least 1":           {Name: "a", Nodes: 1, Cycle: cycle(time.Minute)},
		"cycle.segments[1].offset must not be before": {Name: "a", Nodes: 1, Cycle: cycle(time.Minute, ok, ok)},
		"cycle.segments[0] must end within":           {Name: "a", Nodes: 1, Cycle: cycle(time.Minute, segment(59*time.Second, 2*time.Second, 1))},
		"cycle.segments must need the job's 2 nodes":  {Name: "a", Nodes: 2, Cycle: cycle(time.Minute, ok)},
		"cycle.segments[0].nodes must be at most":     {Name: "a", Nodes: 1, Cycle: cycle(time.Minute, segment(0, time.Second, 2))},
		"cycle.segments[0].length must be more":       {Name: "a", Nodes: 1, Cycle: cycle(time.Minute, segment(0, 0, 1))},
	} {
		_, err := w.jobs().SubmitJob(t.Context(), r)
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v is refused with %v, want %q", r, err, want)
		}
	}
	for want, r := range map[string]*rotav1.AcquireTurnRequest{
		`deployment must be "job/deployment"`: {Deployment: "a", Operation: 1},
		"deployment is required":              {Deployment: "a/", Operation: 1},
		"operation must be one of":            {Deployment: "a/b", Operation: 99},
		"limit must not be negative":          {Deployment: "a/b", Operation: 1, Limit: durationpb.New(-1)},
	} {
		_, err := w.turns().AcquireTurn(t.Context(), r)
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v is refused with %v, want %q", r, err, want)
		}
	}
}
