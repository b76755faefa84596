package rpc

import (
	"fmt"
	"math"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// batchWaitMax is the longest that a call waits for a batch.
const batchWaitMax = time.Hour

// requirePolicy checks the name of a policy, which is often that of a model.
func requirePolicy(path, name string) *violation {
	if name == "" {
		return wrong(path, "is required")
	}
	return checkText(path, name, state.PolicyNameBytesMax)
}

func checkRollout(r *rotav1.CreateRolloutRequest) *violation {
	if v := firstOf(checkRequest(r.RequestId, r.ExpireTime), checkName("namespace", r.Namespace)); v != nil {
		return v
	}
	s := r.Spec
	if s == nil {
		return wrong("spec", "is required")
	}
	return firstOf(
		checkText("name", s.Name, nameBytesMax),
		requirePolicy("policy", s.Policy),
		checkBetween("groups", s.Groups, 1, state.RolloutGroupsMax),
		checkBetween("samples_per_group", s.SamplesPerGroup, 1, state.GroupSamplesMax),
		checkBetween("redundant", s.Redundant, 0, state.GroupSamplesMax),
	).in("spec")
}

func checkBetween(path string, n, least, most uint32) *violation {
	if n < least || n > most {
		return wrong(path, "must be %d to %d, is %d", least, most, n)
	}
	return nil
}

// checkMembership checks the place in a rollout that a trajectory is opened for; nil is none.
func checkMembership(m *rotav1.RolloutMembership) *violation {
	if m == nil {
		return nil
	}
	return requireID("rollout.rollout_id", m.RolloutId)
}

func checkSample(r *rotav1.PutSampleRequest) *violation {
	if math.IsNaN(r.Reward) || math.IsInf(r.Reward, 0) {
		return wrong("reward", "must be a finite number, is %s", fmt.Sprint(r.Reward))
	}
	return firstOf(requireID("trajectory_id", r.TrajectoryId), checkText("reference", r.Reference, state.ReferenceBytesMax))
}

func checkGetBatch(r *rotav1.GetBatchRequest) *violation {
	return firstOf(requirePolicy("policy", r.Policy), requireID("step", r.Step),
		checkBetween("groups", r.Groups, 1, state.BatchSamplesMax), checkTimeout("wait", r.Wait, batchWaitMax))
}
