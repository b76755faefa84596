package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/plan"
)

// Bounds of worker pools.
const (
	workerPoolStepMax = 1024 // steps within which a change must gain what it costs
)

// changeWorkerPool declares a pool of workers, has it go, or carries out what its leader planned.
func (x *execution) changeWorkerPool(c *logv1.ChangeWorkerPool) *logv1.Result {
	if v, ok := c.Change.(*logv1.ChangeWorkerPool_Declare); ok && v.Declare != nil {
		return x.declareWorkerPool(c.Name, v.Declare)
	}
	old := x.s.WorkerPool(c.Name)
	if old == nil {
		return refuse(codeNotFound, "WORKER_POOL_NOT_FOUND", "there is no worker pool %q; see: rota worker pool list", c.Name)
	}
	p := *old
	p.Members = slices.Clone(old.Members)
	switch v := c.Change.(type) {
	case *logv1.ChangeWorkerPool_Remove:
		return x.removeWorkerPool(&p)
	case *logv1.ChangeWorkerPool_Plan:
		return x.planWorkerPool(&p, v.Plan)
	case *logv1.ChangeWorkerPool_Start:
		return x.startMember(&p, v.Start)
	case *logv1.ChangeWorkerPool_Drop:
		return x.dropMember(&p, v.Drop)
	}
	return refuse(codeInvalidArgument, "INVALID", "nothing is said to change of worker pool %q", c.Name)
}

// putWorkerPool stores a pool that has changed, without the members that leave and never started. A
// pool that was removed goes with its last member.
func (x *execution) putWorkerPool(p *state.WorkerPool) {
	p.Revision++
	p.Members = slices.DeleteFunc(p.Members, func(m state.WorkerPoolMember) bool { return m.Leaving && m.Action == 0 })
	if p.Removed && len(p.Members) == 0 {
		x.s.DeleteWorkerPool(p.Name)
		return
	}
	x.s.PutWorkerPool(p)
}

// declareWorkerPool declares a pool or changes it. Members that it has no place for leave, and its
// degrees are planned again.
func (x *execution) declareWorkerPool(name string, c *logv1.WorkerPoolSpec) *logv1.Result {
	if r := checkWorkerPool(name, c); r != nil {
		return r
	}
	old := x.s.WorkerPool(name)
	if old == nil && x.s.WorkerPoolCount() >= state.WorkerPoolsMax {
		return refuse(codeResourceExhausted, "TOO_MANY_WORKER_POOLS", "there are %d worker pools already, which is the limit: remove some with: rota worker pool remove", state.WorkerPoolsMax)
	}
	if _, r := x.namespace(c.Namespace); r != nil {
		return r
	}
	policy, r := x.policy(c.Policy)
	if r != nil {
		return r
	}
	start, err := c.Start.MarshalVT()
	state.Assert(err == nil, "an action that was decoded cannot be encoded: %v", err)
	p := &state.WorkerPool{
		Name: name, Policy: policy.Name, Namespace: c.Namespace, Start: start, GPUs: c.Gpus, Dialect: uint8(max(1, c.Dialect)), Port: c.Port,
		Hardware: c.Hardware, SetUpNS: c.SetUpNs, PayBack: max(1, c.PayBackSteps),
	}
	for _, o := range c.Options {
		option := state.WorkerPoolOption{Degree: o.Degree, Slots: o.Slots, Cost: o.Cost, Prefill1kNS: o.Prefill_1KNs}
		for _, point := range o.Profile {
			option.Profile = append(option.Profile, state.WorkerPoint{Batch: point.BatchSize, TokenNS: point.TokenNs})
		}
		p.Options = append(p.Options, option)
	}
	if old != nil {
		p.Revision, p.LastSerial, p.Members = old.Revision, old.LastSerial, remaining(old, p)
		if old.SetUps > 0 {
			p.SetUpNS, p.SetUps = old.SetUpNS, old.SetUps
		}
	}
	x.putWorkerPool(p)
	return &logv1.Result{Count: 1}
}

// remaining are the members of a pool that was declared again: those leave that serve another
// policy, have a degree that none may have any more, or no GPUs.
func remaining(old, p *state.WorkerPool) []state.WorkerPoolMember {
	members, gpus := slices.Clone(old.Members), uint32(0)
	for i := range members {
		m := &members[i]
		if m.Leaving = m.Leaving || old.Policy != p.Policy || p.Option(m.Degree) == nil || gpus+m.Degree > p.GPUs; !m.Leaving {
			gpus += m.Degree
		}
	}
	return members
}

