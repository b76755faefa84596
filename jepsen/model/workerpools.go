package model

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Pools of workers. What their plans say is taken as given; when one is refused, and what becomes of
// the members, is not.

const (
	workerPoolsMax      = 64
	workerPoolNameMax   = 96
	workerPoolMembers   = 512
	workerPoolOptions   = 8
	workerPoolPortMax   = 65472
	workerPoolPlanned   = 256
	workerPoolStepsMax  = 1024
	workerPoolSetUpMax  = 3600 * 1_000_000_000
	workerPoolDegreeMax = 8
)

func (m *Model) changeWorkerPool(c *logv1.ChangeWorkerPool, got *logv1.Result) error {
	p := m.workers.pools[c.Name]
	if v, ok := c.Change.(*logv1.ChangeWorkerPool_Declare); ok && v.Declare != nil {
		return m.declareWorkerPool(c.Name, p, v.Declare, got)
	}
	if p == nil {
		return refused(got, "WORKER_POOL_NOT_FOUND")
	}
	switch v := c.Change.(type) {
	case *logv1.ChangeWorkerPool_Remove:
		p.Removed = true
		for i := range p.Members {
			p.Members[i].Leaving = true
		}
		m.poolChanged(p)
		return result(got, &logv1.Result{Count: 1})
	case *logv1.ChangeWorkerPool_Plan:
		return m.planWorkerPool(p, v.Plan, got)
	case *logv1.ChangeWorkerPool_Start:
		return m.startMember(p, v.Start, got)
	case *logv1.ChangeWorkerPool_Drop:
		return m.dropMember(p, v.Drop, got)
	}
	return refused(got, "INVALID")
}

// poolChanged counts the change of a pool, and forgets what has left.
func (m *Model) poolChanged(p *state.WorkerPool) {
	p.Revision++
	var members []state.WorkerPoolMember
	for _, x := range p.Members {
		if !x.Leaving || x.Action != 0 {
			members = append(members, x)
		}
	}
	if p.Members = members; p.Removed && members == nil {
		delete(m.workers.pools, p.Name)
	}
}

func (m *Model) declareWorkerPool(name string, old *state.WorkerPool, c *logv1.WorkerPoolSpec, got *logv1.Result) error {
	var v verdict
	v.refuse(name == "" || len(name) > workerPoolNameMax || len(c.Hardware) > workerTextMax, "INVALID")
	v.refuse(c.Start == nil || c.Start.TrajectoryId != 0 || c.Start.GetNeeds().GetGpus() == nil || c.Start.AttemptsMax > 1 || c.Start.SizeVT() > hookBytesMax, "INVALID")
	v.refuse(c.Dialect > 3 || c.Port < 1 || c.Port > workerPoolPortMax, "INVALID")
	v.refuse(c.SetUpNs < 0 || c.SetUpNs > workerPoolSetUpMax || c.PayBackSteps > workerPoolStepsMax, "INVALID")
	v.refuse(len(c.Options) < 1 || len(c.Options) > workerPoolOptions, "INVALID")
	start, _ := c.Start.MarshalVT()
	p := &state.WorkerPool{
		Name: name, Policy: c.Policy, Namespace: c.Namespace, Start: start, GPUs: c.Gpus, Dialect: uint8(max(c.Dialect, 1)), Port: c.Port,
		Hardware: c.Hardware, SetUpNS: c.SetUpNs, PayBack: max(c.PayBackSteps, 1),
	}
	smallest := true
	before := uint32(0)
	for _, o := range c.Options {
		power := false
		for d := uint32(1); d <= workerPoolDegreeMax; d *= 2 {
			power = power || d == o.Degree
		}
		v.refuse(!power || o.Degree <= before || o.Slots > workerSlotsMax || smallest && c.Gpus < o.Degree, "INVALID")
		before, smallest = o.Degree, false
		profile, sound := profileOf(o.Profile, o.Prefill_1KNs)
		v.refuse(!sound, "INVALID")
		p.Options = append(p.Options, state.WorkerPoolOption{Degree: o.Degree, Slots: o.Slots, Cost: o.Cost, Profile: profile, Prefill1kNS: o.Prefill_1KNs})
	}
	v.refuse(c.Gpus > workerPoolPlanned*before, "INVALID")
	v.refuse(old == nil && len(m.workers.pools) >= workerPoolsMax, "TOO_MANY_WORKER_POOLS")
	v.refuse(m.namespaces[orDefault(c.Namespace)] == 0, "NAMESPACE_NOT_FOUND")
	m.named(&v, c.Policy)
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.policy(c.Policy)
	if old != nil {
		p.Revision, p.LastSerial = old.Revision, old.LastSerial
		left := int(c.Gpus)
		for _, x := range old.Members {
			if allowed := slices.ContainsFunc(p.Options, func(o state.WorkerPoolOption) bool { return o.Degree == x.Degree }); !allowed || old.Policy != c.Policy || int(x.Degree) > left {
				x.Leaving = true
			}
			if !x.Leaving {
				left -= int(x.Degree)
			}
			p.Members = append(p.Members, x)
		}
		if p.SetUps = old.SetUps; p.SetUps != 0 {
			p.SetUpNS = old.SetUpNS
		}
	}
	m.workers.pools[name] = p
	m.poolChanged(p)
	return result(got, &logv1.Result{Count: 1})
}

