package rpc_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm/state"
)

func (w *world) rollouts() rotav1connect.RolloutServiceClient {
	return rotav1connect.NewRolloutServiceClient(w.http, w.url, codec.ForClient())
}

// newRollout creates a rollout.
func (w *world) newRollout(spec *rotav1.RolloutSpec) uint64 {
	w.t.Helper()
	resp, err := w.rollouts().CreateRollout(w.t.Context(), &rotav1.CreateRolloutRequest{Spec: spec})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Rollout.Id
}

// inGroup opens a trajectory for a group.
func (w *world) inGroup(rollout uint64, group uint32) (uint64, error) {
	resp, err := rotav1connect.NewTrajectoryServiceClient(w.http, w.url, codec.ForClient()).OpenTrajectory(w.t.Context(),
		&rotav1.OpenTrajectoryRequest{Rollout: &rotav1.RolloutMembership{RolloutId: rollout, Group: group}})
	return resp.GetTrajectory().GetId(), err
}

// sampled opens a trajectory for a group and puts its sample.
func (w *world) sampled(rollout uint64, group uint32) (uint64, error) {
	id, err := w.inGroup(rollout, group)
	if err != nil {
		return 0, err
	}
	_, err = w.rollouts().PutSample(w.t.Context(), &rotav1.PutSampleRequest{TrajectoryId: id, Reward: -0.5, Tokens: 12, Reference: fmt.Sprint("s3://", id)})
	return id, err
}

func reasonOf(err error) string {
	if d := client.Detail(err); d != nil {
		return d.Reason
	}
	return fmt.Sprint(err)
}

// TestTheLifeOfARollout: it is created, its group is completed with one trajectory too many, a
// step is given the batch and given it again, and it ends.
func TestTheLifeOfARollout(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.rollouts()
	req := &rotav1.CreateRolloutRequest{RequestId: "r1", Spec: &rotav1.RolloutSpec{Name: "step 1", Policy: "org/model", Groups: 2, SamplesPerGroup: 2, Redundant: 1, Staleness: 1}}
	first, err := c.CreateRollout(ctx, req)
	if err != nil || first.Replayed {
		t.Fatalf("created %v, %v", first, err)
	}
	id := first.Rollout.Id
	if again, err := c.CreateRollout(ctx, req); err != nil || !again.Replayed || again.Rollout.Id != id {
		t.Errorf("created again: %v, %v", again, err)
	}
	running, err := w.inGroup(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.sampled(id, 0); err != nil {
			t.Fatal(err)
		}
	}
	if put, err := c.PutSample(ctx, &rotav1.PutSampleRequest{TrajectoryId: running}); err != nil || put.Accepted || put.State != rotav1.RolloutMemberState_ROLLOUT_MEMBER_STATE_REDUNDANT {
		t.Errorf("one too many: %v, %v", put, err)
	}
	if put, err := c.PutSample(ctx, &rotav1.PutSampleRequest{TrajectoryId: running + 1}); err != nil || !put.Accepted {
		t.Errorf("put again: %v, %v", put, err)
	}
	got, err := c.GetRollout(ctx, &rotav1.GetRolloutRequest{Id: id, Groups: true})
	if err != nil || len(got.Groups) != 1 || !got.Groups[0].Complete || len(got.Groups[0].Members) != 3 || got.Rollout.Counts.CompleteGroups != 1 || got.Rollout.Namespace != "default" {
		t.Errorf("the rollout is %v, %v", got, err)
	}
	if rest, err := c.GetRollout(ctx, &rotav1.GetRolloutRequest{Id: id, Groups: true, FirstGroup: 1}); err != nil || len(rest.Groups) != 0 {
		t.Errorf("from group 1 on: %v, %v", rest, err)
	}
	batch, err := c.GetBatch(ctx, &rotav1.GetBatchRequest{Policy: "org/model", Step: 1, Groups: 1})
	if err != nil || batch.Replayed || len(batch.Samples) != 2 {
		t.Fatalf("step 1 has %v, %v", batch, err)
	}
	if s := batch.Samples[1]; s.TrajectoryId != running+2 || s.RolloutId != id || s.Reward != -0.5 || s.Tokens != 12 || s.Reference != fmt.Sprint("s3://", running+2) {
		t.Errorf("a sample is %v", s)
	}
	if again, err := c.GetBatch(ctx, &rotav1.GetBatchRequest{Policy: "org/model", Step: 1, Groups: 1}); err != nil || !again.Replayed || len(again.Samples) != 2 {
		t.Errorf("step 1 again: %v, %v", again, err)
	}
	if _, err := c.GetBatch(ctx, &rotav1.GetBatchRequest{Policy: "org/model", Step: 3, Groups: 1}); reasonOf(err) != "STEP_WRONG" {
		t.Errorf("step 3: %v", err)
	}
	if _, err := c.GetBatch(ctx, &rotav1.GetBatchRequest{Policy: "org/model", Step: 2, Groups: 1}); reasonOf(err) != "GROUPS_MISSING" {
		t.Errorf("step 2: %v", err)
	}
	closed, err := c.CloseRollout(ctx, &rotav1.CloseRolloutRequest{Id: id})
	if err != nil || closed.Rollout.State != rotav1.RolloutState_ROLLOUT_STATE_CLOSED || closed.Rollout.Counts.DroppedGroups != 1 || closed.Rollout.EndTime == nil {
		t.Errorf("closed: %v, %v", closed, err)
	}
	if _, err := w.inGroup(id, 1); reasonOf(err) != "ROLLOUT_CLOSED" {
		t.Errorf("opened for a closed one: %v", err)
	}
	for _, ended := range []bool{false, true} {
		all, err := c.ListRollouts(ctx, &rotav1.ListRolloutsRequest{Policy: "org/model", IncludeEnded: ended})
		if err != nil || len(all.Rollouts) == 1 != ended {
			t.Errorf("listed with ended ones %v: %v, %v", ended, all, err)
		}
	}
}