// checkWorkerPool refuses what no pool can be.
func checkWorkerPool(name string, c *logv1.WorkerPoolSpec) *logv1.Result {
	switch {
	case name == "" || len(name) > state.WorkerPoolNameBytesMax || len(c.Hardware) > state.WorkerNameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "a worker pool needs a name of at most %d bytes, and a kind of hardware of at most %d", state.WorkerPoolNameBytesMax, state.WorkerNameBytesMax)
	case c.Start == nil || c.Start.TrajectoryId != 0 || c.Start.Needs.GetGpus() == nil || c.Start.AttemptsMax > 1 || c.Start.SizeVT() > specBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "worker pool %q needs an action that asks for GPUs, is of no trajectory, runs once, and has at most %d bytes", name, specBytesMax)
	case c.Dialect > workerDialectMax || c.Port == 0 || c.Port > state.WorkerPoolPortMax:
		return refuse(codeInvalidArgument, "INVALID", "worker pool %q speaks dialect %d at port %d; ports are 1 to %d", name, c.Dialect, c.Port, state.WorkerPoolPortMax)
	case c.SetUpNs < 0 || c.SetUpNs > workerPrefillMax || c.PayBackSteps > workerPoolStepMax:
		return refuse(codeInvalidArgument, "INVALID", "the set-up of worker pool %q must be at most an hour, and be paid back within at most %d steps", name, workerPoolStepMax)
	case len(c.Options) == 0 || len(c.Options) > state.WorkerPoolOptionsMax:
		return refuse(codeInvalidArgument, "INVALID", "worker pool %q has %d degrees; it must have 1 to %d", name, len(c.Options), state.WorkerPoolOptionsMax)
	}
	last := uint32(0)
	for _, o := range c.Options {
		if o.Degree <= last || o.Degree > state.WorkerPoolDegreeMax || o.Degree&(o.Degree-1) != 0 || o.Slots > state.WorkerSlotsMax {
			return refuse(codeInvalidArgument, "INVALID", "the degrees of worker pool %q must be ascending powers of two of at most %d, with at most %d slots", name, state.WorkerPoolDegreeMax, state.WorkerSlotsMax)
		}
		if r := checkWorkerProfile("degree "+itoa(int(o.Degree))+" of worker pool "+name, o.Profile, o.Prefill_1KNs); r != nil {
			return r
		}
		last = o.Degree
	}
	if most := state.WorkerPoolWorkersMax * last; c.Gpus < c.Options[0].Degree || c.Gpus > most {
		return refuse(codeInvalidArgument, "INVALID", "worker pool %q has %d GPUs; it must have as many as its lowest degree, %d, and at most %d: it has at most %d workers, and its highest degree is %d",
			name, c.Gpus, c.Options[0].Degree, most, state.WorkerPoolWorkersMax, last)
	}
	return nil
}

// removeWorkerPool has all workers of a pool leave.
func (x *execution) removeWorkerPool(p *state.WorkerPool) *logv1.Result {
	for i := range p.Members {
		p.Members[i].Leaving = true
	}
	p.Removed = true
	x.putWorkerPool(p)
	return &logv1.Result{Count: 1}
}

// planWorkerPool divides the GPUs of a pool, if the pool, the step and the rollout are those that
// the plan saw.
func (x *execution) planWorkerPool(p *state.WorkerPool, c *logv1.WorkerPoolPlan) *logv1.Result {
	switch {
	case p.Removed || c.Revision != p.Revision:
		return refuse(codeFailedPrecondition, "PLAN_OUTDATED", "worker pool %q has changed since it was planned: it has revision %d, not %d; plan again", p.Name, p.Revision, c.Revision)
	case c.Step != x.s.Policy(p.Policy).Step || state.RolloutID(c.RolloutId) != x.s.LastRollout(p.Policy):
		return refuse(codeFailedPrecondition, "PLAN_OUTDATED", "policy %q is at another step or rollout than when worker pool %q was planned; plan again", p.Policy, p.Name)
	case c.NowNs < 0 || c.PlannedNs < 0:
		return refuse(codeInvalidArgument, "INVALID", "a plan of worker pool %q has a negative time", p.Name)
	}
	gpus := uint64(0)
	for _, degree := range c.Degrees {
		if p.Option(degree) == nil {
			return refuse(codeInvalidArgument, "INVALID", "workers of pool %q may not have degree %d", p.Name, degree)
		}
		gpus += uint64(degree)
	}
	if gpus > uint64(p.GPUs) || len(p.Members)+len(c.Degrees) > state.WorkerPoolMembersMax {
		return refuse(codeInvalidArgument, "INVALID", "worker pool %q has %d GPUs and at most %d workers, and the plan has %d GPUs and %d workers beside %d", p.Name, p.GPUs, state.WorkerPoolMembersMax, gpus, len(c.Degrees), len(p.Members))
	}
	if len(c.Degrees) > 0 {
		divideGPUs(p, c.Degrees)
	}
	p.Plan = state.WorkerPoolPlan{
		At: x.now(), Step: c.Step, Rollout: state.RolloutID(c.RolloutId), Changed: len(c.Degrees) > 0,
		Trajectories: c.Trajectories, NowNS: c.NowNs, PlannedNS: c.PlannedNs,
	}
	x.putWorkerPool(p)
	return &logv1.Result{Count: uint32(len(c.Degrees))}
}

