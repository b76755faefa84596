package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/scale/replicas"
)

const (
	// rewardLooksMax is how many reward functions one entry looks at. Others are still due.
	rewardLooksMax = 64
	// rewardStartsMax is after how many new replicas an entry looks at no further function.
	rewardStartsMax = 256
	// After a replica failed, the next is started after rewardRetryMin, after another failure in a
	// row after twice that, and so on up to rewardRetryMax.
	rewardRetryMin = 1_000_000_000
	rewardRetryMax = 60 * 1_000_000_000
	// rewardDrainSlack is how long a replica drains beyond the longest call.
	rewardDrainSlack = 5 * 1_000_000_000
	// rewardHaltedFor is how long a function rests whose decision panicked.
	rewardHaltedFor = 60 * 1_000_000_000
)

// scaleRewards starts and ends replicas of the functions that are due, before actions are
// scheduled. The bounds are its own: calls do not wait for an entry with little else to do. What they
// do not reach is still due.
func (x *execution) scaleRewards() {
	for looks, starts := 0, 0; looks < rewardLooksMax && starts < rewardStartsMax; looks++ {
		at, name, ok := x.s.RewardDue()
		if !ok || at > x.now() {
			return
		}
		if slices.Contains(x.faults.rewards, name) {
			r := *x.s.Reward(name)
			r.DueAt = x.now() + rewardHaltedFor
			x.s.PutReward(&r)
			continue
		}
		x.enter(stage{command: -1, reward: name})
		x.budget--
		starts += x.scaleReward(x.s.Reward(name))
	}
}

// scaleReward decides about the replicas of one function, and returns how many it starts. What ends
// here has the function looked at again.
func (x *execution) scaleReward(old *state.Reward) (starts int) {
	r := *old
	r.Gateways = slices.DeleteFunc(slices.Clone(old.Gateways), func(g state.RewardGateway) bool { return g.At+rewardGatewayFor <= x.now() })
	all, waits := x.lateReplicas(&r)
	var starting, ready, older []*state.Replica
	for _, p := range all {
		switch {
		case p.State == state.ReplicaDraining:
			if p.Generation != r.Generation {
				waits = nil // for what that one holds
			}
		case p.Generation != r.Generation:
			older = append(older, p)
		case p.State == state.ReplicaReady:
			ready = append(ready, p)
		default:
			starting = append(starting, p)
		}
	}
	d := replicas.Decide(replicas.Load{
		Demand: r.Demand(), Min: r.Min, Max: r.Max, Concurrency: r.Concurrency,
		Starting: uint32(len(starting)), Ready: uint32(len(ready)),
		Now: x.now(), IdleNS: r.IdleNS, Low: r.Low, LowSince: r.LowSince, Peak: r.Peak,
	})
	early := x.givesWay(&r, waits, starting, older)
	r.Wanted, r.Low, r.LowSince, r.Peak = d.Wanted, d.Low, d.LowSince, d.Peak
	// Those that cannot be called yet go first, and of equals the newest.
	slices.Reverse(starting)
	slices.Reverse(ready)
	leave := append(starting, ready...)[:d.Drain]
	if uint32(len(ready)) >= d.Wanted {
		leave = append(leave, older...)
	} else if early != nil {
		leave = append(leave, early)
		r.GaveWay = r.Generation
	}
	for _, p := range leave {
		u := *p
		u.State, u.EndAt, u.Idle = state.ReplicaDraining, x.now()+r.TimeoutNS+rewardDrainSlack, nil
		x.s.PutReplica(&u)
	}
	if r.RetryAt <= x.now() {
		r.RetryAt = 0
		x.startReplicas(&r, d.Start)
	}
	r.DueAt = x.rewardDueAt(&r)
	x.s.PutReward(&r)
	x.routes.rewards.add(r.Name)
	x.endReplicas(&r)
	return int(r.Starts - old.Starts)
}

// givesWay returns the old replica that drains before new ones are ready, if any does: a new one has
// waited for --start-timeout and is the first in its queue, so it gets what the old one holds. The next old
// one stays until a new one is ready, and all stay after one has failed.
func (x *execution) givesWay(r *state.Reward, waits *state.Action, starting, older []*state.Replica) *state.Replica {
	if waits == nil || waits.Aside || r.Failures > 0 || r.GaveWay == r.Generation || x.s.Pool(waits.Pool).Halted != "" {
		return nil
	}
	for _, p := range starting {
		if x.s.Action(p.Action).State == state.ActionRunning {
			return nil // it may be ready soon
		}
	}
	first := false
	x.s.Queued(waits.Queue(), 0, func(id state.ActionID) bool {
		first = id == waits.ID
		return false
	})
	i := slices.IndexFunc(older, func(p *state.Replica) bool { return holdsFor(x.s.Action(p.Action), waits) })
	if !first || i < 0 {
		return nil
	}
	return older[i]
}

// holdsFor reports whether a running action holds what another waits for: cores, or as many GPUs.
func holdsFor(a, waits *state.Action) bool {
	if a.State != state.ActionRunning || a.Pool != waits.Pool || a.KeyResource() != waits.KeyResource() {
		return false
	}
	return a.GPUs() == nil || a.GPUs().Degrees[0] >= waits.GPUs().Degrees[0]
}

