package plan

import (
	"strconv"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Pauses between two starts of a worker whose action ended, in nanoseconds of log time: twice as long
// after each, up to startPauseMax.
const (
	startPauseMin = 5 * 1_000_000_000
	startPauseMax = 300 * 1_000_000_000
	// drainMax is for how long a worker that a plan has no place for may keep trajectories that have
	// nowhere to go, as the workers that come wait for its GPUs.
	drainMax = 120 * 1_000_000_000
)

// WorkerPools returns what is to be done next for the pools of workers, at a log time. It is decided
// from the state alone, so a new leader goes on where the one before was.
//
// A member that a plan added: its action is queued. When that runs, its worker is registered. A
// member that leaves: its worker drains, is removed when it has no trajectories, its action is
// canceled, and the member is dropped when that is over. An action that ends takes its worker along,
// and is queued again after a pause.
//
// When nothing leaves any more, and a step or a rollout has begun or ended since the last plan, the
// degrees are planned (Heddle §6).
func WorkerPools(v *state.State, now int64) (commands []*logv1.Command) {
	v.WorkerPools(func(p *state.WorkerPool) bool {
		leaving := false
		for i := range p.Members {
			commands = append(commands, tend(v, p, &p.Members[i], now)...)
			leaving = leaving || p.Members[i].Leaving
		}
		if !leaving {
			if c := poolPlan(v, p); c != nil {
				commands = append(commands, c)
			}
		}
		return true
	})
	return commands
}

// ActionLives reports whether an action is queued or runs.
func ActionLives(v *state.State, id state.ActionID) bool {
	a := v.Action(id)
	return a != nil && !a.State.Final()
}

// tend returns what is to be done for a member.
func tend(v *state.State, p *state.WorkerPool, m *state.WorkerPoolMember, now int64) []*logv1.Command {
	name, lives := p.WorkerName(m.Action), ActionLives(v, m.Action)
	w := v.Worker(name)
	switch {
	case m.Leaving:
		return release(v, p, m, w, now)
	case w != nil && !lives: // with the next look it is started again
		return []*logv1.Command{removeWorker(name)}
	case !lives && (m.Starts == 0 || now >= m.StartedAt+min(int64(startPauseMin)<<min(m.Starts-1, 10), startPauseMax)):
		return []*logv1.Command{changePool(&logv1.ChangeWorkerPool{Name: p.Name, Change: &logv1.ChangeWorkerPool_Start{Start: m.Serial}})}
	case w == nil && lives:
		return registerMember(v, p, m)
	}
	return nil
}

// release returns what a member that leaves needs next.
func release(v *state.State, p *state.WorkerPool, m *state.WorkerPoolMember, w *state.Worker, now int64) []*logv1.Command {
	lives := ActionLives(v, m.Action)
	late := p.Plan.Changed && !p.Removed && now >= p.Plan.At+drainMax
	switch {
	case w != nil && (!lives || w.Draining && (late || v.WorkerLoad(w.Name).Trajectories == 0)):
		return []*logv1.Command{removeWorker(w.Name)}
	case w != nil && !w.Draining:
		draining := true
		return []*logv1.Command{{Verb: &logv1.Command_UpdateWorker{UpdateWorker: &logv1.UpdateWorker{Name: w.Name, Draining: &draining}}}}
	case w != nil:
		return nil // its trajectories leave
	case lives:
		if v.Action(m.Action).CancelReason != 0 {
			return nil // its node ends it
		}
		return []*logv1.Command{{Verb: &logv1.Command_CancelActions{CancelActions: &logv1.CancelActions{Ids: []uint64{uint64(m.Action)}}}}}
	}
	return []*logv1.Command{changePool(&logv1.ChangeWorkerPool{Name: p.Name, Change: &logv1.ChangeWorkerPool_Drop{Drop: m.Serial}})}
}

// registerMember registers the worker of a member whose action runs: where it is, and what was measured
// with its degree. It is down until its engine has started.
func registerMember(v *state.State, p *state.WorkerPool, m *state.WorkerPoolMember) []*logv1.Command {
	a, o := v.Action(m.Action), p.Option(m.Degree)
	node := v.Node(a.Node)
	if a.State != state.ActionRunning || node == nil || o == nil {
		return nil
	}
	attempt := v.Attempt(node.ID, a.ID)
	colon := strings.LastIndexByte(node.Address, ':') // an IPv6 host keeps its brackets
	if attempt == nil || colon < 0 {
		return nil
	}
	c := &logv1.RegisterWorker{
		Name: p.WorkerName(a.ID), Policy: p.Policy, Url: "http://" + node.Address[:colon+1] + strconv.Itoa(int(p.Port+attempt.Chunk.First)),
		Dialect: uint32(p.Dialect), Node: node.Name, Degree: m.Degree, Hardware: p.Hardware, Cost: o.Cost, Slots: o.Slots,
		Prefill_1KNs: o.Prefill1kNS, Pool: p.Name, StartNs: p.SetUpNS,
	}
	for _, point := range o.Profile {
		c.Profile = append(c.Profile, &logv1.WorkerProfilePoint{BatchSize: point.Batch, TokenNs: point.TokenNS})
	}
	return []*logv1.Command{{Verb: &logv1.Command_RegisterWorker{RegisterWorker: c}}}
}

func removeWorker(name string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_RemoveWorker{RemoveWorker: &logv1.RemoveWorker{Name: name}}}
}

func changePool(c *logv1.ChangeWorkerPool) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_ChangeWorkerPool{ChangeWorkerPool: c}}
}

// poolPlan plans the degrees of a pool at a boundary; nil: it is at none, or no trajectories are
// known to come. A plan that changes nothing is committed too, so that people can read it and no
// other leader makes it again.
func poolPlan(v *state.State, p *state.WorkerPool) *logv1.Command {
	step, rollout := v.Policy(p.Policy).Step, v.LastRollout(p.Policy)
	if p.Removed || p.Plan.At > 0 && len(p.Members) > 0 && p.Plan.Step == step && p.Plan.Rollout == rollout {
		return nil
	}
	advice, err := AdvisePool(v, p)
	if err != nil || advice.Trajectories == 0 {
		return nil
	}
	return PoolPlan(v, p, &advice, advice.Worthwhile)
}

// PoolPlan makes an advice a command, with what it saw as preconditions. Without change, degrees stay
// as they are.
func PoolPlan(v *state.State, p *state.WorkerPool, advice *PoolAdvice, change bool) *logv1.Command {
	c := &logv1.WorkerPoolPlan{
		Revision: p.Revision, Step: v.Policy(p.Policy).Step, RolloutId: uint64(v.LastRollout(p.Policy)),
		Trajectories: uint32(advice.Trajectories), NowNs: advice.NowNS, PlannedNs: advice.PlannedNS,
	}
	if change {
		c.Degrees = advice.Degrees
	}
	return changePool(&logv1.ChangeWorkerPool{Name: p.Name, Change: &logv1.ChangeWorkerPool_Plan{Plan: c}})
}
