package rpc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// rewardUpdates is how often an update is tried again because of another one.
const rewardUpdates = 8

// RegisterReward declares a reward function, or changes it.
func (s *Server) RegisterReward(ctx context.Context, req *rotav1.RegisterRewardRequest) (*rotav1.RegisterRewardResponse, error) {
	spec := withRewardDefaults(req.Spec)
	if err := checkReward(spec).in("spec").err(); err != nil {
		return nil, err
	}
	if err := s.putReward(ctx, spec, 0); err != nil {
		return nil, err
	}
	r, err := s.reward(spec.Name)
	if err != nil { // removed since; it was registered all the same
		redactCommand(spec.Command)
		r = &rotav1.Reward{Spec: spec}
	}
	return &rotav1.RegisterRewardResponse{Reward: r}, nil
}

// withRewardDefaults says what is left out, so that readers see what holds.
func withRewardDefaults(spec *rotav1.RewardSpec) *rotav1.RewardSpec {
	if spec == nil {
		return nil
	}
	full := proto.CloneOf(spec)
	full.Namespace, full.Pool = orDefault(spec.Namespace), orDefault(spec.Pool)
	for n, d := range map[*uint32]uint32{&full.Max: max(8, spec.Min), &full.Concurrency: 1, &full.Queue: 1024} {
		if *n == 0 {
			*n = d
		}
	}
	if full.Idle == nil {
		full.Idle = durationpb.New(time.Minute)
	}
	if full.Timeout == nil {
		full.Timeout = durationpb.New(30 * time.Second)
	}
	if full.StartTimeout == nil {
		full.StartTimeout = durationpb.New(2 * time.Minute)
	}
	if full.Retries == nil {
		full.Retries = proto.Uint32(2)
	}
	if full.Path == "" {
		full.Path = "/"
	}
	if full.Protocol == rotav1.RewardProtocol_REWARD_PROTOCOL_UNSPECIFIED {
		full.Protocol = rotav1.RewardProtocol_REWARD_PROTOCOL_ROTA
	}
	return full
}

// replicaSpec is the action that a replica is: it holds its cores from its start to its end.
func replicaSpec(spec *rotav1.RewardSpec) *rotav1.ActionSpec {
	resources := &rotav1.Resources{}
	if spec.Resources != nil {
		resources = proto.CloneOf(spec.Resources)
	}
	resources.Resizable = proto.Bool(false)
	return &rotav1.ActionSpec{Name: "reward " + spec.Name, Pool: spec.Pool, Command: spec.Command, Resources: resources}
}

// putReward proposes a checked declaration. version is the one that it changes; 0: any.
func (s *Server) putReward(ctx context.Context, spec *rotav1.RewardSpec, version uint64) error {
	a, err := action(replicaSpec(spec))
	if err != nil {
		return err
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode reward function %q: %w", spec.Name, err)
	}
	_, err = s.change(ctx, &logv1.Command{Verb: &logv1.Command_RegisterReward{RegisterReward: &logv1.RegisterReward{
		Name: spec.Name, Namespace: spec.Namespace, Action: a, Min: spec.Min, Max: spec.Max, Concurrency: spec.Concurrency, Spec: encoded, Version: version,
		IdleNs: int64(spec.Idle.AsDuration()), TimeoutNs: int64(spec.Timeout.AsDuration()), StartNs: int64(spec.StartTimeout.AsDuration()),
	}}})
	return err
}

// UpdateReward changes how a function is scaled and called.
func (s *Server) UpdateReward(ctx context.Context, req *rotav1.UpdateRewardRequest) (*rotav1.UpdateRewardResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		if err := s.catchUp(ctx, false); err != nil {
			return nil, err
		}
		spec, version, err := s.rewardSpec(req.Name)
		if err != nil {
			return nil, err
		}
		updateReward(spec, req)
		if err := checkReward(spec).err(); err != nil {
			return nil, err
		}
		err = s.putReward(ctx, spec, version)
		var f *failure
		switch {
		case err == nil:
			r, err := s.reward(req.Name)
			return &rotav1.UpdateRewardResponse{Reward: r}, err
		case try == rewardUpdates || !errors.As(err, &f) || f.reason != "REWARD_CHANGED":
			return nil, err
		}
	}
}

// updateReward changes what is set.
func updateReward(spec *rotav1.RewardSpec, req *rotav1.UpdateRewardRequest) {
	for to, from := range map[*uint32]*uint32{&spec.Min: req.Min, &spec.Max: req.Max, &spec.Concurrency: req.Concurrency, &spec.Queue: req.Queue} {
		if from != nil {
			*to = *from
		}
	}
	if req.Retries != nil {
		spec.Retries = req.Retries
	}
	if req.Idle != nil {
		spec.Idle = req.Idle
	}
	if req.Timeout != nil {
		spec.Timeout = req.Timeout
	}
}

// rewardSpec returns the declaration of a function as it was given, with secrets.
func (s *Server) rewardSpec(name string) (spec *rotav1.RewardSpec, version uint64, err error) {
	s.Machine.View(func(st *state.State) {
		r := st.Reward(name)
		if r == nil {
			err = notFound("REWARD_NOT_FOUND", "there is no reward function %q: ListRewards has those that are registered", name)
			return
		}
		spec, version = new(rotav1.RewardSpec), r.Version
		err = spec.UnmarshalVT(r.Spec)
	})
	return spec, version, err
}

