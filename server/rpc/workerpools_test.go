package rpc_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

func poolSpec() *rotav1.WorkerPoolSpec {
	spec := &rotav1.WorkerPoolSpec{
		Name: "x", Policy: "math", Gpus: 4, Port: 8000, SetUp: durationpb.New(time.Minute),
		Start: &rotav1.ActionSpec{
			Command:   &rotav1.Command{Argv: []string{"serve", "{{gpus}}"}, Env: map[string]string{"KEY": "secret"}},
			Resources: &rotav1.Resources{Cores: proto.Uint32(0), Gpus: &rotav1.GpuDemand{Class: "H100"}},
		},
	}
	for _, degree := range []uint32{1, 4} {
		spec.Options = append(spec.Options, &rotav1.WorkerPoolOption{Degree: degree, Profile: workerSpec("", int(40/degree)).Profile})
	}
	return spec
}

// TestWorkerPools: one is registered, planned and removed.
func TestWorkerPools(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.workers(), t.Context()
	registered, err := c.RegisterWorkerPool(ctx, &rotav1.RegisterWorkerPoolRequest{Spec: poolSpec()})
	if err != nil {
		t.Fatal(err)
	}
	want := poolSpec()
	want.Start.Command.Env["KEY"], want.Start.Name = "[redacted]", "worker of pool x"
	want.Dialect, want.PayBackSteps = rotav1.WorkerDialect_WORKER_DIALECT_OPENAI, 1
	got := registered.Pool.GetSpec()
	got.SetUp = want.SetUp // what is known is beside what was declared
	if got.Start.GetCommand().String() != want.Start.Command.String() || got.Gpus != 4 || len(got.Options) != 2 || got.PayBackSteps != 1 || registered.Pool.SetUp.AsDuration() != time.Minute {
		t.Errorf("registered %v, must be as %v", registered.Pool, want)
	}
	plan, err := c.PlanWorkerPool(ctx, &rotav1.PlanWorkerPoolRequest{Name: "x", Apply: true})
	if err != nil || plan.Applied || plan.Advice.GetTrajectories() != 0 || !strings.Contains(plan.Advice.GetReason(), "no open trajectory") {
		t.Errorf("without trajectories the plan is %v: %v", plan, err)
	}
	w.generating()
	for i, want := range []bool{false, true, false} { // what is applied is not applied again
		plan, err := c.PlanWorkerPool(ctx, &rotav1.PlanWorkerPoolRequest{Name: "x", Apply: i > 0})
		if err != nil || plan.Applied != want || len(plan.Advice.GetDegrees()) != 1 || plan.Advice.Degrees[0] != 4 {
			t.Errorf("plan %d is %v, applied must be %v: %v", i, plan, want, err)
		}
	}
	list, err := c.ListWorkerPools(ctx, &rotav1.ListWorkerPoolsRequest{})
	if err != nil || len(list.Pools) != 1 || len(list.Pools[0].Members) != 1 || list.Pools[0].Members[0].State != rotav1.WorkerPoolMemberState_WORKER_POOL_MEMBER_STATE_PLANNED || !list.Pools[0].PlanChanged {
		t.Errorf("pools are %v: %v", list, err)
	}
	if _, err := c.RemoveWorkerPool(ctx, &rotav1.RemoveWorkerPoolRequest{Name: "x"}); err != nil { // its worker has not been started
		t.Fatal(err)
	}
	if _, err := c.GetWorkerPool(ctx, &rotav1.GetWorkerPoolRequest{Name: "x"}); err == nil || !strings.Contains(err.Error(), `no worker pool "x"`) {
		t.Errorf("a pool that was removed: %v", err)
	}
	if _, err := c.PlanWorkerPool(ctx, &rotav1.PlanWorkerPoolRequest{Name: "x"}); err == nil {
		t.Error("a pool that was removed is planned")
	}
}

// TestWhatNoWorkerPoolCanBe is refused with a word on what to correct.
func TestWhatNoWorkerPoolCanBe(t *testing.T) {
	w := newWorld(t)
	for what, change := range map[string]func(*rotav1.WorkerPoolSpec){
		"spec.name":                      func(s *rotav1.WorkerPoolSpec) { s.Name = "" },
		"spec.policy":                    func(s *rotav1.WorkerPoolSpec) { s.Policy = "" },
		"spec.port":                      func(s *rotav1.WorkerPoolSpec) { s.Port = 65500 },
		"spec.dialect":                   func(s *rotav1.WorkerPoolSpec) { s.Dialect = 9 },
		"spec.gpus":                      func(s *rotav1.WorkerPoolSpec) { s.Gpus = 0 },
		"spec.set_up":                    func(s *rotav1.WorkerPoolSpec) { s.SetUp = durationpb.New(48 * time.Hour) },
		"spec.start.command":             func(s *rotav1.WorkerPoolSpec) { s.Start = nil },
		"spec.start.resources.gpus":      func(s *rotav1.WorkerPoolSpec) { s.Start.Resources.Gpus = nil },
		"spec.start.resources.gpus.gpus": func(s *rotav1.WorkerPoolSpec) { s.Start.Resources.Gpus.Gpus = []uint32{2} },
		"spec.start.trajectory_id":       func(s *rotav1.WorkerPoolSpec) { s.Start.TrajectoryId = 7 },
		"spec.start.loss_policy":         func(s *rotav1.WorkerPoolSpec) { s.Start.LossPolicy = rotav1.LossPolicy_LOSS_POLICY_RETRY },
		"spec.options":                   func(s *rotav1.WorkerPoolSpec) { s.Options = nil },
		"spec.options[1].degree":         func(s *rotav1.WorkerPoolSpec) { s.Options[1].Degree = 3 },
		"spec.options[0].profile.points": func(s *rotav1.WorkerPoolSpec) { s.Options[0].Profile = nil },
	} {
		spec := poolSpec()
		change(spec)
		_, err := w.workers().RegisterWorkerPool(t.Context(), &rotav1.RegisterWorkerPoolRequest{Spec: spec})
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDeletePolicy: a policy that is used stays, and what nothing uses is forgotten.
func TestDeletePolicy(t *testing.T) {
	w := newWorld(t)
	w.registerWorker(workerSpec("a", 10))
	c, ctx := rotav1connect.NewRolloutServiceClient(w.http, w.url), t.Context()
	if _, err := c.DeletePolicy(ctx, &rotav1.DeletePolicyRequest{Policy: "math"}); err == nil || !strings.Contains(err.Error(), "has workers") {
		t.Errorf("a policy with a worker: %v", err)
	}
	if _, err := w.workers().RemoveWorker(ctx, &rotav1.RemoveWorkerRequest{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, err := c.DeletePolicy(ctx, &rotav1.DeletePolicyRequest{Policy: "math"})
		if (err == nil) != (i == 0) {
			t.Errorf("deleted for the %d. time: %v", i+1, err)
		}
	}
}
