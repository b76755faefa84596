package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Reward functions: how many replicas they have (docs/rewards.md). Why a replica failed is taken
// over; that one did is not.

const (
	rewardsMax          = 256
	rewardNameMax       = 128
	rewardSpecMax       = 68 << 10
	rewardMessageMax    = 512
	rewardReplicasMax   = 512
	rewardCallsMax      = 1024 // of one replica
	rewardReportsMax    = 1024
	rewardGatewaysMax   = 64
	rewardGatewayFor    = 30 * 1_000_000_000
	rewardHourNS        = 3600 * 1_000_000_000
	rewardRetryFirst    = 1_000_000_000
	rewardRetryLast     = 60 * 1_000_000_000
	rewardDrainSlack    = 5 * 1_000_000_000
	rewardLooksMax      = 64
	rewardStartsMax     = 256 // of an entry
	rewardStartsAtOnce  = 8
	rewardFailuresCount = 16
)

// rewards is what the model knows of them.
type rewards struct {
	all      map[string]*state.Reward
	replicas map[state.ActionID]*state.Replica
}

func newRewards() rewards {
	return rewards{all: map[string]*state.Reward{}, replicas: map[state.ActionID]*state.Replica{}}
}

func (m *Model) rewardCommand(c *logv1.Command, got *logv1.Result) (known bool, err error) {
	var do func() error
	switch v := c.Verb.(type) {
	case *logv1.Command_RegisterReward:
		do = func() error { return m.registerReward(v.RegisterReward, got) }
	case *logv1.Command_RemoveReward:
		do = func() error { return m.removeReward(v.RemoveReward, got) }
	case *logv1.Command_ReportRewards:
		do = func() error { return m.reportRewards(v.ReportRewards, got) }
	default:
		return false, nil
	}
	if m.level < levelResizing {
		return true, refused(got, "LEVEL_NOT_ACTIVE")
	}
	return true, do()
}

