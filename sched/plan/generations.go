package plan

import (
	"cmp"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/place/partition"
	"rota/sched/place/worker"
)

// generationMovesMax bounds the moves of one plan for a policy.
const generationMovesMax = 16

// Generations plans which trajectories go to another worker, as their predictions have changed
// since they were placed (Heddle §5.3): of each policy, those whose move has the later one of two
// workers drained earlier by more than it costs. Only trajectories without a
// request move: between two turns, which has the prefix computed again at the new worker, and before
// the first one, which costs nothing. None moves to hardware that it wants less.
func Generations(v *state.State) (plans []*logv1.Command) {
	v.Policies("", func(p *state.Policy) bool {
		if c := forPolicy(v, p.Name); c != nil {
			plans = append(plans, c)
		}
		return true
	})
	return plans
}

// forPolicy plans the moves of one policy; nil: none.
func forPolicy(v *state.State, policy string) *logv1.Command {
	rows, workers, prefill := upWorkers(v, policy)
	if len(rows) < 2 {
		return nil
	}
	var all []*state.Generation
	home := map[state.TrajectoryID]int{} // for look-up only
	for i, w := range rows {
		v.GenerationsAt(w.Name, func(g *state.Generation) bool {
			all = append(all, g)
			home[g.Trajectory] = i
			return true
		})
	}
	slices.SortFunc(all, func(a, b *state.Generation) int {
		return cmp.Or(cmp.Compare(b.Predicted, a.Predicted), cmp.Compare(a.Trajectory, b.Trajectory))
	})
	t, running := partition.Trajectories{}, make([]partition.Running, len(all))
	for i, g := range all {
		t.Lengths = append(t.Lengths, int64(min(g.Predicted, partition.LengthMax)))
		running[i] = partition.Running{Home: home[g.Trajectory], Movable: !g.Generating && !g.Suspended}
		running[i].Refuses = refusals(g, v.AffinityOf(policy, g.TaskClass), rows, home[g.Trajectory])
		if g.Trace.Turns > 0 { // one that has not started has no prefix anywhere
			running[i].MoveNS = worker.PrefillNS(prefill, g.PrefixTokens())
		}
	}
	var planner partition.Planner
	moves, err := planner.Rebalance(t, running, workers, generationMovesMax)
	if err != nil || len(moves) == 0 { // an error: too many trajectories, which stay where they are
		return nil
	}
	c := &logv1.MoveGenerations{}
	for _, m := range moves {
		g := all[m.Trajectory]
		c.Moves = append(c.Moves, &logv1.GenerationMove{
			TrajectoryId: uint64(g.Trajectory), From: rows[m.From].Name, To: rows[m.To].Name,
		})
	}
	return &logv1.Command{Verb: &logv1.Command_MoveGenerations{MoveGenerations: c}}
}

// refusals are the workers whose hardware a trajectory wants less than that of its own; nil: none. The
// planner knows them, so that such a trajectory goes to the best of the others, and no other move is
// made or left out for the sake of one that does not happen.
func refusals(g *state.Generation, a *state.Affinity, rows []*state.Worker, home int) (refuses []bool) {
	for i, w := range rows {
		if worker.Worse(g, a, rows[home], w) {
			if refuses == nil {
				refuses = make([]bool, len(rows))
			}
			refuses[i] = true
		}
	}
	return refuses
}

// upWorkers returns the workers of a policy that are up, what a partition knows of them, and the
// one that takes longest to compute a prefix: what a move costs at most.
func upWorkers(v *state.State, policy string) (rows []*state.Worker, workers []partition.Worker, prefill *state.Worker) {
	v.WorkersOf(policy, func(w *state.Worker) bool {
		if v.WorkerState(w) != state.WorkerUp {
			return true
		}
		var points []partition.Point
		for _, p := range w.Profile {
			points = append(points, partition.Point{Batch: int(p.Batch), TokenNS: p.TokenNS})
		}
		curve, err := partition.NewCurve(points, int(w.SlotsOrMax()))
		if err != nil {
			return true // beyond what is planned: its trajectories stay
		}
		rows, workers = append(rows, w), append(workers, partition.Worker{Curve: curve})
		if prefill == nil || w.Prefill1kNS > prefill.Prefill1kNS {
			prefill = w
		}
		return true
	})
	return rows, workers, prefill
}
