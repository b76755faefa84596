package workload

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

const (
	// callsOfReplica is what one replica takes at once.
	callsOfReplica = 2
	// rewardMax is the most that a function may have of replicas, which hold a core each.
	rewardMax = 2
	// rewardBytes is the memory of a replica.
	rewardBytes = 1 << 20
)

// scorer owns a reward function. It is the operator who registers, changes and removes it, and the
// only gateway that reports calls of it. Nobody really calls: replicas only hold their cores.
type scorer struct {
	*worker
	name     string
	fails    bool // replicas end by themselves
	there    bool // it was registered, as far as is known
	replicas []*rotav1.RewardReplica
}

// rewards has functions registered, called, changed and removed, while their replicas come and go.
func rewards(ctx context.Context, env *Env, rate float64) error {
	return env.work(ctx, rate, func(w *worker) func(context.Context) {
		return (&scorer{worker: w, name: fmt.Sprintf("reward-%d", w.client), fails: w.client%3 == 0}).step
	})
}

func (s *scorer) step(ctx context.Context) {
	if s.chance(5) {
		s.roam()
	}
	switch dice := s.rand.IntN(100); {
	case !s.there || dice < 5:
		op := s.registerReward(ctx, s.newReward())
		s.there = s.there || op.Outcome == history.OK
	case dice < 8:
		if s.removeReward(ctx, s.name).Outcome == history.OK {
			s.there, s.replicas = false, nil
		}
	case dice < 50:
		calls := uint32(0)
		if s.chance(60) {
			calls = uint32(s.rand.IntN(2*rewardMax*callsOfReplica + 1))
		}
		s.reportReward(ctx, calls)
	default:
		s.getReward(ctx)
	}
}

// newReward makes a declaration. The command of a function stays the same, so that its replicas do.
func (s *scorer) newReward() *rotav1.RewardSpec {
	script := "exec sleep 600"
	if s.fails {
		script = "sleep 0.3; exit 3"
	}
	return &rotav1.RewardSpec{
		Name: s.name, Pool: s.env.Pool, Command: &rotav1.Command{Argv: []string{"/bin/sh", "-c", script, "replica", "{{port}}"}},
		Resources: &rotav1.Resources{Cores: proto.Uint32(1), MemoryBytes: rewardBytes},
		Max:       uint32(1 + s.rand.IntN(rewardMax)), Concurrency: callsOfReplica,
		Idle: durationpb.New(time.Second), Timeout: durationpb.New(time.Second), StartTimeout: durationpb.New(5 * time.Second),
	}
}

// reportReward says how many calls there are, and what a gateway would see of the replicas that were
// read last.
func (s *scorer) reportReward(ctx context.Context, calls uint32) history.Op {
	id := s.requestID()
	q := &rotav1.ReportRewardsRequest{
		RequestId: id, ExpireTime: s.env.clock.expiry(ctx, s.worker), Gateway: "gateway of " + s.name,
		Demands: []*rotav1.RewardDemand{{Name: s.name, Running: calls / 2, Waiting: calls - calls/2, Calls: uint64(calls)}},
	}
	for _, p := range s.replicas {
		r := &rotav1.RewardReplicaReport{ActionId: p.ActionId}
		switch dice := s.rand.IntN(100); {
		case p.State == rotav1.RewardReplicaState_REWARD_REPLICA_STATE_DRAINING:
			r.Idle = dice < 70
		case p.Node == "":
			continue
		case dice < 5:
			r.Failed, r.Message = true, "made up"
		default:
			r.Ready = dice < 80
		}
		q.Replicas = append(q.Replicas, r)
	}
	op := history.Op{Verb: history.ReportReward, RequestID: id, Function: s.name, Calls: calls}
	return s.call(ctx, op, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.rewards.ReportRewards(ctx, q)
		return err
	})
}

func (w *worker) registerReward(ctx context.Context, spec *rotav1.RewardSpec) history.Op {
	op := history.Op{Verb: history.RegisterReward, Function: spec.Name, Limit: spec.Max, Need: spec.Concurrency}
	return w.call(ctx, op, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.rewards.RegisterReward(ctx, &rotav1.RegisterRewardRequest{Spec: spec})
		return err
	})
}

func (w *worker) removeReward(ctx context.Context, name string) history.Op {
	return w.call(ctx, history.Op{Verb: history.RemoveReward, Function: name}, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.rewards.RemoveReward(ctx, &rotav1.RemoveRewardRequest{Name: name})
		return err
	})
}

// getReward reads how many replicas are wanted, and those that do not drain.
func (s *scorer) getReward(ctx context.Context) history.Op {
	return s.call(ctx, history.Op{Verb: history.GetReward, Function: s.name}, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.rewards.GetReward(ctx, &rotav1.GetRewardRequest{Name: s.name})
		if err != nil {
			return err
		}
		s.replicas = resp.Reward.Replicas
		op.Limit, op.Wanted = resp.Reward.Spec.Max, resp.Reward.Wanted
		for _, p := range resp.Reward.Replicas {
			if p.State != rotav1.RewardReplicaState_REWARD_REPLICA_STATE_DRAINING {
				op.IDs = append(op.IDs, p.ActionId)
			}
		}
		return nil
	})
}

// rewards are removed, so that their replicas end.
func (s *settler) rewards(ctx context.Context) (left []string, err error) {
	list, err := s.api.Rewards.ListRewards(ctx, &rotav1.ListRewardsRequest{PageSize: 1000})
	for _, r := range list.GetRewards() {
		left = append(left, fmt.Sprintf("reward function %s has %d replicas", r.Spec.Name, len(r.Replicas)))
		s.removeReward(ctx, r.Spec.Name)
	}
	return left, err
}