func (m *Model) registerReward(c *logv1.RegisterReward, got *logv1.Result) error {
	var v verdict
	a, old := c.Action, m.rewards.all[c.Name]
	v.refuse(c.Name == "" || len(c.Name) > rewardNameMax || len(c.Spec) == 0 || len(c.Spec) > rewardSpecMax, "INVALID")
	v.refuse(c.Max < 1 || c.Max > rewardReplicasMax || c.Min > c.Max || c.Concurrency < 1 || c.Concurrency > rewardCallsMax, "INVALID")
	v.refuse(c.IdleNs < 1 || c.IdleNs > 720*rewardHourNS || c.TimeoutNs < 1 || c.TimeoutNs > rewardHourNS || c.StartNs < 1 || c.StartNs > rewardHourNS, "INVALID")
	v.refuse(a == nil || a.SizeVT() > rewardSpecMax || a.TrajectoryId != 0 || a.AttemptsMax != 1 || a.CoresMin != a.CoresMax, "INVALID")
	v.refuse(len(a.GetNeeds().GetCores()) > 0 || a.GetNeeds().GetGpus() != nil && len(a.Needs.Gpus.Degrees) != 1, "INVALID")
	if len(v.must) == 0 { // what is malformed is refused before anything is looked up
		v.refuse(c.Version != 0 && (old == nil || old.Version != c.Version), "REWARD_CHANGED")
		v.refuse(old == nil && len(m.rewards.all) >= rewardsMax, "TOO_MANY_REWARDS")
		v.refuse(m.namespaces[orDefault(c.Namespace)] == 0, "NAMESPACE_NOT_FOUND")
		v.refuse(m.pools[orDefault(a.Pool)] == nil, "POOL_NOT_FOUND")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	encoded, err := a.MarshalVT()
	if err != nil {
		return err
	}
	r := old
	if r == nil {
		r = &state.Reward{Name: c.Name, RegisteredAt: m.now}
		m.rewards.all[c.Name] = r
	}
	r.Version++
	if namespace := orDefault(c.Namespace); r.Generation == 0 || r.Namespace != namespace || string(r.Action) != string(encoded) {
		r.Namespace, r.Action, r.Generation = namespace, encoded, r.Version
		r.RetryAt, r.Failures, r.Message = 0, 0, ""
	}
	r.Spec, r.Min, r.Max, r.Concurrency = c.Spec, c.Min, c.Max, c.Concurrency
	r.IdleNS, r.TimeoutNS, r.StartNS = c.IdleNs, c.TimeoutNs, c.StartNs
	r.Cores, r.GPUs = a.CoresMin, 0
	if a.GetNeeds().GetGpus() != nil {
		r.GPUs = a.Needs.Gpus.Degrees[0]
	}
	r.Wanted = min(r.Wanted, r.Max)
	m.rewardChanged(r)
	return result(got, &logv1.Result{Count: 1})
}

// rewardChanged: it is looked at before the entry ends.
func (m *Model) rewardChanged(r *state.Reward) { r.DueAt = max(m.now, 1) }

func (m *Model) removeReward(c *logv1.RemoveReward, got *logv1.Result) error {
	if m.rewards.all[c.Name] == nil {
		return refused(got, "REWARD_NOT_FOUND")
	}
	for _, p := range m.replicasOf(c.Name) {
		delete(m.rewards.replicas, p.Action)
		if _, err := m.cancel(m.actions[p.Action], state.EndCanceled); err != nil {
			return err
		}
	}
	delete(m.rewards.all, c.Name)
	return result(got, &logv1.Result{Count: 1})
}

// replicasOf are the replicas of a function, the oldest first.
func (m *Model) replicasOf(name string) (all []*state.Replica) {
	for _, id := range slices.Sorted(maps.Keys(m.rewards.replicas)) {
		if p := m.rewards.replicas[id]; p.Reward == name {
			all = append(all, p)
		}
	}
	return all
}

func (m *Model) reportRewards(c *logv1.ReportRewards, got *logv1.Result) error {
	if done, err := m.replayed(c.Request, 0, state.VerbReportRewards, 1, got); done {
		return err
	}
	var v verdict
	v.refuse(c.Gateway == "" || len(c.Gateway) > rewardNameMax || len(c.Demands) > rewardReportsMax || len(c.Replicas) > rewardReportsMax, "INVALID")
	for _, d := range c.Demands {
		v.refuse(d.CallNs < 0 || d.Calls < d.FailedCalls, "INVALID")
	}
	for _, p := range c.Replicas {
		v.refuse(len(p.Message) > rewardMessageMax, "INVALID")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	for _, d := range c.Demands {
		if r := m.rewards.all[d.Name]; r != nil {
			m.demandOf(r, c.Gateway, d)
		}
	}
	for _, said := range c.Replicas {
		if p := m.rewards.replicas[state.ActionID(said.ActionId)]; p != nil {
			m.hearsOfReplica(p, c.Gateway, said)
		}
	}
	m.remember(c.Request, 0, state.VerbReportRewards, 1, 1)
	return result(got, &logv1.Result{FirstId: 1, Count: 1})
}

func (m *Model) demandOf(r *state.Reward, gateway string, d *logv1.RewardDemand) {
	r.Gateways = slices.DeleteFunc(slices.Clone(r.Gateways), func(g state.RewardGateway) bool { return g.Name == gateway })
	r.Gateways = append(r.Gateways, state.RewardGateway{Name: gateway, Running: d.Running, Waiting: d.Waiting, At: m.now})
	for len(r.Gateways) > rewardGatewaysMax {
		slices.SortFunc(r.Gateways, func(a, b state.RewardGateway) int {
			return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Name, b.Name))
		})
		r.Gateways = r.Gateways[1:]
	}
	slices.SortFunc(r.Gateways, func(a, b state.RewardGateway) int { return strings.Compare(a.Name, b.Name) })
	for sum, more := range map[*uint64]uint64{&r.Calls: d.Calls, &r.FailedCalls: d.FailedCalls, &r.CallNS: uint64(d.CallNs)} {
		*sum += min(more, math.MaxUint64-*sum)
	}
	m.rewardChanged(r)
}