// TestPoliciesOverTheWire: versions grow, what is too old is closed, and requests are held.
func TestPoliciesOverTheWire(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.rollouts()
	if _, err := c.SuspendPolicy(ctx, &rotav1.SuspendPolicyRequest{Policy: "a"}); reasonOf(err) != "POLICY_NOT_FOUND" {
		t.Errorf("suspended before it exists: %v", err)
	}
	id := w.newRollout(&rotav1.RolloutSpec{Policy: "a", Groups: 1, SamplesPerGroup: 1})
	trajectory, err := w.inGroup(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	published, err := c.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: "a", Version: 4})
	if err != nil || published.ClosedTrajectories != 1 || published.Policy.Version != 4 || published.Policy.PublishTime == nil {
		t.Errorf("published: %v, %v", published, err)
	}
	if put, err := c.PutSample(ctx, &rotav1.PutSampleRequest{TrajectoryId: trajectory}); err != nil || put.Accepted || put.State != rotav1.RolloutMemberState_ROLLOUT_MEMBER_STATE_STALE {
		t.Errorf("a stale sample: %v, %v", put, err)
	}
	if _, err := c.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: "a", Version: 3}); reasonOf(err) != "VERSION_OLD" {
		t.Errorf("an older one: %v", err)
	}
	for _, name := range []string{"b", "c", "ab"} {
		if _, err := c.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: name, Version: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, suspended := range []bool{true, false} {
		if suspended {
			_, err = c.SuspendPolicy(ctx, &rotav1.SuspendPolicyRequest{Policy: "a"})
		} else {
			_, err = c.ResumePolicy(ctx, &rotav1.ResumePolicyRequest{Policy: "a"})
		}
		if got, e := c.GetPolicy(ctx, &rotav1.GetPolicyRequest{Policy: "a"}); err != nil || e != nil || got.Policy.Suspended != suspended {
			t.Errorf("suspended is %v, must be %v: %v, %v", got, suspended, err, e)
		}
	}
	var names []string
	for token := ""; ; {
		page, err := c.ListPolicies(ctx, &rotav1.ListPoliciesRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Policies {
			names = append(names, p.Name)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "a ab b c" {
		t.Errorf("policies are %s", got)
	}
}

// TestABatchIsWaitedFor: callers wait without a commit until the groups are there, and all that
// ask for the step have the same batch. Those that do not want to wait longer, or cancel, go.
func TestABatchIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.rollouts()
	id := w.newRollout(&rotav1.RolloutSpec{Policy: "p", Groups: 8, SamplesPerGroup: 1})
	ask := func(ctx context.Context, wait time.Duration) (*rotav1.GetBatchResponse, error) {
		return c.GetBatch(ctx, &rotav1.GetBatchRequest{Policy: "p", Step: 1, Groups: 8, Wait: durationpb.New(wait)})
	}
	before := w.machine.Applied()
	if _, err := ask(ctx, 20*time.Millisecond); reasonOf(err) != "GROUPS_MISSING" {
		t.Errorf("after the wait: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := ask(canceled, time.Hour); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("canceled: %v", err)
	}
	if now := w.machine.Applied(); now != before {
		t.Errorf("waiting committed %d entries", now-before)
	}
	var waiting sync.WaitGroup
	fresh := make(chan bool, 16)
	for range cap(fresh) {
		waiting.Go(func() {
			batch, err := ask(ctx, time.Hour)
			if err != nil || len(batch.Samples) != 8 {
				t.Errorf("a waiter has %v, %v", batch, err)
			}
			fresh <- !batch.GetReplayed()
		})
	}
	for group := range uint32(8) {
		if _, err := w.sampled(id, group); err != nil {
			t.Fatal(err)
		}
	}
	waiting.Wait()
	close(fresh)
	first := 0
	for f := range fresh {
		if f {
			first++
		}
	}
	if first != 1 {
		t.Errorf("%d waiters took the batch", first)
	}
}

// TestADrainingServerSendsWaitersAway: to another server, where they go on.
func TestADrainingServerSendsWaitersAway(t *testing.T) {
	w := newWorld(t)
	w.newRollout(&rotav1.RolloutSpec{Policy: "p", Groups: 1, SamplesPerGroup: 1})
	ended := make(chan error, 1)
	go func() {
		_, err := w.rollouts().GetBatch(t.Context(), &rotav1.GetBatchRequest{Policy: "p", Step: 1, Groups: 1, Wait: durationpb.New(time.Hour)})
		ended <- err
	}()
	w.server.Drain()
	if err := <-ended; reasonOf(err) != "DRAINING" {
		t.Errorf("the waiter is told %v", err)
	}
}

func TestRequestsOfTrainersAreChecked(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.rollouts()
	good := func() *rotav1.RolloutSpec { return &rotav1.RolloutSpec{Policy: "p", Groups: 1, SamplesPerGroup: 1} }
	create := func(change func(*rotav1.RolloutSpec)) error {
		spec := good()
		change(spec)
		_, err := c.CreateRollout(ctx, &rotav1.CreateRolloutRequest{Spec: spec})
		return err
	}
	batch := func(req *rotav1.GetBatchRequest) error { _, err := c.GetBatch(ctx, req); return err }
	put := func(req *rotav1.PutSampleRequest) error { _, err := c.PutSample(ctx, req); return err }
	_, noSpec := c.CreateRollout(ctx, &rotav1.CreateRolloutRequest{})
	for name, err := range map[string]error{
		"spec":                   noSpec,
		"spec.policy":            create(func(s *rotav1.RolloutSpec) { s.Policy = "" }),
		"spec.groups":            create(func(s *rotav1.RolloutSpec) { s.Groups = 0 }),
		"spec.samples_per_group": create(func(s *rotav1.RolloutSpec) { s.SamplesPerGroup = 1025 }),
		"spec.redundant":         create(func(s *rotav1.RolloutSpec) { s.Redundant = 1025 }),
		"policy":                 batch(&rotav1.GetBatchRequest{Step: 1, Groups: 1}),
		"step":                   batch(&rotav1.GetBatchRequest{Policy: "p", Groups: 1}),
		"groups":                 batch(&rotav1.GetBatchRequest{Policy: "p", Step: 1}),
		"wait":                   batch(&rotav1.GetBatchRequest{Policy: "p", Step: 1, Groups: 1, Wait: durationpb.New(2 * time.Hour)}),
		"trajectory_id":          put(&rotav1.PutSampleRequest{}),
		"reward":                 put(&rotav1.PutSampleRequest{TrajectoryId: 1, Reward: math.NaN()}),
		"reference":              put(&rotav1.PutSampleRequest{TrajectoryId: 1, Reference: strings.Repeat("x", 1025)}),
	} {
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "invalid_argument: "), name+" ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTheClientLibraryWaitsForABatch: for as long as it is told, and makes a request ID.
func TestTheClientLibraryWaitsForABatch(t *testing.T) {
	w := newWorld(t)
	c, err := client.New(client.Config{Addrs: []string{w.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.CreateRollout(t.Context(), &rotav1.CreateRolloutRequest{Spec: &rotav1.RolloutSpec{Policy: "p", Groups: 1, SamplesPerGroup: 1}})
	if err != nil {
		t.Fatal(err)
	}
	w.machine.View(func(st *state.State) {
		if st.RequestCount() != 1 {
			t.Errorf("%d request IDs are remembered", st.RequestCount())
		}
	})
	req := &rotav1.GetBatchRequest{Policy: "p", Step: 1, Groups: 1, Wait: durationpb.New(10 * time.Millisecond)}
	if _, err := c.GetBatch(t.Context(), req); reasonOf(err) != "GROUPS_MISSING" {
		t.Errorf("after the wait: %v", err)
	}
	put := make(chan error, 1)
	go func() {
		_, err := w.sampled(r.Id, 0)
		put <- err
	}()
	req.Wait = nil // as long as it takes
	if batch, err := c.GetBatch(t.Context(), req); err != nil || len(batch.Samples) != 1 {
		t.Errorf("the batch is %v, %v", batch, err)
	}
	if err := <-put; err != nil {
		t.Error(err)
	}
}
