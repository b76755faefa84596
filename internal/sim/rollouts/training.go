package rollouts

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Training compares a loop that generates and trains in turn with one that generates while it
// trains (RollArt §5.3). Times are nanoseconds.
type Training struct {
	// SyncNS and AsyncNS are mean times of a step.
	SyncNS  int64 `json:"sync_step_ns"`
	AsyncNS int64 `json:"async_step_ns"`
	// RolloutNS is the part of a synchronous step in which trajectories run, TrainNS that in which all
	// GPUs train.
	RolloutNS int64 `json:"rollout_ns"`
	TrainNS   int64 `json:"train_ns"`
	// Aborted is how many trajectories of the asynchronous loop became too old, of Begun.
	Aborted int64 `json:"aborted"`
	Begun   int64 `json:"begun"`
}

// trainPercent is the part of rollouts and training that training takes with all GPUs: Heddle §1
// says that generation takes over 80 %.
const trainPercent = 20

// trainer is a loop of training in a world.
type trainer struct {
	w              *world
	bound          int64 // versions; 0: synchronous
	trainNS        int64 // with the GPUs that it has
	groups         int64 // of a step
	begun, waiting int64 // groups that were begun, and that are complete and wait for training
	taken, version int64 // groups that training has taken, and steps that it has done
	versions       []int64
	training       bool
	ends           []int64 // of steps
	rollout        int64   // time in which nothing was trained, of a synchronous loop
	idle           int64   // since when nothing is trained
	steps          int64
	dropped        int64
}

// Loop says what the asynchronous loop is.
type Loop struct {
	// Bound is the number of versions after which a trajectory is too old.
	Bound int64
	// Trainers is how many workers' GPUs train. Training with so many times fewer GPUs is taken to
	// last as many times longer.
	Trainers int64
}

// Train compares the two loops with a policy that routes each request by itself.
func Train(ctx context.Context, s Setup, p Policy, l Loop) (Training, error) {
	switch {
	case p.routing == planned:
		return Training{}, fmt.Errorf("%w: policy %s plans whole steps; take one of %v", ErrSetup, p.Name, Baselines())
	case l.Trainers < 1 || l.Trainers >= s.Workers:
		return Training{}, fmt.Errorf("%w: of %d workers, 1 to %d can be trainers", ErrSetup, s.Workers, s.Workers-1)
	case l.Bound < 1 || l.Bound > 16:
		return Training{}, fmt.Errorf("%w: the bound must be from 1 to 16 versions", ErrSetup)
	}
	if err := s.Check(); err != nil {
		return Training{}, err
	}
	// How long rollouts take alone says how long training takes.
	alone, err := train(ctx, s, p, 0, 0)
	if err != nil {
		return Training{}, err
	}
	out := Training{RolloutNS: alone.rollout / alone.steps}
	out.TrainNS = out.RolloutNS * trainPercent / (100 - trainPercent)
	sync, err := train(ctx, s, p, 0, out.TrainNS)
	if err != nil {
		return Training{}, err
	}
	fewer := s
	fewer.Workers -= l.Trainers
	fewer.Batch = s.Batch * s.Workers / fewer.Workers // about as many trajectories
	async, err := train(ctx, fewer, p, l.Bound, out.TrainNS*s.Workers/l.Trainers)
	if err != nil {
		return Training{}, err
	}
	out.SyncNS, out.AsyncNS = sync.mean(), async.mean()
	out.Aborted, out.Begun = async.dropped*s.Group, async.begun*s.Group
	return out, nil
}

// mean is the mean time of the steps but the first, in which nothing was begun before.
func (t *trainer) mean() int64 {
	n := int64(len(t.ends))
	return (t.ends[n-1] - t.ends[0]) / max(1, n-1)
}

// train runs a loop for the steps of a setup, and one before them.
func train(ctx context.Context, s Setup, p Policy, bound, trainNS int64) (*trainer, error) {
	learned := newLearner(&s)
	w := &world{ctx: ctx, setup: &s, policy: &p, learned: learned, result: &StepResult{}}
	t := &trainer{w: w, bound: bound, trainNS: trainNS, groups: s.trajectories() / s.Group, steps: s.Steps + 1}
	w.ended = t.completed
	for n := range t.steps + 2*bound + 1 {
		t.add(s.step(n), int(n*t.groups))
	}
	learned.begin(len(w.siblings))
	if err := w.begin(); err != nil {
		return nil, err
	}
	t.fill()
	w.loop.Run(math.MaxInt64 / 2)
	if w.err == nil && int64(len(t.ends)) < t.steps {
		w.err = fmt.Errorf("the loop ends after %d of %d steps: all trajectories were used", len(t.ends), t.steps)
	}
	return t, w.err
}

