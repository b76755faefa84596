package fsm

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Bounds of reward functions, in nanoseconds where they are times.
const (
	rewardReportsMax = 1024 // of one command: demands, and replicas
	rewardTimeMax    = 3600 * 1_000_000_000
	rewardIdleMax    = 30 * 24 * 3600 * 1_000_000_000
	// rewardGatewayFor is how long what a gateway has said of its calls counts.
	rewardGatewayFor = 30 * 1_000_000_000
)

// rewardVerb carries out a command about reward functions; nil if it is not one.
func (x *execution) rewardVerb(c *logv1.Command) *logv1.Result {
	switch v := c.Verb.(type) {
	case *logv1.Command_RegisterReward:
		return x.registerReward(v.RegisterReward)
	case *logv1.Command_RemoveReward:
		return x.removeReward(v.RemoveReward)
	case *logv1.Command_ReportRewards:
		return x.reportRewards(v.ReportRewards)
	}
	return nil
}

// registerReward declares a function, or changes it. Another action is another generation, whose
// replicas take the place of those that there are.
func (x *execution) registerReward(c *logv1.RegisterReward) *logv1.Result {
	if r := checkReward(c); r != nil {
		return r
	}
	old := x.s.Reward(c.Name)
	switch {
	case c.Version != 0 && (old == nil || old.Version != c.Version):
		return refuse(codeFailedPrecondition, "REWARD_CHANGED", "reward function %q is no longer of version %d: read it, and change it again", c.Name, c.Version)
	case old == nil && x.s.RewardCount() >= state.RewardsMax:
		return refuse(codeResourceExhausted, "TOO_MANY_REWARDS", "there are %d reward functions already, which is the limit: remove some with: rota reward remove", state.RewardsMax)
	}
	ns, refusal := x.namespace(c.Namespace)
	if refusal != nil {
		return refusal
	}
	if _, refusal := x.pool(c.Action.Pool); refusal != nil {
		return refusal
	}
	encoded, err := c.Action.MarshalVT()
	state.Assert(err == nil, "an action that was decoded cannot be encoded: %v", err)
	r := state.Reward{Name: c.Name, RegisteredAt: x.now(), Action: encoded}
	if old != nil {
		r = *old
	}
	r.Version++
	if old == nil || old.Namespace != ns.Name || !bytes.Equal(old.Action, encoded) {
		r.Action, r.Generation, r.RetryAt, r.Failures, r.Message = encoded, r.Version, 0, 0, ""
	}
	r.Namespace, r.Spec, r.Min, r.Max, r.Concurrency = ns.Name, c.Spec, c.Min, c.Max, c.Concurrency
	r.IdleNS, r.TimeoutNS, r.StartNS = c.IdleNs, c.TimeoutNs, c.StartNs
	r.Cores, r.GPUs = c.Action.CoresMin, 0
	if g := c.Action.Needs.GetGpus(); g != nil {
		r.GPUs = g.Degrees[0]
	}
	r.Wanted = min(r.Wanted, r.Max)
	x.lookAtReward(&r)
	return &logv1.Result{Count: 1}
}

// checkReward refuses what no function can be.
func checkReward(c *logv1.RegisterReward) *logv1.Result {
	a := c.Action
	switch {
	case c.Name == "" || len(c.Name) > state.RewardNameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "a reward function needs a name of at most %d bytes", state.RewardNameBytesMax)
	case c.Max == 0 || c.Max > state.RewardReplicasMax || c.Min > c.Max:
		return refuse(codeInvalidArgument, "INVALID", "reward function %q needs a max of 1 to %d, and a min of at most that", c.Name, state.RewardReplicasMax)
	case c.Concurrency == 0 || c.Concurrency > state.RewardConcurrencyMax:
		return refuse(codeInvalidArgument, "INVALID", "reward function %q needs a concurrency of 1 to %d", c.Name, state.RewardConcurrencyMax)
	case min(c.IdleNs, c.TimeoutNs, c.StartNs) <= 0 || max(c.TimeoutNs, c.StartNs) > rewardTimeMax || c.IdleNs > rewardIdleMax:
		return refuse(codeInvalidArgument, "INVALID", "reward function %q needs times above 0: idle of at most 30 days, timeout and start_timeout of at most an hour", c.Name)
	case len(c.Spec) == 0 || len(c.Spec) > state.RewardSpecBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "reward function %q is declared with %d bytes; it must be 1 to %d", c.Name, len(c.Spec), state.RewardSpecBytesMax)
	case a == nil || a.SizeVT() > state.RewardSpecBytesMax || a.TrajectoryId != 0 || a.AttemptsMax != 1 || a.CoresMin != a.CoresMax || len(a.Needs.GetCores()) > 0:
		return refuse(codeInvalidArgument, "INVALID", "a replica of reward function %q must be an action with a fixed number of cores, one attempt and no trajectory", c.Name)
	case a.Needs.GetGpus() != nil && len(a.Needs.Gpus.Degrees) != 1:
		return refuse(codeInvalidArgument, "INVALID", "a replica of reward function %q must have one number of GPUs, not a choice", c.Name)
	}
	return nil
}

