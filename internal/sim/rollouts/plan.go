package rollouts

import (
	"cmp"
	"slices"

	"rota/internal/engine/model"
	"rota/sched/place/partition"
	"rota/sched/scale/degrees"
)

// plan is what rota has decided about a step.
type plan struct {
	planner partition.Planner
	workers []partition.Worker
	mover   *mover
}

// begin divides the GPUs into workers, and gives trajectories to them if the policy does so
// before they start.
func (w *world) begin() error {
	degrees, err := w.degrees()
	if err != nil {
		return err
	}
	for i, degree := range degrees {
		o, err := w.newWorker(i, degree)
		if err != nil {
			return err
		}
		w.workers = append(w.workers, o)
	}
	if w.fleet != nil {
		return w.assignAll()
	}
	if w.policy.routing != planned {
		return nil
	}
	w.plan = &plan{mover: newMover(w)}
	return w.place()
}

// homogeneous are the workers of the baselines.
func (w *world) homogeneous() ([]int64, error) {
	m, err := modelOf(w.setup.Model)
	if err != nil {
		return nil, err
	}
	if w.fleet != nil {
		return slices.Repeat([]int64{m.degree}, len(w.fleet.kinds)), nil
	}
	degree := cmp.Or(w.setup.Degree, m.degree)
	return slices.Repeat([]int64{degree}, int(w.setup.gpus()/degree)), nil
}

// byLength are the trajectories that have not ended, those that are predicted to generate most
// first.
func (w *world) byLength() []*run {
	out := make([]*run, 0, w.open)
	for _, r := range w.runs {
		if !r.ended {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b *run) int { return cmp.Compare(b.predicted, a.predicted) })
	return out
}

// curve is what is measured of workers with a profile that serve this task, at short contexts:
// each token of a batch comes with so many tokens of prompts, which are computed in the same step.
func (w *world) curve(p *model.Profile) (partition.Curve, error) {
	points := make([]partition.Point, len(p.Batch))
	for i, at := range p.Batch {
		prefill := at.Batch * w.learned.promptPerMille() / 1000 * p.PrefillTokenPS
		points[i] = partition.Point{Batch: int(at.Batch), TokenNS: max(1, (at.StepPS+prefill)/1000)}
	}
	return partition.NewCurve(points, int(w.setup.Slots))
}

// contextNS is what 1,000 tokens of context on a worker add to the time for a token of each of its
// trajectories: they are read, and they fill the memory. As long as all contexts fit, the second
// part is too much; beyond that, trajectories take turns, and it is what a turn takes.
func (w *world) contextNS(p *model.Profile) int64 {
	return p.KVReadPS + p.Batch[0].StepPS/p.KVTokens
}

// describe makes the input of package partition.
func (w *world) describe(sorted []*run) partition.Trajectories {
	lengths, contexts := make([]int64, len(sorted)), make([]int64, len(sorted))
	for i, r := range sorted {
		lengths[i], contexts[i] = r.predicted, r.context+r.predicted/2
	}
	return partition.Trajectories{Lengths: lengths, Contexts: contexts}
}

// place plans the placement of all trajectories.
func (w *world) place() error {
	for _, o := range w.workers {
		curve, err := w.curve(o.profile)
		if err != nil {
			return err
		}
		w.plan.workers = append(w.plan.workers, partition.Worker{Curve: curve, ContextNS: w.contextNS(o.profile)})
	}
	sorted := w.byLength()
	placed, err := w.plan.planner.Drain(w.describe(sorted), w.plan.workers)
	if err != nil {
		return err
	}
	for i, r := range sorted {
		r.target = placed.Workers[i]
	}
	return nil
}

// consider moves trajectories whose tools run now and that belong elsewhere, since predictions
// and trajectories have changed.
func (w *world) consider() error {
	if w.plan == nil || !w.policy.migrate || w.open == 0 {
		return nil
	}
	sorted := w.byLength()
	running, movable := make([]partition.Running, len(sorted)), 0
	for i, r := range sorted {
		running[i] = partition.Running{Home: r.target, Movable: r.tool && !r.moving && r.worker == r.target, MoveNS: w.moveNS(r)}
		if running[i].Movable {
			movable++
		}
	}
	if movable == 0 {
		return nil
	}
	moves, err := w.plan.planner.Rebalance(w.describe(sorted), running, w.plan.workers, movable)
	if err != nil {
		return err
	}
	for _, m := range moves {
		r := sorted[m.Trajectory]
		r.target = m.To
		if w.setup.Transfer > 0 {
			w.plan.mover.ask(r, m.To)
		}
	}
	return nil
}

// moveNS is what a move costs a trajectory: the copy of its KV cache, or its computation.
func (w *world) moveNS(r *run) int64 {
	p := w.workers[max(r.target, 0)].profile
	if w.setup.Transfer == 0 {
		return p.PrefillNS(r.context-r.fresh, 0)
	}
	return p.TransferTimeNS(r.context - r.fresh)
}

// degrees are those of the workers of a step, the largest first.
func (w *world) degrees() ([]int64, error) {
	lengths := w.expected()
	if !w.policy.degrees || lengths == nil {
		return w.homogeneous()
	}
	options, err := w.options()
	if err != nil {
		return nil, err
	}
	t := partition.Trajectories{Lengths: lengths, Contexts: make([]int64, len(lengths))}
	for i, length := range lengths {
		t.Contexts[i] = w.runs[0].Prompt + length/2
	}
	doubt := degrees.Doubt
	if w.policy.knowledge == oracle {
		doubt = 0
	}
	chosen, err := new(degrees.Allocator).Choose(t, options, int(w.setup.gpus()), doubt)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, o := range chosen.Options {
		out = append(out, int64(options[o].GPUs))
	}
	return out, nil
}

// options are the degrees that workers can have: those whose memory holds the longest context.
func (w *world) options() (out []degrees.Option, err error) {
	for degree := int64(1); degree <= degreesMax; degree *= 2 {
		p, err := profileOf(w.setup.Model, degree)
		if err != nil {
			return nil, err
		}
		if p.KVTokens < traceContextMax {
			continue
		}
		curve, err := w.curve(p)
		if err != nil {
			return nil, err
		}
		out = append(out, degrees.Option{GPUs: int(degree), Worker: partition.Worker{Curve: curve, ContextNS: w.contextNS(p)}})
	}
	return out, nil
}

// expected are the lengths that a step is thought to have, the longest first: those of the step
// before. In the first step only their mean is predicted, and they are taken to be spread as
// degrees.Spread says. nil: nothing is known.
func (w *world) expected() []int64 {
	if w.policy.knowledge == oracle {
		out := make([]int64, 0, len(w.runs))
		for _, r := range w.byLength() {
			out = append(out, r.predicted)
		}
		return out
	}
	if w.policy.knowledge == nothing {
		return nil
	}
	if w.learned.outputs == nil {
		return w.unlearned()
	}
	return w.learned.outputs
}

// unlearned are the lengths of a step before which none was seen.
func (w *world) unlearned() []int64 {
	sum := int64(0)
	for _, r := range w.runs {
		sum += r.predicted
	}
	return degrees.Spread(len(w.runs), sum/max(1, int64(len(w.runs))))
}
