package rpc

import (
	"strings"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// Limits of reward functions.
const (
	rewardTimeMax    = time.Hour
	rewardRetriesMax = 10
	rewardQueueMax   = 1 << 20
	rewardReportsMax = 1024
	// portMark stands for the port that a replica must listen on.
	portMark = "{{port}}"
)

func checkReward(r *rotav1.RewardSpec) *violation {
	switch {
	case r == nil:
		return wrong("name", "is required")
	case r.Command == nil:
		return wrong("command", "is required: it starts a replica")
	case hasUnknown(r):
		return wrong("", "has fields that this server does not know: leave them out, or upgrade the servers")
	}
	return firstOf(
		requireName("name", r.Name), checkName("namespace", r.Namespace), checkRewardScale(r), checkRewardTimes(r),
		checkEnginePath("path", r.Path), checkRewardProbe(r.ProbePath), checkReplica(r),
	)
}

func checkRewardScale(r *rotav1.RewardSpec) *violation {
	_, known := rotav1.RewardProtocol_name[int32(r.Protocol)]
	switch {
	case r.Max == 0 || r.Max > state.RewardReplicasMax:
		return wrong("max", "must be 1 to %d, is %d", state.RewardReplicasMax, r.Max)
	case r.Min > r.Max:
		return wrong("min", "must be at most max, which is %d, is %d", r.Max, r.Min)
	case r.Concurrency == 0 || r.Concurrency > state.RewardConcurrencyMax:
		return wrong("concurrency", "must be 1 to %d, is %d", state.RewardConcurrencyMax, r.Concurrency)
	case r.GetRetries() > rewardRetriesMax:
		return wrong("retries", "must be at most %d, is %d", rewardRetriesMax, r.GetRetries())
	case r.Queue > rewardQueueMax:
		return wrong("queue", "must be at most %d, is %d", rewardQueueMax, r.Queue)
	case !known:
		return wrong("protocol", "is not a protocol: %d", r.Protocol)
	}
	return nil
}

func checkRewardTimes(r *rotav1.RewardSpec) *violation {
	if v := firstOf(checkDuration("idle", r.Idle), checkTimeout("timeout", r.Timeout, rewardTimeMax), checkTimeout("start_timeout", r.StartTimeout, rewardTimeMax)); v != nil {
		return v
	}
	for _, t := range []struct {
		path string
		d    time.Duration
	}{{"idle", r.Idle.AsDuration()}, {"timeout", r.Timeout.AsDuration()}, {"start_timeout", r.StartTimeout.AsDuration()}} {
		if t.d <= 0 {
			return wrong(t.path, "must be above 0")
		}
	}
	return nil
}

func checkRewardProbe(path string) *violation {
	if path == "" {
		return nil
	}
	return checkEnginePath("probe_path", path)
}

// checkReplica checks the action that a replica is.
func checkReplica(r *rotav1.RewardSpec) *violation {
	if r.Resources != nil {
		switch gpus := r.Resources.GetGpus(); {
		case len(r.Resources.AllowedCores) > 0 || r.Resources.MaxCores > leastCores(r.Resources):
			return wrong("resources.cores", "must be one number: more calls are what more replicas are for")
		case gpus != nil && len(gpus.Gpus) != 1:
			return wrong("resources.gpus.gpus", "must be one number of GPUs: more calls are what more replicas are for")
		}
	}
	if v := checkSpec(replicaSpec(r)); v != nil {
		return v
	}
	if !hasMark(r.Command, portMark) {
		return wrong("command", "must have %s in an argument or a variable: it becomes the port that the replica must listen on, on 127.0.0.1", portMark)
	}
	return nil
}

func hasMark(c *rotav1.Command, mark string) (has bool) {
	for _, arg := range c.Argv {
		has = has || strings.Contains(arg, mark)
	}
	for _, value := range c.Env {
		has = has || strings.Contains(value, mark)
	}
	return has
}

func checkRewardReports(req *rotav1.ReportRewardsRequest) *violation {
	if v := firstOf(
		checkRequest(req.RequestId, req.ExpireTime), requireText("gateway", req.Gateway, state.RewardNameBytesMax),
	); v != nil {
		return v
	}
	switch d, p := len(req.Demands), len(req.Replicas); {
	case max(d, p) > rewardReportsMax:
		return wrong("demands", "and replicas must be at most %d each, are %d and %d", rewardReportsMax, d, p)
	case d+p == 0:
		return wrong("demands", "is required, if no replica is reported")
	}
	for i, d := range req.Demands {
		v := firstOf(requireName("name", d.GetName()), checkDuration("call_time", d.GetCallTime()))
		if v == nil && d.FailedCalls > d.Calls {
			v = wrong("failed_calls", "must be at most calls, which is %d, is %d", d.Calls, d.FailedCalls)
		}
		if v != nil {
			return v.in("demands[%d]", i)
		}
	}
	for i, p := range req.Replicas {
		if v := requireID("action_id", p.GetActionId()); v != nil {
			return v.in("replicas[%d]", i)
		}
	}
	return nil
}
