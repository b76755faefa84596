package state

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	// WorkerPoolsMax bounds the pools of workers.
	WorkerPoolsMax = 64
	// WorkerPoolNameBytesMax bounds the name of a pool: the names of its workers are longer.
	WorkerPoolNameBytesMax = 96
	// WorkerPoolMembersMax bounds the workers of a pool, those that leave included.
	WorkerPoolMembersMax = 512
	// WorkerPoolWorkersMax bounds those of them that are planned: as many others may leave.
	WorkerPoolWorkersMax = WorkerPoolMembersMax / 2
	// WorkerPoolOptionsMax bounds the degrees that workers of a pool may have.
	WorkerPoolOptionsMax = 8
	// WorkerPoolDegreeMax is the highest degree: the largest chunk that an action can have.
	WorkerPoolDegreeMax = 8
	// WorkerPoolPortMax is the highest port: a worker listens on it and the number of its first GPU.
	WorkerPoolPortMax = 65535 - 63
	// workerPoolSetUps is of how many set-ups the newest is one, in the mean.
	workerPoolSetUps = 8
)

// WorkerPool is GPUs that are divided into workers of a policy, which rota starts as actions. Their
// degrees of model parallelism are planned at the boundaries of steps (Heddle §6).
type WorkerPool struct {
	Name, Policy, Namespace string
	// Start is the encoded action of the log that is a worker.
	Start    []byte
	GPUs     uint32 // of all its workers together
	Dialect  uint8  // as rota.v1.WorkerDialect
	Port     uint32 // a worker listens on this and the number of its first GPU
	Hardware string
	// SetUpNS is how long an engine starts, in nanoseconds: the moving mean of SetUps that were
	// measured, or what was declared if none was.
	SetUpNS int64
	SetUps  uint64
	// PayBack is within how many steps a change of degrees must gain what it costs.
	PayBack uint32
	Options []WorkerPoolOption // in ascending order of degrees
	// Revision grows with each change of the pool or its members: a plan names the one that it saw.
	Revision uint64
	// Members are in ascending order of serial numbers, and LastSerial is the last that was given.
	Members    []WorkerPoolMember
	LastSerial uint64
	// Removed: it is forgotten when it has no members.
	Removed bool
	Plan    WorkerPoolPlan
}

// WorkerPoolOption is a degree that workers may have, and what was measured with it.
type WorkerPoolOption struct {
	Degree, Slots uint32
	Cost          uint64
	Profile       []WorkerPoint
	Prefill1kNS   int64
}

// WorkerPoolMember is a worker of a pool, from when it is planned until its action is over and
// its worker is removed.
type WorkerPoolMember struct {
	Serial uint64
	Degree uint32
	// Action is the one that was queued last; 0: none was. StartedAt is its log time, and Starts is
	// how many were.
	Action    ActionID
	StartedAt int64
	Starts    uint32
	// Leaving: its worker drains, and it is forgotten then.
	Leaving bool
}

// WorkerPoolPlan is the last plan of a pool; At is 0 if there was none since it was declared.
type WorkerPoolPlan struct {
	At int64 // log time
	// Step and Rollout are the boundary at which it was made.
	Step    uint64
	Rollout RolloutID
	Changed bool
	// Trajectories is for how many it is, NowNS when the last of them was expected to end as it was
	// (0: there were no workers), PlannedNS as planned.
	Trajectories     uint32
	NowNS, PlannedNS int64
}

// WorkerName is the name of the worker that an action of the pool is.
func (r *WorkerPool) WorkerName(a ActionID) string { return fmt.Sprintf("%s-%d", r.Name, a) }

// Option returns what was measured with a degree, nil if workers may not have it.
func (r *WorkerPool) Option(degree uint32) *WorkerPoolOption {
	at := slices.IndexFunc(r.Options, func(o WorkerPoolOption) bool { return o.Degree == degree })
	if at < 0 {
		return nil
	}
	return &r.Options[at]
}

// Degrees are those of the members that do not leave, the highest first.
func (r *WorkerPool) Degrees() (degrees []uint32) {
	for i := range r.Members {
		if !r.Members[i].Leaving {
			degrees = append(degrees, r.Members[i].Degree)
		}
	}
	slices.SortFunc(degrees, func(a, b uint32) int { return cmp.Compare(b, a) })
	return degrees
}

// Measured returns the row with one more set-up in its mean, in nanoseconds. The first is the
// mean, and then each counts for an eighth.
func (r *WorkerPool) Measured(ns int64) *WorkerPool {
	p := *r
	if p.SetUps++; p.SetUps == 1 {
		p.SetUpNS = ns
	} else {
		p.SetUpNS += (ns - p.SetUpNS) / workerPoolSetUps
	}
	return &p
}

func (r *WorkerPool) code(c *codec) {
	for _, text := range []*string{&r.Name, &r.Policy, &r.Namespace, &r.Hardware} {
		c.text(text)
	}
	c.bytes(&r.Start)
	number(c, &r.Dialect)
	for _, n := range []*uint32{&r.GPUs, &r.Port, &r.PayBack} {
		number(c, n)
	}
	for _, n := range []*uint64{&r.SetUps, &r.Revision, &r.LastSerial} {
		number(c, n)
	}
	signed(c, &r.SetUpNS)
	c.flag(&r.Removed)
	list(c, &r.Options, func(c *codec, o *WorkerPoolOption) {
		number(c, &o.Degree)
		number(c, &o.Slots)
		number(c, &o.Cost)
		signed(c, &o.Prefill1kNS)
		list(c, &o.Profile, func(c *codec, p *WorkerPoint) {
			number(c, &p.Batch)
			signed(c, &p.TokenNS)
		})
	})
	list(c, &r.Members, func(c *codec, m *WorkerPoolMember) {
		number(c, &m.Serial)
		number(c, &m.Degree)
		number(c, &m.Action)
		signed(c, &m.StartedAt)
		number(c, &m.Starts)
		c.flag(&m.Leaving)
	})
	number(c, &r.Plan.Step)
	number(c, &r.Plan.Rollout)
	number(c, &r.Plan.Trajectories)
	c.flag(&r.Plan.Changed)
	for _, at := range []*int64{&r.Plan.At, &r.Plan.NowNS, &r.Plan.PlannedNS} {
		signed(c, at)
	}
}

// PutWorkerPool stores a pool of workers.
func (s *State) PutWorkerPool(r *WorkerPool) { db(s).workerPools.put(db(s).enc, r.Name, r) }

// DeleteWorkerPool forgets a pool of workers.
func (s *State) DeleteWorkerPool(name string) { db(s).workerPools.delete(name) }

// WorkerPool returns a pool of workers, nil if there is none.
func (s *State) WorkerPool(name string) *WorkerPool { return db(s).workerPools.get(name) }

// WorkerPools visits all pools of workers by name.
func (s *State) WorkerPools(fn func(*WorkerPool) bool) { db(s).workerPools.scan("", fn) }

// WorkerPoolCount returns how many pools of workers there are.
func (s *State) WorkerPoolCount() int { return db(s).workerPools.rows.Len() }