func (m *Model) hearsOfReplica(p *state.Replica, gateway string, said *logv1.RewardReplicaReport) {
	r, drains := m.rewards.all[p.Reward], p.State == state.ReplicaDraining
	if said.Failed && !drains {
		p.State, p.EndAt = state.ReplicaDraining, m.now
		m.replicaFailed(r)
	} else if said.Ready && p.State == state.ReplicaStarting {
		p.State, p.EndAt = state.ReplicaReady, 0
		if r.Generation == p.Generation {
			r.RetryAt, r.Failures, r.Message, r.GaveWay = 0, 0, "", 0
		}
	} else if said.Idle && drains && len(p.Idle) < rewardGatewaysMax && !slices.Contains(p.Idle, gateway) {
		p.Idle = append(slices.Clone(p.Idle), gateway)
		slices.Sort(p.Idle)
	} else {
		return
	}
	m.rewardChanged(r)
}

// replicaFailed: the next one starts later, the more often one has failed.
func (m *Model) replicaFailed(r *state.Reward) {
	r.Failures = min(r.Failures+1, rewardFailuresCount)
	pause := int64(rewardRetryFirst)
	for range r.Failures - 1 {
		pause = min(2*pause, rewardRetryLast)
	}
	r.RetryAt = m.now + pause
	r.Message = unknownMessage
}

// unknownMessage stands for what is taken over.
const unknownMessage = "\x00"

// heldTo is a sum with a time of so many units more, or the highest number that there is.
func heldTo(sum uint64, ns int64, units uint32) uint64 {
	more := new(big.Int).Mul(big.NewInt(ns), big.NewInt(int64(units)))
	if more.Add(more, new(big.Int).SetUint64(sum)); more.IsUint64() {
		return more.Uint64()
	}
	return math.MaxUint64
}

// replicaOver notes the end of an action with the function whose replica it was.
func (m *Model) replicaOver(a *action) {
	p := m.rewards.replicas[a.ID]
	if p == nil {
		return
	}
	delete(m.rewards.replicas, a.ID)
	r := m.rewards.all[p.Reward]
	if a.Attempt > 0 {
		held, gpus := m.now-a.StartedAt, uint32(0)
		if a.Needs != nil && a.Needs.GPUs != nil {
			gpus = a.Needs.GPUs.Degrees[0]
		}
		r.CoreNS, r.GPUNS = heldTo(r.CoreNS, held, a.CoresMin), heldTo(r.GPUNS, held, gpus)
	}
	if p.State != state.ReplicaDraining {
		m.replicaFailed(r)
	}
	m.rewardChanged(r)
}

// scaleRewards looks at the functions that are due, those first that have been for longest.
func (m *Model) scaleRewards() error {
	for looks, starts := 0, uint64(0); looks < rewardLooksMax && starts < rewardStartsMax; looks++ {
		var next *state.Reward
		for _, name := range slices.Sorted(maps.Keys(m.rewards.all)) {
			if r := m.rewards.all[name]; r.DueAt != 0 && r.DueAt <= m.now && (next == nil || r.DueAt < next.DueAt) {
				next = r
			}
		}
		if next == nil {
			return nil
		}
		before := next.Starts
		if err := m.scaleReward(next); err != nil {
			return fmt.Errorf("reward function %s: %w", next.Name, err)
		}
		starts += next.Starts - before
	}
	return nil
}

