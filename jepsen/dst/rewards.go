package dst

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// How often operators change a reward function, how often a gateway reports, and how many functions
// and gateways there are.
const (
	rewardChangesPerHour = 90
	rewardReportsPerHour = 1200
	rewardNames          = 4
	rewardGateways       = 3
)

// rewards are what operators do to reward functions, and what gateways report. Replicas are actions
// that agents execute; the calls are made up.
func (p *Plan) rewards(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 12)
	for range rewardNames {
		p.add(Event{At: d.N(minute), Kind: Reward, On: int(d.N(clients)), Luck: d.Uint64()})
	}
	for range max(1, p.Length*rewardChangesPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: Reward, On: int(d.N(clients)), Luck: d.Uint64()})
	}
	for range max(1, p.Length*rewardReportsPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: CallReward, On: int(d.N(clients)), Luck: d.Uint64()})
	}
}

func rewardName(n int64) string { return fmt.Sprintf("reward-%d", n) }

// changeReward registers a function, also one that is there, changes how it is scaled, or removes it.
func (c *client) changeReward(luck uint64) {
	d := sim.Draws(luck).Of(9, 0)
	v := &logv1.RegisterReward{Name: rewardName(d.N(rewardNames))}
	if d.Chance(100_000) {
		c.do(&logv1.Command{Verb: &logv1.Command_RemoveReward{RemoveReward: &logv1.RemoveReward{Name: v.Name}}}, 1, ignore)
		return
	}
	v.Spec, v.Action = []byte(v.Name), c.w.config.newReplica(&d)
	if c.w.config.seed%2 == 0 && d.Chance(200_000) {
		v.Namespace = "team"
	}
	v.Max = uint32(d.Skewed(1, 12))
	if d.Chance(300_000) {
		v.Min = uint32(d.Between(0, min(2, int64(v.Max))))
	}
	v.Concurrency = uint32(d.Between(1, 4))
	v.IdleNs, v.TimeoutNs, v.StartNs = d.Between(3, 40)*second, d.Between(1, 20)*second, d.Between(2, 30)*second
	c.w.view(func(s *state.State) {
		r := s.Reward(v.Name)
		if r == nil {
			return
		}
		if d.Chance(700_000) { // its replicas stay
			v.Action = new(logv1.Action)
			if err := v.Action.UnmarshalVT(r.Action); err != nil {
				c.w.fail("state", "the action of reward function %s: %v", r.Name, err)
			}
			v.Namespace = r.Namespace
		}
		if d.Chance(200_000) { // that of an operator who has read it
			v.Version = r.Version
		}
	})
	if d.Chance(30_000) {
		v.Min = v.Max + 1
	}
	c.do(&logv1.Command{Verb: &logv1.Command_RegisterReward{RegisterReward: v}}, triesMax, ignore)
}

// newReplica makes up the action of replicas. Some end soon, and a few ask for more than any node has.
func (c *config) newReplica(d *sim.Draw) *logv1.Action {
	pool := c.pool(d)
	a := &logv1.Action{Pool: pool, AttemptsMax: 1, Fixed: true, CoresMin: uint32(d.Between(1, 2)), MemoryBytes: uint64(d.Between(0, 4)) << 20}
	switch d.N(20) {
	case 0:
		a.CoresMin = uint32(c.widest(pool) + 1)
	case 1:
		a.CoresMin = 0 // each start is refused
	}
	a.CoresMax = a.CoresMin
	a.Spec = newSpec(d)
	if d.Chance(30_000) {
		a.AttemptsMax = 2
	}
	return a
}

// callReward is a report of a gateway: how many calls it has for some functions, and what it saw of
// their replicas. Now and then nobody calls a function, so that it needs no replica.
func (c *client) callReward(e Event) {
	d := sim.Draws(e.Luck).Of(10, 0)
	gateway := fmt.Sprintf("gateway-%d", d.N(rewardGateways))
	v := &logv1.ReportRewards{Request: c.request(&d, e), Gateway: gateway}
	c.w.view(func(s *state.State) {
		for i := range int64(rewardNames) {
			name := rewardName(i)
			if !d.Chance(600_000) {
				continue
			}
			demand := &logv1.RewardDemand{Name: name, Calls: uint64(d.Skewed(0, 20)), CallNs: d.Skewed(0, 20*second)}
			demand.FailedCalls = min(demand.Calls, uint64(d.Skewed(0, 3)))
			if at := c.w.loop.Now() / minute; (at+i)%3 > 0 { // for two minutes of three
				demand.Running, demand.Waiting = uint32(d.Skewed(0, 12)), uint32(d.Skewed(0, 30))
			}
			v.Demands = append(v.Demands, demand)
			for _, p := range s.ReplicasOf(name) {
				if r := sees(&d, s, p); r != nil {
					v.Replicas = append(v.Replicas, r)
				}
			}
		}
	})
	if d.Chance(50_000) { // one that is none, or that another has
		v.Replicas = append(v.Replicas, &logv1.RewardReplicaReport{ActionId: pick(&d, c.actions), Ready: true})
	}
	c.do(&logv1.Command{Verb: &logv1.Command_ReportRewards{ReportRewards: v}}, 3, ignore)
}