// RemoveReward forgets a function and ends its replicas.
func (s *Server) RemoveReward(ctx context.Context, req *rotav1.RemoveRewardRequest) (*rotav1.RemoveRewardResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_RemoveReward{RemoveReward: &logv1.RemoveReward{Name: req.Name}}})
	return &rotav1.RemoveRewardResponse{}, err
}

// GetReward returns a function.
func (s *Server) GetReward(ctx context.Context, req *rotav1.GetRewardRequest) (*rotav1.GetRewardResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	r, err := s.reward(req.Name)
	return &rotav1.GetRewardResponse{Reward: r}, err
}

func (s *Server) reward(name string) (m *rotav1.Reward, err error) {
	now := s.LogTime()
	s.Machine.View(func(st *state.State) {
		if r := st.Reward(name); r != nil {
			m, err = rewardMessage(st, r, now)
		} else {
			err = notFound("REWARD_NOT_FOUND", "there is no reward function %q: ListRewards has those that are registered", name)
		}
	})
	return m, err
}

// ListRewards returns a page of functions by name. A page token is the last name of a page.
func (s *Server) ListRewards(ctx context.Context, req *rotav1.ListRewardsRequest) (*rotav1.ListRewardsResponse, error) {
	after, err := base64.RawURLEncoding.Strict().DecodeString(req.PageToken)
	p, v := newPage(req.PageSize, "")
	if err != nil || len(after) > state.RewardNameBytesMax {
		v = wrong("page_token", "is not one that a list has returned")
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	now, st, resp := s.LogTime(), s.Machine.Fork(), &rotav1.ListRewardsResponse{}
	c := &collector{page: p}
	st.Rewards(string(after), func(r *state.Reward) bool {
		if c.full() {
			resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(resp.Rewards[c.rows-1].Spec.Name))
			return false
		}
		var m *rotav1.Reward
		if m, err = rewardMessage(st, r, now); err == nil {
			c.add(m)
			resp.Rewards = append(resp.Rewards, m)
		}
		return err == nil
	})
	return resp, err
}

// ReportRewards commits what a gateway has of calls, and what it saw of replicas.
func (s *Server) ReportRewards(ctx context.Context, req *rotav1.ReportRewardsRequest) (*rotav1.ReportRewardsResponse, error) {
	if err := checkRewardReports(req).err(); err != nil {
		return nil, err
	}
	c := &logv1.ReportRewards{Gateway: req.Gateway}
	for _, d := range req.Demands {
		c.Demands = append(c.Demands, &logv1.RewardDemand{
			Name: d.Name, Running: d.Running, Waiting: d.Waiting, Calls: d.Calls, FailedCalls: d.FailedCalls, CallNs: int64(d.CallTime.AsDuration()),
		})
	}
	for _, p := range req.Replicas {
		c.Replicas = append(c.Replicas, &logv1.RewardReplicaReport{
			ActionId: p.ActionId, Ready: p.Ready, Idle: p.Idle, Failed: p.Failed, Message: sentence(p.Message, state.RewardMessageBytesMax),
		})
	}
	c.Request = request(req.RequestId, req.ExpireTime, func(d *xxhash.Digest) { digestRewards(d, c) })
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ReportRewards{ReportRewards: c}})
	return &rotav1.ReportRewardsResponse{}, err
}

func digestRewards(d *xxhash.Digest, c *logv1.ReportRewards) {
	digestText(d, c.Gateway)
	for _, r := range c.Demands {
		digestText(d, r.Name)
		for _, n := range []uint64{uint64(r.Running), uint64(r.Waiting), r.Calls, r.FailedCalls, uint64(r.CallNs)} {
			digestNumber(d, n)
		}
	}
	for _, p := range c.Replicas {
		for _, n := range []uint64{p.ActionId, digit(p.Ready), digit(p.Idle), digit(p.Failed)} {
			digestNumber(d, n)
		}
		digestText(d, p.Message)
	}
}

// rewardMessage describes a function at a log time.
func rewardMessage(st *state.State, r *state.Reward, now int64) (*rotav1.Reward, error) {
	spec, wall := new(rotav1.RewardSpec), wallOf(st)
	if err := spec.UnmarshalVT(r.Spec); err != nil {
		return nil, fmt.Errorf("decode reward function %q: %w", r.Name, err)
	}
	redactCommand(spec.Command)
	m := &rotav1.Reward{
		Spec: spec, Version: r.Version, Gateways: uint32(len(r.Gateways)), Wanted: r.Wanted,
		Message: r.Message, Failures: r.Failures, Calls: r.Calls, FailedCalls: r.FailedCalls, CallTime: duration(int64(r.CallNS)), Starts: r.Starts,
		RegisterTime: wall.timestamp(r.RegisteredAt),
	}
	if r.RetryAt != 0 {
		m.RetryTime = wall.timestamp(r.RetryAt)
	}
	for _, g := range r.Gateways {
		m.Running, m.Waiting = m.Running+uint64(g.Running), m.Waiting+uint64(g.Waiting)
	}
	cores, gpus := st.Held(r, max(now, st.Meta().Now))
	m.CoreTime, m.GpuTime = duration(int64(cores)), duration(int64(gpus))
	for _, p := range st.ReplicasOf(r.Name) {
		replica := &rotav1.RewardReplica{ActionId: uint64(p.Action), State: rotav1.RewardReplicaState(p.State), Generation: p.Generation}
		if a := st.Action(p.Action); a.State == state.ActionRunning {
			n := st.Node(a.Node)
			replica.Attempt, replica.Node, replica.Address = a.Attempt, n.Name, n.Address
		}
		m.Replicas = append(m.Replicas, replica)
	}
	return m, nil
}
