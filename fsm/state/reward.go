package state

import "slices"

const (
	// RewardsMax bounds the reward functions.
	RewardsMax = 256
	// RewardNameBytesMax bounds the name of a function and of a gateway.
	RewardNameBytesMax = 128
	// RewardSpecBytesMax bounds the encoded declaration of a function, and its encoded action.
	RewardSpecBytesMax = 68 << 10
	// RewardMessageBytesMax bounds what is said of a replica that failed.
	RewardMessageBytesMax = 512
	// RewardReplicasMax is how many replicas a function may ask for.
	RewardReplicasMax = 512
	// RewardConcurrencyMax is how many calls a gateway may give one replica at once.
	RewardConcurrencyMax = 1024
	// RewardGatewaysMax is of how many gateways a function remembers the demand.
	RewardGatewaysMax = 64
)

// Reward is a reward function: a stateless HTTP service whose replicas are actions.
type Reward struct {
	// Namespace is the name of that of its replicas.
	Name, Namespace string
	// Version grows with each change. Generation is the version with which the action changed
	// last: replicas of another one are replaced.
	Version, Generation uint64
	// Action is what a replica is, an encoded action of the log. Spec is the encoded declaration,
	// which the state machine does not read.
	Action, Spec          []byte
	Min, Max, Concurrency uint32
	// IdleNS is how long fewer replicas must be enough before there are fewer, TimeoutNS how long
	// a call may take, StartNS how long a replica may take to become ready.
	IdleNS, TimeoutNS, StartNS int64
	// Cores and GPUs of each replica.
	Cores, GPUs  uint32
	RegisteredAt int64
	// Gateways are those that have reported lately, by name.
	Gateways []RewardGateway
	// Wanted is how many replicas the demand needs. Low: fewer than there are, from LowSince on,
	// and never more than Peak.
	Wanted, Peak uint32
	Low          bool
	LowSince     int64
	// DueAt is the log time at which the function is looked at again; 0: when it changes.
	DueAt int64
	// RetryAt is the log time from which replicas are started again; 0: they may be. Failures is
	// how many have failed since one was ready, Message why the last one did.
	RetryAt  int64
	Failures uint32
	Message  string
	// GaveWay is the generation for which an old replica has drained early: no other does before one of
	// this generation is ready. 0: none has.
	GaveWay uint64
	// Starts counts replicas, Calls and FailedCalls what gateways answered, CallNS how long
	// replicas worked on that. CoreNS and GPUNS are what replicas have held that have ended.
	Starts, Calls, FailedCalls, CallNS, CoreNS, GPUNS uint64
}

// RewardGateway is what a gateway has of a function: calls that run and wait.
type RewardGateway struct {
	Name             string
	Running, Waiting uint32
	// At is the log time of its last report.
	At int64
}

// Demand is how many calls run and wait, as gateways have said.
func (r *Reward) Demand() (calls uint64) {
	for _, g := range r.Gateways {
		calls += uint64(g.Running) + uint64(g.Waiting)
	}
	return calls
}

func (r *Reward) code(c *codec) {
	for _, text := range []*string{&r.Name, &r.Namespace, &r.Message} {
		c.text(text)
	}
	c.bytes(&r.Action)
	c.bytes(&r.Spec)
	for _, n := range []*uint32{&r.Min, &r.Max, &r.Concurrency, &r.Cores, &r.GPUs, &r.Wanted, &r.Peak, &r.Failures} {
		number(c, n)
	}
	for _, n := range []*uint64{&r.Version, &r.Generation, &r.GaveWay, &r.Starts, &r.Calls, &r.FailedCalls, &r.CallNS, &r.CoreNS, &r.GPUNS} {
		number(c, n)
	}
	for _, at := range []*int64{&r.IdleNS, &r.TimeoutNS, &r.StartNS, &r.RegisteredAt, &r.LowSince, &r.DueAt, &r.RetryAt} {
		signed(c, at)
	}
	c.flag(&r.Low)
	list(c, &r.Gateways, func(c *codec, g *RewardGateway) {
		c.text(&g.Name)
		number(c, &g.Running)
		number(c, &g.Waiting)
		signed(c, &g.At)
	})
}

// ReplicaState has the values of rota.v1.RewardReplicaState.
type ReplicaState uint8

// States of replicas.
const (
	ReplicaStarting ReplicaState = 1 + iota
	ReplicaReady
	ReplicaDraining
)

// Replica is one process of a reward function: an action that has not ended.
type Replica struct {
	Action ActionID
	Reward string
	// Generation of the function that it was started with.
	Generation uint64
	State      ReplicaState
	// EndAt is the log time at which it is ended: if it is not ready until then, or has not drained.
	EndAt int64
	// Idle are the gateways that have no call at it while it drains, by name.
	Idle []string
}