// lateReplicas returns the replicas of a function, after those that were not ready in time have
// been given up. While no gateway reports, nobody can say that one is ready. One that waits for
// resources has not begun. The oldest of the newest generation that has waited for so long is in waits.
func (x *execution) lateReplicas(r *state.Reward) (all []*state.Replica, waits *state.Action) {
	for _, p := range x.s.ReplicasOf(r.Name) {
		if p.State != state.ReplicaStarting || p.EndAt > x.now() {
			continue
		}
		u, a := *p, x.s.Action(p.Action)
		switch u.EndAt = a.StartedAt + r.StartNS; {
		case a.State != state.ActionRunning || len(r.Gateways) == 0:
			u.EndAt = x.now() + r.StartNS
			if a.State == state.ActionQueued && p.Generation == r.Generation && waits == nil {
				waits = a
			}
		case u.EndAt <= x.now():
			u.State = state.ReplicaDraining
			x.countFailure(r, fmt.Sprintf("action %d could not be called %d s after its start", a.ID, r.StartNS/1_000_000_000))
		}
		x.s.PutReplica(&u)
	}
	return x.s.ReplicasOf(r.Name), waits
}

// countFailure puts off the next start. r is changed and not stored.
func (x *execution) countFailure(r *state.Reward, message string) {
	r.Failures = min(r.Failures+1, 16)
	r.RetryAt = x.now() + min(int64(rewardRetryMin)<<(r.Failures-1), rewardRetryMax)
	r.Message = strings.ToValidUTF8(message[:min(len(message), state.RewardMessageBytesMax)], "") // without a character that was cut
}

// startReplicas queues the actions of new replicas. One that is refused counts as a failure.
func (x *execution) startReplicas(r *state.Reward, n uint32) {
	for range n {
		a := &logv1.Action{}
		err := a.UnmarshalVT(r.Action)
		state.Assert(err == nil, "the action of reward function %s cannot be decoded: %v", r.Name, err)
		result := x.submitActions(&logv1.SubmitActions{Namespace: r.Namespace, Actions: []*logv1.Action{a}})
		if result.Refusal != nil {
			x.countFailure(r, result.Refusal.Message)
			return
		}
		r.Starts++
		x.budget -= placeCost
		x.s.PutReplica(&state.Replica{
			Action: state.ActionID(result.FirstId), Reward: r.Name, Generation: r.Generation, State: state.ReplicaStarting, EndAt: x.now() + r.StartNS,
		})
	}
}

// rewardDueAt is when a function has to be looked at again, if nothing changes; 0: never.
func (x *execution) rewardDueAt(r *state.Reward) (due int64) {
	at := func(t int64) {
		if t != 0 && (due == 0 || t < due) {
			due = t
		}
	}
	at(r.RetryAt)
	if r.Low {
		at(r.LowSince + r.IdleNS)
	}
	for _, g := range r.Gateways {
		at(g.At + rewardGatewayFor)
	}
	for _, p := range x.s.ReplicasOf(r.Name) {
		if a := x.s.Action(p.Action); a.CancelReason == 0 {
			at(p.EndAt)
		}
	}
	return due
}

// endReplicas ends the replicas that have drained: no gateway has a call there, or it is time.
func (x *execution) endReplicas(r *state.Reward) {
	for _, p := range x.s.ReplicasOf(r.Name) {
		a := x.s.Action(p.Action)
		if p.State == state.ReplicaDraining && (p.EndAt <= x.now() || a.State == state.ActionQueued || p.Drained(r.Gateways)) {
			x.cancel(a, state.EndCanceled)
		}
	}
}

// replicaStarted has gateways told where a replica is.
func (x *execution) replicaStarted(id state.ActionID) {
	if p := x.s.Replica(id); p != nil {
		x.routes.rewards.add(p.Reward)
	}
}

// replicaEnded takes down what a replica has held. One that was not drained has failed.
func (x *execution) replicaEnded(a *state.Action) {
	p := x.s.Replica(a.ID)
	if p == nil {
		return
	}
	x.s.DeleteReplica(a.ID)
	r := *x.s.Reward(p.Reward)
	if a.Attempt > 0 {
		r.Hold(a, a.EndedAt)
	}
	if p.State != state.ReplicaDraining {
		x.countFailure(&r, fmt.Sprintf("action %d ended with %s", a.ID, howEnded(a.Result)))
	}
	x.lookAtReward(&r)
}

// howEnded says how a process ended, and the last that it wrote.
func howEnded(r *state.Result) string {
	how := "exit code " + itoa(int(r.ExitCode))
	switch {
	case r.Message != "":
		return "an error: " + r.Message
	case r.Signal != 0:
		how = "signal " + itoa(int(r.Signal))
	}
	return how + ": " + cmp.Or(lastLine(r.Stderr), "it wrote no error; see: rota action get")
}

// lastLine is the end of what a command wrote, of at most 200 bytes.
func lastLine(text []byte) string {
	end := len(text)
	for end > 0 && (text[end-1] == '\n' || text[end-1] == '\r') {
		end--
	}
	begin := end
	for begin > 0 && end-begin < 200 && text[begin-1] != '\n' {
		begin--
	}
	clean := make([]byte, 0, end-begin)
	for _, b := range text[begin:end] {
		if b >= ' ' && b <= '~' {
			clean = append(clean, b)
		}
	}
	return string(clean)
}
