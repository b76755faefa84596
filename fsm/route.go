package fsm

import (
	"slices"

	"rota/fsm/state"
	"rota/sched/place/worker"
)

// pendingRoutes are what the end of an entry has to look at, and what gateways are told of.
type pendingRoutes struct {
	// policies have trajectories that wait for a worker or leave one, or workers that changed.
	policies orderedSet[string]
	// all policies are looked at, as an entry before did not come to its end.
	all bool
	// generations, workers and suspensions (of policies) are what routes are made of.
	generations orderedSet[state.TrajectoryID]
	workers     orderedSet[string]
	suspensions orderedSet[string]
	rewards     orderedSet[string]
	looks       int
}

// generationsAt returns the trajectories of a worker by ID.
func (x *execution) generationsAt(name string) (at []*state.Generation) {
	x.s.GenerationsAt(name, func(g *state.Generation) bool {
		at = append(at, g)
		return true
	})
	return at
}

// dismiss takes a trajectory from its worker. It waits for another one.
func (x *execution) dismiss(old *state.Generation, cause state.PlacementCause) {
	g := *old
	g.Worker, g.Since, g.Cause = "", x.now(), cause
	x.putGeneration(&g)
}

// assign gives a trajectory to a worker. g is a copy of its row, with the cause.
func (x *execution) assign(g *state.Generation, to string, choice state.PlacementChoice) {
	if g.Last != "" && g.Last != to {
		g.Moves++
	}
	g.Worker, g.Last, g.Since, g.Choice = to, to, x.now(), choice
	x.putGeneration(g)
}

// placeGenerations gives workers to the trajectories that wait for one, as far as there is room.
func (x *execution) placeGenerations() {
	if x.routes.all {
		x.s.Policies("", func(p *state.Policy) bool {
			x.routes.policies.add(p.Name)
			return true
		})
	}
	x.routes.looks = placementLooksMax
	for {
		policy, ok := x.routes.policies.pop()
		if !ok {
			return
		}
		if !x.faults.policy(policy) && !x.placeFor(policy) {
			x.s.PutWork(state.Queue{Kind: state.GenerationQueue})
		}
	}
}

// policy reports whether placing the trajectories of a policy panicked in an earlier try. They
// wait until something of the policy changes.
func (f *faults) policy(name string) bool { return slices.Contains(f.policies, name) }

// placeFor places the trajectories of a policy, and reports whether it came to the end: those of
// workers that failed leave them, those that wait get one, and those that are idle leave workers
// that drain or missed a version.
func (x *execution) placeFor(policy string) (done bool) {
	x.enter(stage{command: -1, policy: policy})
	v := worker.Of(x.s, policy)
	for i := range v {
		if v[i].State != state.WorkerDown || v[i].Load.Trajectories == 0 {
			continue
		}
		if x.routes.looks <= 0 {
			return false
		}
		for _, g := range x.generationsAt(v[i].Row.Name) {
			x.dismiss(g, state.PlacedFailed)
		}
		x.routes.looks -= int(v[i].Load.Trajectories) * placementCost
	}
	for g := x.s.NextWaiting(policy); g != nil; g = x.s.NextWaiting(policy) {
		if x.routes.looks <= 0 {
			return false
		}
		if u := *g; !x.choose(v, &u) {
			break
		}
	}
	return x.leaveWorkers(policy, v)
}

// choose gives a trajectory, of which g is a copy, to the best worker, and reports whether there
// is one.
func (x *execution) choose(v worker.View, g *state.Generation) bool {
	x.routes.looks -= len(v)
	at, choice := v.Choose(g, x.s.AffinityOf(g.Policy, g.TaskClass))
	if at < 0 {
		return false
	}
	x.assign(g, v[at].Row.Name, choice)
	x.routes.looks -= placementCost
	v.Add(at, g)
	return true
}

// leaveWorkers has the idle trajectories of workers that drain or missed a version go to others, as far
// as these have room. It reports whether it came to the end.
func (x *execution) leaveWorkers(policy string, v worker.View) (done bool) {
	var leaving []*state.Worker
	x.s.LeavingWorkers(policy, func(w *state.Worker) bool {
		leaving = append(leaving, w)
		return true
	})
	for _, w := range leaving {
		for _, g := range x.generationsAt(w.Name) {
			if x.routes.looks <= 0 {
				return false
			}
			if x.routes.looks--; g.Generating {
				continue
			}
			u := *g
			u.Cause = state.PlacedStale
			if w.Draining {
				u.Cause = state.PlacedDrained
			}
			if !x.choose(v, &u) {
				return true
			}
		}
	}
	return true
}

// routeEffects name what gateways have to be told of.
func (x *execution) routeEffects() {
	for _, id := range x.routes.generations.items {
		x.effects = append(x.effects, Effect{Kind: EffectRoute, Trajectory: id})
	}
	for _, name := range x.routes.workers.items {
		x.effects = append(x.effects, Effect{Kind: EffectWorker, Name: name})
	}
	for _, name := range x.routes.suspensions.items {
		x.effects = append(x.effects, Effect{Kind: EffectPolicy, Name: name})
	}
	for _, name := range x.routes.rewards.items {
		x.effects = append(x.effects, Effect{Kind: EffectReward, Name: name})
	}
}

// ExplainGeneration says why a trajectory is at its worker, or what it waits for, by the rule
// that places it.
func ExplainGeneration(s *state.State, g *state.Generation) string { return worker.Explain(s, g) }