// add makes trajectories known that begin later.
func (t *trainer) add(all []Trajectory, group int) {
	w := t.w
	for i := range all {
		all[i].Group += group
		w.runs = append(w.runs, &run{Trajectory: &all[i], id: len(w.runs), context: all[i].Prompt, fresh: all[i].Prompt, worker: -1, target: -1})
	}
	for range t.groups {
		w.siblings, w.counted = append(w.siblings, -1), append(w.counted, 0)
	}
	w.open += len(all)
}

// fill begins as many groups as the bound lets: those of a step, and of as many more as versions.
func (t *trainer) fill() {
	w := t.w
	size := int64(len(w.runs)) / int64(len(w.counted))
	for t.begun-t.dropped < t.taken+(1+t.bound)*t.groups && t.begun < int64(len(w.counted)) {
		t.versions = append(t.versions, t.version)
		for _, r := range w.runs[t.begun*size : (t.begun+1)*size] {
			w.predict(r)
			w.request(r)
		}
		t.begun++
	}
}

// completed is told that a trajectory has ended.
func (t *trainer) completed(r *run) {
	if t.w.counted[r.Group] == t.w.setup.Group {
		t.waiting++
		t.next()
	}
}

// next begins to train as soon as there is a batch.
func (t *trainer) next() {
	if t.training || t.waiting < t.groups {
		return
	}
	w := t.w
	t.training = true
	t.rollout += w.loop.Now() - t.idle
	t.waiting -= t.groups
	if t.bound > 0 {
		t.taken += t.groups
		t.fill()
	}
	w.loop.After(t.trainNS, t.update)
}

// update gives the weights of a new version to all workers.
func (t *trainer) update() {
	w := t.w
	for _, o := range w.workers {
		if err := o.engine.UpdateWeights(w.loop.Now(), uint64(t.version+1), true); err != nil {
			w.fail(err)
			return
		}
		o.poke()
	}
	w.loop.After(w.workers[0].profile.UpdateNS, t.updated)
}

func (t *trainer) updated() {
	w := t.w
	t.version++
	t.ends = append(t.ends, w.loop.Now())
	if t.version == t.steps {
		w.loop.Halt()
		return
	}
	t.training, t.idle = false, w.loop.Now()
	if t.bound == 0 {
		t.taken += t.groups
	}
	t.expire()
	t.fill()
	t.next()
}

// expire aborts groups that began too many versions ago and are not complete: what they make
// would never be trained with.
func (t *trainer) expire() {
	w := t.w
	for g, version := range t.versions {
		if t.version-version <= t.bound || w.counted[g] >= w.setup.Group {
			continue
		}
		w.counted[g] = w.setup.Group // none of it counts any more
		t.dropped++
		for _, r := range w.runs {
			if r.Group == g && !r.ended {
				w.abort(r)
			}
		}
	}
}

// Trained is what Train found with one setup, for each seed.
type Trained struct {
	At    []string   `json:"at,omitempty"`
	Seeds []Training `json:"seeds"`
	// Ratio is how much longer a synchronous step takes.
	Ratio Range `json:"ratio"`
}

// CompareTraining compares the loops with all setups of a sweep, under the only policy of the
// options. The same setup and options give the same result.
func CompareTraining(ctx context.Context, s Setup, l Loop, o Options) ([]*Trained, error) {
	chosen, err := Find(o.Policies)
	if err != nil {
		return nil, err
	}
	if len(chosen) != 1 || o.Seeds < 1 || o.Seeds > seedsMax {
		return nil, fmt.Errorf("%w: give one policy, and 1 to %d seeds", ErrSetup, seedsMax)
	}
	all, err := points(s, o.Axes)
	if err != nil {
		return nil, err
	}
	out := make([]*Trained, 0, len(all))
	for _, p := range all {
		of := &Trained{At: p.At}
		var ratios []float64
		for seed := range o.Seeds {
			setup := p.setup
			setup.Seed += uint64(seed)
			r, err := Train(ctx, setup, chosen[0], l)
			if err != nil {
				return nil, err
			}
			of.Seeds, ratios = append(of.Seeds, r), append(ratios, float64(r.SyncNS)/float64(r.AsyncNS))
		}
		of.Ratio = rangeOf(ratios)
		out = append(out, of)
	}
	return out, nil
}

// Median is the median of a figure over the seeds, the smaller of two.
func (t *Trained) Median(figure func(r *Training) int64) int64 {
	v := make([]int64, len(t.Seeds))
	for i := range t.Seeds {
		v[i] = figure(&t.Seeds[i])
	}
	slices.Sort(v)
	return v[(len(v)-1)/2]
}