func (m *Model) scaleReward(r *state.Reward) error {
	r.Gateways = slices.DeleteFunc(slices.Clone(r.Gateways), func(g state.RewardGateway) bool { return m.now-g.At >= rewardGatewayFor })
	late := m.giveUpLate(r)
	of := func(s state.ReplicaState, current bool) (list []*state.Replica) {
		for _, p := range m.replicasOf(r.Name) {
			if p.State == s && (p.Generation == r.Generation) == current {
				list = append([]*state.Replica{p}, list...) // the newest first
			}
		}
		return list
	}
	starting, ready := of(state.ReplicaStarting, true), of(state.ReplicaReady, true)
	start, drain := m.decideReplicas(r, len(starting), len(ready))
	leaving := append(slices.Clone(starting), ready...)[:drain]
	if p := m.holdsUp(r, late); p != nil && len(ready) < int(r.Wanted) {
		leaving, r.GaveWay = append(leaving, p), r.Generation
	}
	if len(ready) >= int(r.Wanted) {
		leaving = append(append(leaving, of(state.ReplicaReady, false)...), of(state.ReplicaStarting, false)...)
	}
	for _, p := range leaving {
		p.State, p.EndAt, p.Idle = state.ReplicaDraining, m.now+r.TimeoutNS+rewardDrainSlack, nil
	}
	if r.RetryAt <= m.now {
		r.RetryAt = 0
		if err := m.startReplicas(r, start); err != nil {
			return err
		}
	}
	m.nextLook(r)
	for _, p := range m.replicasOf(r.Name) {
		a := m.actions[p.Action]
		asked := func(g state.RewardGateway) bool { return !slices.Contains(p.Idle, g.Name) }
		if p.State != state.ReplicaDraining || a.State == state.ActionRunning && p.EndAt > m.now && slices.ContainsFunc(r.Gateways, asked) {
			continue
		}
		if _, err := m.cancel(a, state.EndCanceled); err != nil {
			return err
		}
	}
	return nil
}

// holdsUp returns the oldest replica of an older generation if a new one waits for what it holds: that one
// comes next in its queue, no new one has failed or begun, no old one leaves already, and none has left for
// this generation since one of it was ready.
func (m *Model) holdsUp(r *state.Reward, late *action) (old *state.Replica) {
	if late == nil || r.Failures != 0 || r.GaveWay == r.Generation || late.pool.halted || m.aside(late) || slices.ContainsFunc(m.queueOf(late).waiting, func(b *action) bool { return b.ID < late.ID && !m.aside(b) }) {
		return nil
	}
	for _, p := range m.replicasOf(r.Name) {
		begun := m.actions[p.Action].State == state.ActionRunning && p.State == state.ReplicaStarting
		switch {
		case p.Generation == r.Generation && begun, p.Generation != r.Generation && p.State == state.ReplicaDraining:
			return nil
		case p.Generation != r.Generation && old == nil && holdsWhat(m.actions[p.Action], late):
			old = p
		}
	}
	return old
}

// holdsWhat: a runs on what b waits for, and has as many GPUs.
func holdsWhat(a, b *action) bool {
	return a.State == state.ActionRunning && a.pool == b.pool && a.contended() == b.contended() && a.leastGPUs() >= b.leastGPUs()
}

// giveUpLate: a replica that has run for so long, and that no gateway could call, has failed. It returns
// the oldest new one that has been queued for so long.
func (m *Model) giveUpLate(r *state.Reward) (late *action) {
	for _, p := range m.replicasOf(r.Name) {
		if p.State != state.ReplicaStarting || p.EndAt > m.now {
			continue
		}
		a := m.actions[p.Action]
		if len(r.Gateways) == 0 || a.State != state.ActionRunning {
			if p.EndAt = m.now + r.StartNS; late == nil && a.State == state.ActionQueued && p.Generation == r.Generation {
				late = a
			}
		} else if p.EndAt = a.StartedAt + r.StartNS; p.EndAt <= m.now {
			p.State = state.ReplicaDraining
			m.replicaFailed(r)
		}
	}
	return late
}

