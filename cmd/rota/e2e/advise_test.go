package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// TestRolloutAdvise: after three steps of a trainer rota says how its GPUs and those of the workers should be
// divided. Before, it says how many steps are missing.
func TestRolloutAdvise(t *testing.T) {
	t.Parallel()
	const policy, steps = "policy", 3
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	ctx := t.Context()
	_, err := w.api.Workers.RegisterWorker(ctx, &rotav1.RegisterWorkerRequest{Spec: &rotav1.WorkerSpec{
		Name: "w", Policy: policy, Url: "http://127.0.0.1:1", Degree: 2,
		Profile: &rotav1.WorkerProfile{Points: []*rotav1.WorkerProfilePoint{{BatchSize: 1, TokenTime: durationpb.New(time.Millisecond)}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	created, err := w.api.Rollouts.CreateRollout(ctx, &rotav1.CreateRolloutRequest{Spec: &rotav1.RolloutSpec{Policy: policy, Groups: steps + 1, SamplesPerGroup: 1}})
	if err != nil {
		t.Fatal(err)
	}
	advise := func(args ...string) (stdout, stderr string, code int) {
		t.Helper()
		out, errs, _, code := w.rota(w.cluster.Addrs()[0], append([]string{"rollout", "advise", policy}, args...)...)
		return out, errs.text.String(), code
	}
	if _, stderr, code := advise("--train-gpus", "8"); code == 0 || !strings.Contains(stderr, "0 steps were measured; 3 are needed") {
		t.Errorf("without a step: exit code %d: %s", code, stderr)
	}
	if _, stderr, code := advise(); code == 0 || !strings.Contains(stderr, "--train-gpus N") {
		t.Errorf("without the trainer's GPUs: exit code %d: %s", code, stderr)
	}
	for step := range uint64(steps + 1) {
		opened, err := w.api.Trajectories.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{Rollout: &rotav1.RolloutMembership{RolloutId: created.Rollout.Id, Group: uint32(step)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.api.Rollouts.PutSample(ctx, &rotav1.PutSampleRequest{TrajectoryId: opened.Trajectory.Id, Reward: 1, Tokens: 10}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.api.Rollouts.GetBatch(ctx, &rotav1.GetBatchRequest{Policy: policy, Step: step + 1, Groups: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.api.Rollouts.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: policy, Version: step + 1}); err != nil {
			t.Fatal(err)
		}
	}
	out, stderr, code := advise("--train-gpus", "8")
	if code != 0 || !strings.Contains(out, "3 steps") || !strings.Contains(out, "8 train, 2 generate, a step takes") || !strings.Contains(out, "The trainer waits for") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	type split struct{ TrainGpus, RolloutGpus uint32 }
	var advice struct{ Now, Best split }
	out, stderr, _ = advise("--train-gpus", "8", "-o", "json")
	if err := json.Unmarshal([]byte(out), &advice); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	if b := advice.Best; advice.Now != (split{8, 2}) || b.TrainGpus == 0 || b.RolloutGpus == 0 || b.TrainGpus+b.RolloutGpus != 10 {
		t.Errorf("of 8 and 2 GPUs it says %s", out)
	}
}