// sees is what a gateway says of a replica; nil: nothing.
func sees(d *sim.Draw, s *state.State, p *state.Replica) *logv1.RewardReplicaReport {
	r := &logv1.RewardReplicaReport{ActionId: uint64(p.Action)}
	switch luck := d.N(100); {
	case p.State == state.ReplicaDraining:
		r.Idle = luck < 60
	case s.Action(p.Action).State != state.ActionRunning:
		return nil
	case luck < 3:
		r.Failed, r.Message = true, "made up"
	default:
		r.Ready = luck < 70
	}
	return r
}

// rewardSeen is what was last seen of a function, and replicaSeen of a replica.
type (
	rewardSeen struct {
		registeredAt int64
		generation   uint64
		retryAt      int64
	}
	replicaSeen struct {
		reward string
		state  state.ReplicaState
	}
)

// rewardsOf looks at reward functions after an entry: no function has more replicas of its present
// kind than its maximum, none is started before the pause after a failure is over, and a replica that
// drains is never used again.
func (w *witness) rewardsOf(s *state.State, e *logv1.Entry) (err error) {
	now, ready := s.Meta().Now, map[string]bool{} // functions of which a gateway could call a replica: no pause any more
	for _, c := range e.Commands {
		for _, p := range c.GetReportRewards().GetReplicas() {
			if p.Ready {
				ready[w.replicas[state.ActionID(p.ActionId)].reward] = true
			}
		}
	}
	s.Rewards("", func(r *state.Reward) bool {
		was, live := w.rewards[r.Name], uint32(0)
		for _, p := range s.ReplicasOf(r.Name) {
			if p.State != state.ReplicaDraining && p.Generation == r.Generation {
				live++
			}
			before, known := w.replicas[p.Action]
			switch {
			case !known:
				same := was.registeredAt == r.RegisteredAt && was.generation == r.Generation
				if w.replicasStarted++; same && was.retryAt > now && !ready[r.Name] {
					err = fmt.Errorf("replica %d of %s is started at %d, and none was to be before %d", p.Action, r.Name, now, was.retryAt)
				}
			case p.State < before.state:
				err = fmt.Errorf("replica %d of %s is in state %d after state %d", p.Action, r.Name, p.State, before.state)
			case before.state == state.ReplicaStarting && p.State == state.ReplicaReady:
				w.replicasReady++
			}
			w.replicas[p.Action] = replicaSeen{r.Name, p.State}
		}
		if live > r.Max && (r.DueAt == 0 || r.DueAt > now) {
			err = fmt.Errorf("reward function %s has %d replicas, %d at most are allowed", r.Name, live, r.Max)
		}
		if r.Failures > 0 && r.RetryAt != was.retryAt && r.RetryAt > now {
			w.replicasFailed++
		}
		w.rewards[r.Name] = rewardSeen{r.RegisteredAt, r.Generation, r.RetryAt}
		return err == nil
	})
	for name := range w.rewards {
		if s.Reward(name) == nil {
			delete(w.rewards, name)
		}
	}
	return err
}

// endRewards removes the functions that are to have replicas at any time. Others have to come to none
// by themselves, as no gateway reports any more.
func (c *client) endRewards(s *state.State) {
	s.Rewards("", func(r *state.Reward) bool {
		if r.Min > 0 {
			c.do(&logv1.Command{Verb: &logv1.Command_RemoveReward{RemoveReward: &logv1.RemoveReward{Name: r.Name}}}, 1, ignore)
		}
		return true
	})
}

// rewardsLeft names a function that still has replicas, or needs some.
func rewardsLeft(s *state.State) (what string) {
	s.Rewards("", func(r *state.Reward) bool {
		if n := len(s.ReplicasOf(r.Name)); n > 0 || r.Wanted > 0 {
			what = fmt.Sprintf("reward function %s has %d replicas and wants %d", r.Name, n, r.Wanted)
		}
		return what == ""
	})
	return what
}