// decideReplicas says how many replicas start and drain.
func (m *Model) decideReplicas(r *state.Reward, starting, ready int) (start, drain int) {
	calls := uint64(0)
	for _, g := range r.Gateways {
		calls += uint64(g.Running) + uint64(g.Waiting)
	}
	want := int(min((calls+uint64(r.Concurrency)-1)/uint64(r.Concurrency), uint64(r.Max)))
	want = max(want, int(r.Min))
	r.Wanted = uint32(want)
	live := starting + ready
	if live <= want {
		r.Low, r.LowSince, r.Peak = false, 0, 0
		return max(0, min(want-live, max(ready, rewardStartsAtOnce)-starting)), 0
	}
	keep := min(live, int(r.Max))
	if !r.Low {
		r.LowSince, r.Peak = m.now, 0
	}
	if r.Peak = max(r.Wanted, min(r.Peak, r.Max)); r.Low && m.now >= r.LowSince+r.IdleNS {
		keep = min(live, int(r.Peak))
		r.LowSince, r.Peak = m.now, r.Wanted
	}
	if r.Low = keep > want; !r.Low {
		r.LowSince, r.Peak = 0, 0
	}
	return 0, live - keep
}

func (m *Model) startReplicas(r *state.Reward, n int) error {
	for range n {
		a := &logv1.Action{}
		if err := a.UnmarshalVT(r.Action); err != nil {
			return err
		}
		c, ns := &logv1.SubmitActions{Namespace: r.Namespace, Actions: []*logv1.Action{a}}, m.namespaces[orDefault(r.Namespace)]
		id := m.lastAction + 1
		v := m.admits(c, ns)
		if len(v.must) > 0 || len(v.may) > 0 && (m.s.Meta().LastAction < id) {
			m.replicaFailed(r)
			return nil
		}
		m.lastAction = id
		queued := m.newAction(id, ns, a)
		if err := m.emit(queued, m.enqueue(queued)); err != nil {
			return err
		}
		r.Starts++
		m.rewards.replicas[id] = &state.Replica{
			Action: id, Reward: r.Name, Generation: r.Generation, State: state.ReplicaStarting, EndAt: m.now + r.StartNS,
		}
	}
	return nil
}

// nextLook: when the first of what time alone changes happens.
func (m *Model) nextLook(r *state.Reward) {
	var times []int64
	if r.Low {
		times = append(times, r.LowSince+r.IdleNS)
	}
	for _, g := range r.Gateways {
		times = append(times, g.At+rewardGatewayFor)
	}
	for _, p := range m.replicasOf(r.Name) {
		if m.actions[p.Action].CancelReason == 0 && p.EndAt != 0 {
			times = append(times, p.EndAt)
		}
	}
	if r.RetryAt != 0 {
		times = append(times, r.RetryAt)
	}
	r.DueAt = 0
	if len(times) > 0 {
		r.DueAt = slices.Min(times)
	}
}

// compareRewards compares all functions and replicas.
func (m *Model) compareRewards() error {
	if got := m.s.RewardCount(); got != len(m.rewards.all) {
		return fmt.Errorf("there are %d reward functions, must be %d", got, len(m.rewards.all))
	}
	for name, want := range m.rewards.all {
		got := m.s.Reward(name)
		if got != nil && want.Message == unknownMessage && got.Message != "" {
			want.Message = got.Message
		}
		if got == nil || !sameReward(*got, *want) {
			return fmt.Errorf("reward function %s is %+v, must be %+v", name, got, *want)
		}
		replicas := m.replicasOf(name)
		if !slices.EqualFunc(m.s.ReplicasOf(name), replicas, sameReplica) {
			return fmt.Errorf("reward function %s has replicas other than %d, or others: %+v", name, len(replicas), replicas)
		}
	}
	return nil
}

// sameReward: a list of nothing is as none.
func sameReward(a, b state.Reward) bool {
	same := slices.Equal(a.Gateways, b.Gateways)
	a.Gateways, b.Gateways = nil, nil
	return same && reflect.DeepEqual(a, b)
}

func sameReplica(a, b *state.Replica) bool {
	x, y := *a, *b
	x.Idle, y.Idle = nil, nil
	return slices.Equal(a.Idle, b.Idle) && reflect.DeepEqual(x, y)
}