// lookAtReward stores a function, and has it looked at before this entry schedules.
func (x *execution) lookAtReward(r *state.Reward) {
	r.DueAt = max(1, x.now())
	x.s.PutReward(r)
	x.routes.rewards.add(r.Name)
}

// removeReward forgets a function and ends its replicas.
func (x *execution) removeReward(c *logv1.RemoveReward) *logv1.Result {
	if x.s.Reward(c.Name) == nil {
		return refuse(codeNotFound, "REWARD_NOT_FOUND", "there is no reward function %q; see: rota reward list", c.Name)
	}
	for _, p := range x.s.ReplicasOf(c.Name) {
		x.s.DeleteReplica(p.Action) // so that its end is nothing to the function
		x.cancel(x.s.Action(p.Action), state.EndCanceled)
	}
	x.s.DeleteReward(c.Name)
	x.routes.rewards.add(c.Name)
	return &logv1.Result{Count: 1}
}

// reportRewards takes down how many calls a gateway has, and what it saw of replicas.
func (x *execution) reportRewards(c *logv1.ReportRewards) *logv1.Result {
	if r := x.replay(c.Request, nil, state.VerbReportRewards, 1); r != nil {
		return r
	}
	if r := checkRewardReport(c); r != nil {
		return r
	}
	for _, d := range c.Demands {
		x.takeDemand(c.Gateway, d)
	}
	for _, p := range c.Replicas {
		x.hearOfReplica(c.Gateway, p)
	}
	x.remember(c.Request, nil, state.VerbReportRewards, 1, 1)
	return &logv1.Result{FirstId: 1, Count: 1}
}

func checkRewardReport(c *logv1.ReportRewards) *logv1.Result {
	if c.Gateway == "" || len(c.Gateway) > state.RewardNameBytesMax || max(len(c.Demands), len(c.Replicas)) > rewardReportsMax {
		return refuse(codeInvalidArgument, "INVALID", "a report needs the name of a gateway of at most %d bytes, and may be about %d functions and replicas", state.RewardNameBytesMax, rewardReportsMax)
	}
	for _, d := range c.Demands {
		if d.CallNs < 0 || d.FailedCalls > d.Calls {
			return refuse(codeInvalidArgument, "INVALID", "the report about reward function %q has a negative time, or more calls that failed than calls", d.Name)
		}
	}
	for _, p := range c.Replicas {
		if len(p.Message) > state.RewardMessageBytesMax {
			return refuse(codeInvalidArgument, "INVALID", "the message about replica %d has %d bytes; at most %d are allowed", p.ActionId, len(p.Message), state.RewardMessageBytesMax)
		}
	}
	return nil
}

// takeDemand replaces what a gateway said before. If too many gateways report, the one that
// reported longest ago makes room.
func (x *execution) takeDemand(gateway string, d *logv1.RewardDemand) {
	old := x.s.Reward(d.Name)
	if old == nil {
		return
	}
	r := *old
	r.Gateways = slices.Clone(old.Gateways)
	at, found := slices.BinarySearchFunc(r.Gateways, gateway, func(g state.RewardGateway, name string) int { return strings.Compare(g.Name, name) })
	said := state.RewardGateway{Name: gateway, Running: d.Running, Waiting: d.Waiting, At: x.now()}
	if found {
		r.Gateways[at] = said
	} else {
		r.Gateways = slices.Insert(r.Gateways, at, said)
		if len(r.Gateways) > state.RewardGatewaysMax {
			oldest := slices.MinFunc(r.Gateways, func(a, b state.RewardGateway) int {
				return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Name, b.Name))
			})
			r.Gateways = slices.DeleteFunc(r.Gateways, func(g state.RewardGateway) bool { return g == oldest })
		}
	}
	r.Calls = state.Saturated(r.Calls, d.Calls)
	r.FailedCalls = state.Saturated(r.FailedCalls, d.FailedCalls)
	r.CallNS = state.Saturated(r.CallNS, uint64(d.CallNs))
	x.lookAtReward(&r)
}

// hearOfReplica takes down what a gateway saw of a replica. Said again, nothing changes.
func (x *execution) hearOfReplica(gateway string, c *logv1.RewardReplicaReport) {
	old := x.s.Replica(state.ActionID(c.ActionId))
	if old == nil {
		return
	}
	p, r := *old, *x.s.Reward(old.Reward)
	switch {
	case c.Failed && p.State != state.ReplicaDraining:
		p.State, p.EndAt = state.ReplicaDraining, x.now()
		x.countFailure(&r, cmp.Or(c.Message, "a gateway could not use it and did not say why"))
	case c.Ready && p.State == state.ReplicaStarting:
		p.State, p.EndAt = state.ReplicaReady, 0
		if p.Generation == r.Generation {
			r.Failures, r.RetryAt, r.Message, r.GaveWay = 0, 0, "", 0
		}
	case c.Idle && p.State == state.ReplicaDraining && !slices.Contains(p.Idle, gateway) && len(p.Idle) < state.RewardGatewaysMax:
		at, _ := slices.BinarySearch(p.Idle, gateway)
		p.Idle = slices.Insert(slices.Clone(p.Idle), at, gateway)
	default:
		return
	}
	x.s.PutReplica(&p)
	x.lookAtReward(&r)
}