// profileOf is a profile as a row has it, and whether it can be.
func profileOf(points []*logv1.WorkerProfilePoint, prefillNS int64) (rows []state.WorkerPoint, sound bool) {
	last := uint32(0)
	sound = len(points) > 0 && len(points) <= workerPointsMax && prefillNS >= 0 && prefillNS <= workerPrefillMax
	for _, p := range points {
		sound = sound && p.BatchSize > last && p.TokenNs > 0 && p.TokenNs <= workerTokenMax
		last = p.BatchSize
		rows = append(rows, state.WorkerPoint{Batch: p.BatchSize, TokenNS: p.TokenNs})
	}
	return rows, sound
}

// newest is the newest rollout of a policy that has not ended.
func (m *Model) newest(policy string) (id state.RolloutID) {
	for _, r := range m.rollouts.all {
		if r.Policy == policy && r.State != state.RolloutClosed {
			id = max(id, r.ID)
		}
	}
	return id
}

func (m *Model) planWorkerPool(p *state.WorkerPool, c *logv1.WorkerPoolPlan, got *logv1.Result) error {
	var v verdict
	v.refuse(p.Removed || p.Revision != c.Revision, "PLAN_OUTDATED")
	v.refuse(m.rollouts.policies[p.Policy].Step != c.Step || uint64(m.newest(p.Policy)) != c.RolloutId, "PLAN_OUTDATED")
	v.refuse(min(c.NowNs, c.PlannedNs) < 0, "INVALID")
	gpus, missing := 0, map[uint32]int{}
	for _, d := range c.Degrees {
		v.refuse(!slices.ContainsFunc(p.Options, func(o state.WorkerPoolOption) bool { return o.Degree == d }), "INVALID")
		gpus += int(d)
		missing[d]++
	}
	v.refuse(gpus > int(p.GPUs) || len(c.Degrees)+len(p.Members) > workerPoolMembers, "INVALID")
	if ok, err := v.judge(got); !ok {
		return err
	}
	if len(c.Degrees) > 0 {
		for i := range p.Members {
			if x := &p.Members[i]; !x.Leaving {
				missing[x.Degree]--
				x.Leaving = missing[x.Degree] < 0
			}
		}
		m.addMembers(p, c.Degrees, missing)
	}
	p.Plan = state.WorkerPoolPlan{
		At: m.now, Step: c.Step, Rollout: state.RolloutID(c.RolloutId), Changed: len(c.Degrees) > 0,
		Trajectories: c.Trajectories, NowNS: c.NowNs, PlannedNS: c.PlannedNs,
	}
	m.poolChanged(p)
	return result(got, &logv1.Result{Count: uint32(len(c.Degrees))})
}

// addMembers adds those that are missing, in the order of the plan: of equal ones the last.
func (m *Model) addMembers(p *state.WorkerPool, degrees []uint32, missing map[uint32]int) {
	var added []uint32
	for _, d := range slices.Backward(degrees) {
		if missing[d] > 0 {
			missing[d]--
			added = append(added, d)
		}
	}
	for _, d := range slices.Backward(added) {
		p.LastSerial++
		p.Members = append(p.Members, state.WorkerPoolMember{Serial: p.LastSerial, Degree: d})
	}
}

func (m *Model) memberAt(p *state.WorkerPool, serial uint64) *state.WorkerPoolMember {
	for i := range p.Members {
		if p.Members[i].Serial == serial {
			return &p.Members[i]
		}
	}
	return nil
}

// memberLives: an action is queued or runs.
func (m *Model) memberLives(id state.ActionID) bool {
	a := m.actions[id]
	return a != nil && a.State <= state.ActionRunning
}

