package workload

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// trained are the policies. Of one, samples grow too old; of the other none does, so that each
// complete group of it has to be given to a step.
var trained = []struct {
	policy    string
	staleness uint32
	redundant uint32
	batches   int // for each version that is published
}{
	{"coder", 1, 1, 2},
	{"browser", 1_000_000, 0, 5},
}

const (
	// promptsOfRollout are the groups of a rollout, samplesOfPrompt what completes one.
	promptsOfRollout, samplesOfPrompt = 3, 2
	// rolloutsMax is how many rollouts one worker keeps open, membersMax how many trajectories.
	rolloutsMax, membersMax = 3, 8
	// batchWait is how long a trainer waits for a batch before it asks again.
	batchWait = 300 * time.Millisecond
	// memberBytes is the memory of a trajectory that runs nothing.
	memberBytes = 1 << 20
)

// rollouts has samplers open trajectories of rollouts and put samples, and a trainer for each
// policy take batches and publish versions.
func rollouts(ctx context.Context, env *Env, rate float64) error {
	if len(env.Servers) == 0 {
		return errNoServers
	}
	env.trains.Store(true)
	conns, http := env.connect()
	defer http.CloseIdleConnections()
	var training sync.WaitGroup
	for i := range trained {
		l := &learner{worker: env.newWorker(conns), policy: trained[i].policy, batches: trained[i].batches, step: 1}
		training.Go(func() { l.learn(ctx) })
	}
	err := env.work(ctx, rate, func(w *worker) func(context.Context) { return (&sampler{worker: w}).step })
	training.Wait()
	return err
}

// sampler makes the trajectories and the samples of rollouts.
type sampler struct {
	*worker
	rollouts []uint64
	last     *rotav1.CreateRolloutRequest
	members  []uint64 // open, oldest first
	sampled  uint64   // the last one that a sample was put of; 0: none
}

func (s *sampler) step(ctx context.Context) {
	if s.chance(5) {
		s.roam()
	}
	switch dice := s.rand.IntN(100); {
	case dice < 2 && s.last != nil:
		s.created(s.createRollout(ctx, s.last))
	case dice < 10 || len(s.rollouts) == 0:
		s.last = s.newRollout(ctx)
		s.created(s.createRollout(ctx, s.last))
	case dice < 15 && len(s.rollouts) > rolloutsMax:
		s.closeRollout(ctx, s.rollouts[0])
		s.rollouts = s.rollouts[1:]
	case dice < 20 && s.sampled != 0:
		s.putSample(ctx, s.sampled)
	case dice < 60 && len(s.members) < membersMax || len(s.members) == 0:
		s.openMember(ctx)
	case dice < 64: // it goes without a sample
		s.closeTrajectory(ctx, s.members[0])
		s.members = s.members[1:]
	default:
		s.sampled, s.members = s.members[0], s.members[1:]
		for range 3 {
			if op := s.putSample(ctx, s.sampled); op.Outcome != history.Unknown {
				return
			}
			s.roam()
		}
	}
}

func (s *sampler) created(op history.Op) {
	if op.Outcome == history.OK && !op.Replayed {
		s.rollouts = append(s.rollouts, op.IDs...)
	}
}

func (s *sampler) newRollout(ctx context.Context) *rotav1.CreateRolloutRequest {
	id, t := s.requestID(), trained[s.rand.IntN(len(trained))]
	return &rotav1.CreateRolloutRequest{RequestId: id, ExpireTime: s.env.clock.expiry(ctx, s.worker), Spec: &rotav1.RolloutSpec{
		Name: id, Policy: t.policy, Groups: promptsOfRollout, SamplesPerGroup: samplesOfPrompt, Redundant: t.redundant, Staleness: t.staleness,
	}}
}

// openMember opens a trajectory of any prompt, once or twice with the same request.
func (s *sampler) openMember(ctx context.Context) {
	id := s.requestID()
	q := &rotav1.OpenTrajectoryRequest{
		RequestId: id, ExpireTime: s.env.clock.expiry(ctx, s.worker), Name: id, Pool: s.env.Pool, MemoryBytes: memberBytes,
		Rollout: &rotav1.RolloutMembership{RolloutId: s.rollouts[s.rand.IntN(len(s.rollouts))], Group: uint32(s.rand.IntN(promptsOfRollout))},
	}
	for range 2 {
		op := s.joinRollout(ctx, q)
		if op.Outcome == history.OK {
			s.members = append(s.members, op.IDs...)
		}
		if op.Outcome != history.Unknown {
			return
		}
		s.roam()
	}
}

// learner is the trainer of a policy. It may die at any moment, and asks for its last batch
// again then.
type learner struct {
	*worker
	policy  string
	batches int // for each version
	step    uint64
	version uint64
	// studio has the engines that it trains; nil: there are none.
	studio *studio
}

func (l *learner) learn(ctx context.Context) {
	for taken := 0; ctx.Err() == nil; {
		if l.studio != nil {
			l.studio.update(ctx, l)
		}
		if l.getBatch(ctx, l.policy, l.step, uint32(1+l.rand.IntN(2)), batchWait).Outcome != history.OK {
			l.roam()
			_ = backoff.Sleep(ctx, l.between(20*time.Millisecond, 200*time.Millisecond))
			continue
		}
		for l.chance(30) { // it died before the batch was trained with
			l.roam()
			l.getBatch(ctx, l.policy, l.step, uint32(1+l.rand.IntN(2)), 0)
		}
		if l.step > 1 && l.chance(10) { // a trainer of before, which must not get anything
			l.getBatch(ctx, l.policy, l.step-1, 1, 0)
		}
		l.step++
		if taken++; taken%l.batches == 0 {
			l.publish(ctx)
		}
	}
}

