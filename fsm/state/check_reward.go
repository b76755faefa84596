package state

import (
	"fmt"
	"slices"
	"strings"
)

// checkRewards: each function has what was declared, and its times go with its state.
func (s *State) checkRewards() (err error) {
	s.Rewards("", func(r *Reward) bool { err = s.checkReward(r); return err == nil })
	if n := s.RewardCount(); err == nil && n > RewardsMax {
		err = fmt.Errorf("there are %d reward functions", n)
	}
	return err
}

func (s *State) checkReward(r *Reward) error {
	sorted := slices.IsSortedFunc(r.Gateways, func(a, b RewardGateway) int { return strings.Compare(a.Name, b.Name) })
	switch {
	case r.Name == "" || len(r.Name) > RewardNameBytesMax || len(r.Spec) > RewardSpecBytesMax || len(r.Action) > RewardSpecBytesMax || len(r.Message) > RewardMessageBytesMax:
		return fmt.Errorf("reward function %q has texts that are too long, or no name", r.Name)
	case r.Min > r.Max || r.Max == 0 || r.Max > RewardReplicasMax || r.Concurrency == 0 || r.Concurrency > RewardConcurrencyMax:
		return fmt.Errorf("reward function %s has %d to %d replicas for %d calls each", r.Name, r.Min, r.Max, r.Concurrency)
	case r.Wanted > r.Max || !r.Low && (r.LowSince != 0 || r.Peak != 0):
		return fmt.Errorf("reward function %s wants %d replicas, and wanted %d at most since %d", r.Name, r.Wanted, r.Peak, r.LowSince)
	case min(r.IdleNS, r.TimeoutNS, r.StartNS) <= 0 || r.Generation == 0 || r.Generation > r.Version:
		return fmt.Errorf("reward function %s has times %d, %d and %d, and generation %d of version %d", r.Name, r.IdleNS, r.TimeoutNS, r.StartNS, r.Generation, r.Version)
	case max(r.RegisteredAt, r.LowSince) > s.meta.Now || r.RetryAt != 0 && r.Failures == 0:
		return fmt.Errorf("reward function %s has times after %d, or %d failures and is tried again at %d", r.Name, s.meta.Now, r.Failures, r.RetryAt)
	case !sorted || len(r.Gateways) > RewardGatewaysMax:
		return fmt.Errorf("reward function %s has %d gateways in the order %v", r.Name, len(r.Gateways), r.Gateways)
	}
	return nil
}

// checkReplicas: each is an action that has not ended, of a function that exists.
func (s *State) checkReplicas() (err error) {
	db(s).replicas.scan(0, func(p *Replica) bool {
		r, a := s.Reward(p.Reward), s.Action(p.Action)
		switch {
		case r == nil || a == nil || a.State.Final():
			err = fmt.Errorf("action %d is a replica of %q, has ended, or one of them does not exist", p.Action, p.Reward)
		case p.State < ReplicaStarting || p.State > ReplicaDraining || p.Generation > r.Version:
			err = fmt.Errorf("replica %d of %s is in state %d, of generation %d", p.Action, r.Name, p.State, p.Generation)
		case p.State != ReplicaDraining && len(p.Idle) > 0 || p.State == ReplicaReady && p.EndAt != 0:
			err = fmt.Errorf("replica %d of %s in state %d ends at %d; %v have no calls there", p.Action, r.Name, p.State, p.EndAt, p.Idle)
		}
		return err == nil
	})
	return err
}