func (r *Replica) code(c *codec) {
	number(c, &r.Action)
	c.text(&r.Reward)
	number(c, &r.Generation)
	number(c, &r.State)
	signed(c, &r.EndAt)
	list(c, &r.Idle, func(c *codec, name *string) { c.text(name) })
}

type (
	rewardDue struct {
		at   int64
		name string
	}
	rewardReplica struct {
		reward string
		action ActionID
	}
)

func (a rewardDue) less(b rewardDue) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.name < b.name
}

func (a rewardReplica) less(b rewardReplica) bool {
	if a.reward != b.reward {
		return a.reward < b.reward
	}
	return a.action < b.action
}

// PutReward stores a function.
func (s *State) PutReward(r *Reward) {
	if old := db(s).rewards.put(db(s).enc, r.Name, r); old != nil {
		s.indexReward(old, false)
	}
	s.indexReward(r, true)
}

// DeleteReward forgets a function, which has no replicas.
func (s *State) DeleteReward(name string) {
	Assert(len(s.ReplicasOf(name)) == 0, "reward function %s is removed and has replicas", name)
	if old := db(s).rewards.delete(name); old != nil {
		s.indexReward(old, false)
	}
}

func (s *State) indexReward(r *Reward, in bool) {
	if r.DueAt != 0 {
		include(&db(s).index.rewardDues, rewardDue{r.DueAt, r.Name}, in)
	}
}

// Reward returns a function, nil if there is none.
func (s *State) Reward(name string) *Reward { return db(s).rewards.get(name) }

// RewardCount returns how many functions there are.
func (s *State) RewardCount() int { return db(s).rewards.rows.Len() }

// Rewards visits the functions whose names are after one, in the order of their names.
func (s *State) Rewards(after string, fn func(*Reward) bool) {
	first := ""
	if after != "" {
		first = after + "\x00"
	}
	db(s).rewards.scan(first, fn)
}

// RewardDue returns the function that is to be looked at first by log time, and when.
func (s *State) RewardDue() (at int64, name string, ok bool) {
	d, ok := db(s).index.rewardDues.Min()
	return d.at, d.name, ok
}

// PutReplica stores a replica.
func (s *State) PutReplica(r *Replica) {
	db(s).replicas.put(db(s).enc, r.Action, r)
	include(&db(s).index.rewardReplicas, rewardReplica{r.Reward, r.Action}, true)
}

// DeleteReplica forgets a replica.
func (s *State) DeleteReplica(id ActionID) {
	if old := db(s).replicas.delete(id); old != nil {
		include(&db(s).index.rewardReplicas, rewardReplica{old.Reward, id}, false)
	}
}

// Replica returns the replica that an action is, nil if it is none.
func (s *State) Replica(id ActionID) *Replica {
	if db(s).replicas.rows.Len() == 0 {
		return nil
	}
	return db(s).replicas.get(id)
}

// ReplicasOf returns the replicas of a function, the oldest first.
func (s *State) ReplicasOf(name string) (all []*Replica) {
	db(s).index.rewardReplicas.Ascend(rewardReplica{name, 0}, func(r rewardReplica) bool {
		if r.reward == name {
			all = append(all, db(s).replicas.get(r.action))
		}
		return r.reward == name
	})
	return all
}

// Hold adds what a replica has held until a log time. Its numbers of cores and GPUs are its own: those
// of the function may have changed since it was started. Sums stay at the highest number.
func (r *Reward) Hold(a *Action, now int64) {
	ran, gpus := uint64(max(0, now-a.StartedAt)), uint64(0)
	if g := a.GPUs(); g != nil {
		gpus = uint64(g.Degrees[0])
	}
	r.CoreNS = Saturated(r.CoreNS, MulDiv(ran, uint64(a.CoresMin), 1))
	r.GPUNS = Saturated(r.GPUNS, MulDiv(ran, gpus, 1))
}

// Held is what the replicas of a function have held until a log time, in core and in GPU
// nanoseconds.
func (s *State) Held(r *Reward, now int64) (coreNS, gpuNS uint64) {
	sum := *r
	for _, p := range s.ReplicasOf(r.Name) {
		if a := s.Action(p.Action); a.State == ActionRunning {
			sum.Hold(a, now)
		}
	}
	return sum.CoreNS, sum.GPUNS
}

// Drained reports whether no gateway that has reported lately may have a call at a replica.
func (r *Replica) Drained(gateways []RewardGateway) bool {
	return !slices.ContainsFunc(gateways, func(g RewardGateway) bool { return !slices.Contains(r.Idle, g.Name) })
}