// publish makes the next version the current one, also if nobody knows whether it is.
func (l *learner) publish(ctx context.Context) {
	if l.studio != nil {
		defer l.studio.changing(ctx, l)()
	}
	for l.version++; ctx.Err() == nil; {
		if l.publishVersion(ctx, l.policy, l.version).Outcome == history.OK {
			return
		}
		l.roam()
		_ = backoff.Sleep(ctx, 50*time.Millisecond)
	}
}

// Calls of rollouts as they are recorded.

func (w *worker) createRollout(ctx context.Context, q *rotav1.CreateRolloutRequest) history.Op {
	op := history.Op{Verb: history.CreateRollout, RequestID: q.RequestId, Policy: q.Spec.Policy, Need: q.Spec.SamplesPerGroup, Staleness: q.Spec.Staleness}
	return w.call(ctx, op, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.rollouts.CreateRollout(ctx, q)
		if err == nil {
			op.IDs, op.Replayed = []uint64{resp.Rollout.Id}, resp.Replayed
		}
		return err
	})
}

func (w *worker) closeRollout(ctx context.Context, id uint64) history.Op {
	return w.call(ctx, history.Op{Verb: history.CloseRollout, Target: id}, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.rollouts.CloseRollout(ctx, &rotav1.CloseRolloutRequest{Id: id})
		return err
	})
}

func (w *worker) joinRollout(ctx context.Context, q *rotav1.OpenTrajectoryRequest) history.Op {
	op := history.Op{Verb: history.OpenMember, RequestID: q.RequestId, Target: q.Rollout.RolloutId, Prompt: q.Rollout.Group}
	return w.call(ctx, op, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.trajectories.OpenTrajectory(ctx, q)
		if err == nil {
			op.IDs, op.Replayed = []uint64{resp.Trajectory.Id}, resp.Replayed
			op.State, op.Node = trajectoryState(resp.Trajectory), resp.Trajectory.Node
		}
		return err
	})
}

// putSample puts the sample of a trajectory, whose reward names it.
func (w *worker) putSample(ctx context.Context, trajectory uint64) history.Op {
	reward := float64(trajectory) + 0.5
	op := history.Op{Verb: history.PutSample, Target: trajectory, Reward: reward}
	return w.call(ctx, op, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.rollouts.PutSample(ctx, &rotav1.PutSampleRequest{
			TrajectoryId: trajectory, Reward: reward, Tokens: trajectory, Reference: fmt.Sprintf("sample-%d", trajectory),
		})
		if err == nil {
			op.Accepted, op.State = resp.Accepted, plain(resp.State.String(), "ROLLOUT_MEMBER_STATE_")
		}
		return err
	})
}

func (w *worker) getBatch(ctx context.Context, policy string, step uint64, groups uint32, wait time.Duration) history.Op {
	op := history.Op{Verb: history.GetBatch, Policy: policy, Step: step, Need: groups}
	return w.call(ctx, op, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.rollouts.GetBatch(ctx, &rotav1.GetBatchRequest{Policy: policy, Step: step, Groups: groups, Wait: durationpb.New(wait)})
		op.Replayed = resp.GetReplayed()
		for _, s := range resp.GetSamples() {
			op.Batch = append(op.Batch, history.TrainSample{Trajectory: s.TrajectoryId, Rollout: s.RolloutId, Prompt: s.Group, Version: s.Version, Reward: s.Reward})
		}
		return err
	})
}

func (w *worker) publishVersion(ctx context.Context, policy string, version uint64) history.Op {
	op := history.Op{Verb: history.PublishVersion, Policy: policy, Version: version}
	return w.call(ctx, op, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.rollouts.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: policy, Version: version})
		return err
	})
}

// rollouts are closed, and all complete groups are given to steps, so that what is missing then
// is lost.
func (s *settler) rollouts(ctx context.Context) (left []string, err error) {
	if !s.env.trains.Load() {
		return nil, nil
	}
	list, err := s.api.Rollouts.ListRollouts(ctx, &rotav1.ListRolloutsRequest{PageSize: 1000})
	if err != nil {
		return nil, err
	}
	for _, r := range list.Rollouts {
		s.closeRollout(ctx, r.Id)
	}
	policies, err := s.api.Rollouts.ListPolicies(ctx, &rotav1.ListPoliciesRequest{})
	if err != nil {
		return nil, err
	}
	for _, p := range policies.Policies {
		// The trainer may have been given its last batch without hearing of it: asked again, the
		// cluster says what it was.
		if p.Step > s.heard[p.Name] && s.getBatch(ctx, p.Name, p.Step, 1, 0).Outcome == history.OK {
			s.heard[p.Name] = p.Step
		} else if p.Step > s.heard[p.Name] {
			left = append(left, fmt.Sprintf("step %d of policy %s does not answer", p.Step, p.Name))
		}
		if p.CompleteGroups > 0 {
			left = append(left, fmt.Sprintf("policy %s has %d complete groups", p.Name, p.CompleteGroups))
			s.getBatch(ctx, p.Name, p.Step+1, min(p.CompleteGroups, 32), 0)
		}
	}
	list.Rollouts = slices.DeleteFunc(list.Rollouts, func(r *rotav1.Rollout) bool { return r.State == rotav1.RolloutState_ROLLOUT_STATE_CLOSED })
	for _, r := range list.Rollouts {
		left = append(left, fmt.Sprintf("rollout %d is open", r.Id))
	}
	return left, nil
}