func (m *Model) startMember(p *state.WorkerPool, serial uint64, got *logv1.Result) error {
	x := m.memberAt(p, serial)
	switch {
	case x == nil:
		return refused(got, "WORKER_POOL_MEMBER_NOT_FOUND")
	case x.Leaving:
		return refused(got, "WORKER_POOL_MEMBER_LEAVES")
	case m.memberLives(x.Action):
		return result(got, &logv1.Result{FirstId: uint64(x.Action), Count: 1, Replayed: true})
	}
	a := &logv1.Action{}
	if err := a.UnmarshalVT(p.Start); err != nil {
		return fmt.Errorf("the action of worker pool %s: %w", p.Name, err)
	}
	a.Needs.Gpus.Degrees = []uint32{x.Degree}
	if err := m.submit(&logv1.SubmitActions{Namespace: p.Namespace, Actions: []*logv1.Action{a}}, got); err != nil || got.Refusal != nil {
		return err
	}
	x.Action, x.StartedAt = state.ActionID(got.FirstId), m.now
	x.Starts++
	m.poolChanged(p)
	return nil
}

func (m *Model) dropMember(p *state.WorkerPool, serial uint64, got *logv1.Result) error {
	x := m.memberAt(p, serial)
	if x == nil {
		return refused(got, "WORKER_POOL_MEMBER_NOT_FOUND")
	}
	if !x.Leaving || m.memberLives(x.Action) || m.workers.all[fmt.Sprint(p.Name, "-", uint64(x.Action))] != nil {
		return refused(got, "WORKER_POOL_MEMBER_BUSY")
	}
	p.Members = slices.DeleteFunc(slices.Clone(p.Members), func(o state.WorkerPoolMember) bool { return o.Serial == serial })
	m.poolChanged(p)
	return result(got, &logv1.Result{Count: 1})
}

// measureStart: a worker is said to be up whose engine started.
func (m *Model) measureStart(w *state.Worker) {
	p := m.workers.pools[w.Pool]
	if p == nil {
		return
	}
	took := m.now - w.RegisteredAt
	if p.SetUps++; p.SetUps == 1 {
		p.SetUpNS = took
	} else {
		p.SetUpNS += (took - p.SetUpNS) / 8
	}
}

// compareWorkerPools compares all pools.
func (m *Model) compareWorkerPools() error {
	if got, want := m.s.WorkerPoolCount(), len(m.workers.pools); got != want {
		return fmt.Errorf("there are %d worker pools, must be %d", got, want)
	}
	for _, name := range slices.Sorted(maps.Keys(m.workers.pools)) {
		got, want := m.s.WorkerPool(name), *m.workers.pools[name]
		if got == nil {
			return fmt.Errorf("worker pool %s is missing, must be %+v", name, want)
		}
		row := *got
		if len(row.Members) == 0 {
			row.Members = nil
		}
		if len(want.Members) == 0 {
			want.Members = nil
		}
		if !reflect.DeepEqual(row, want) {
			return fmt.Errorf("worker pool %s is %+v, must be %+v", name, row, want)
		}
	}
	return nil
}

// deletePolicy forgets a policy that nothing names.
func (m *Model) deletePolicy(c *logv1.DeletePolicy, got *logv1.Result) error {
	if m.rollouts.policies[c.Policy] == nil {
		return refused(got, "POLICY_NOT_FOUND")
	}
	used := false
	for _, w := range m.workers.all {
		used = used || w.Policy == c.Policy
	}
	for _, p := range m.workers.pools {
		used = used || p.Policy == c.Policy
	}
	for _, r := range m.rollouts.all {
		used = used || r.Policy == c.Policy
	}
	for _, g := range m.workers.generations {
		used = used || g.Policy == c.Policy && !g.Ended
	}
	if used {
		return refused(got, "POLICY_IN_USE")
	}
	if b := m.rollouts.batches[c.Policy]; b != nil {
		for _, id := range b.Samples {
			delete(m.rollouts.samples, id)
		}
		delete(m.rollouts.batches, c.Policy)
	}
	maps.DeleteFunc(m.workers.lengths.all, func(name lengthName, _ *lengthClass) bool { return name.policy == c.Policy })
	m.forgetAffinities(c.Policy)
	delete(m.rollouts.policies, c.Policy)
	m.rollouts.policiesTouched[c.Policy] = true
	return result(got, &logv1.Result{Count: 1})
}