// divideGPUs has the members of a pool leave that a plan has no worker for, the newest first, and adds
// those that are missing.
func divideGPUs(p *state.WorkerPool, degrees []uint32) {
	wanted := slices.Clone(degrees)
	for i := range p.Members {
		m := &p.Members[i]
		if m.Leaving {
			continue
		}
		if at := slices.Index(wanted, m.Degree); at >= 0 {
			wanted = slices.Delete(wanted, at, at+1)
		} else {
			m.Leaving = true
		}
	}
	for _, degree := range wanted {
		p.LastSerial++
		p.Members = append(p.Members, state.WorkerPoolMember{Serial: p.LastSerial, Degree: degree})
	}
}

// member finds a member of a pool by its serial number.
func member(p *state.WorkerPool, serial uint64) (*state.WorkerPoolMember, *logv1.Result) {
	at := slices.IndexFunc(p.Members, func(m state.WorkerPoolMember) bool { return m.Serial == serial })
	if at < 0 {
		return nil, refuse(codeNotFound, "WORKER_POOL_MEMBER_NOT_FOUND", "worker pool %q has no member %d (any more)", p.Name, serial)
	}
	return &p.Members[at], nil
}

// startMember queues the action that is a worker. A leader may ask again, and so may its successor:
// as long as the action is not over, no other is queued.
func (x *execution) startMember(p *state.WorkerPool, serial uint64) *logv1.Result {
	m, r := member(p, serial)
	switch {
	case r != nil:
		return r
	case m.Leaving:
		return refuse(codeFailedPrecondition, "WORKER_POOL_MEMBER_LEAVES", "member %d of worker pool %q leaves", serial, p.Name)
	case plan.ActionLives(x.s, m.Action):
		return &logv1.Result{FirstId: uint64(m.Action), Count: 1, Replayed: true}
	}
	a := &logv1.Action{}
	if err := a.UnmarshalVT(p.Start); err != nil {
		return refuse(codeInvalidArgument, "INVALID", "the action of worker pool %q cannot be decoded: %v", p.Name, err)
	}
	a.Needs.Gpus.Degrees = []uint32{m.Degree}
	r = x.submitActions(&logv1.SubmitActions{Namespace: p.Namespace, Actions: []*logv1.Action{a}})
	if r.Refusal == nil {
		m.Action, m.StartedAt, m.Starts = state.ActionID(r.FirstId), x.now(), m.Starts+1
		x.putWorkerPool(p)
	}
	return r
}

// dropMember forgets a member that left.
func (x *execution) dropMember(p *state.WorkerPool, serial uint64) *logv1.Result {
	m, r := member(p, serial)
	switch {
	case r != nil:
		return r
	case !m.Leaving || plan.ActionLives(x.s, m.Action) || x.s.Worker(p.WorkerName(m.Action)) != nil:
		return refuse(codeFailedPrecondition, "WORKER_POOL_MEMBER_BUSY", "member %d of worker pool %q does not leave, or its action or its worker is there", serial, p.Name)
	}
	p.Members = slices.DeleteFunc(p.Members, func(o state.WorkerPoolMember) bool { return o.Serial == serial })
	x.putWorkerPool(p)
	return &logv1.Result{Count: 1}
}

// measureStart takes how long the engine of a worker started into what is known of its pool.
func (x *execution) measureStart(w *state.Worker) {
	if p := x.s.WorkerPool(w.Pool); p != nil {
		x.s.PutWorkerPool(p.Measured(x.now() - w.RegisteredAt))
	}
}

// AdviseRatio says how many of all GPUs of a policy should train, of which so many do now.
func AdviseRatio(s *state.State, p *state.Policy, train uint32) (plan.RatioAdvice, error) {
	return plan.RatioOf(s, p, train)
}

// AdviseWorkerPool says how the GPUs of a pool of workers should be divided now, and with which command
// they are, whether or not that is worth its cost.
func AdviseWorkerPool(s *state.State, p *state.WorkerPool) (plan.PoolAdvice, *logv1.Command, error) {
	advice, err := plan.AdvisePool(s, p)
	return advice, plan.PoolPlan(s, p, &advice, true), err
}
