package turns

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"rota/internal/sim"
)

// Policies of a replay, in the order of the paper.
var Policies = []string{"isolated", "pack", "spread", "spread+backfill"}

// ReplayParams say what is replayed.
type ReplayParams struct {
	Trace     TraceParams
	SetUp     SetUp
	JitterPPM int64
	// Slots of the ledger's horizon, a second each.
	Slots int64
}

// DefaultReplay has set-ups of the paper's length, overlapped. It is half of the paper's
// cluster, and hours and steps are an eighth: every turn is a decision of the state
// machine, and all of them together are to end in minutes.
func DefaultReplay() ReplayParams {
	t := DefaultTrace()
	t.GPUs, t.Compress = 1024, 8
	return ReplayParams{Trace: t, SetUp: SetUp{SetUpMax, true}, JitterPPM: 20_000, Slots: 1800}
}

// Layout is what a policy makes of the cluster for one model.
type Layout struct {
	Model *Model
	// Groups of nodes for training, and how many jobs may run on each: as many as the
	// GPUs for rollouts are for.
	Groups, Jobs int64
}

// GPUs returns how many the layout takes.
func (l *Layout) GPUs() int64 { return l.Groups * l.each() }

func (l *Layout) each() int64 { return l.Model.TrainGPUs + l.Jobs*l.Model.RolloutGPUs }

// together returns how many jobs of a model have their turns in one cycle, in slots, with
// a tenth left free.
func together(m *Model) int64 {
	held, period := (m.HeldNS()+second-1)/second, (m.CycleNS+second-1)/second
	return period * 9 / 10 / held
}

// Layouts divides a cluster among the models, so that the model with the fewest jobs at
// once, for its part of the work, has as many as can be. All policies have the same GPUs,
// and each divides them as suits it.
func Layouts(policy string, gpus int64) []Layout {
	out := make([]Layout, len(Models))
	for i := range Models {
		l := &out[i]
		l.Model, l.Jobs = &Models[i], 1
		if policy != "isolated" {
			l.Jobs = together(l.Model)
		}
	}
	best := int64(-1)
	counts := make([]int64, len(out))
	divide(out, len(out)-1, gpus, func() {
		least := int64(math.MaxInt64)
		for i := range out {
			least = min(least, out[i].suffices()*million/mixPPM[i])
		}
		if least > best {
			best = least
			for i := range out {
				counts[i] = out[i].Groups
			}
		}
	})
	for i, n := range counts {
		out[i].Groups = n
	}
	return out
}

// divide tries all numbers of groups of models up to one. The first model, whose groups
// are the smallest, has what is left.
func divide(out []Layout, model int, gpus int64, try func()) {
	l := &out[model]
	if model == 0 {
		l.Groups = gpus / l.each()
		try()
		return
	}
	for l.Groups = 0; l.Groups*l.each() <= gpus; l.Groups++ {
		divide(out, model-1, gpus-l.GPUs(), try)
	}
}

// suffices returns how many GPUs the jobs would have alone.
func (l *Layout) suffices() int64 { return l.Groups * l.Jobs * l.Model.GPUs() }

// Replayed is what became of a trace under one policy.
type Replayed struct {
	Policy  string
	Layouts []Layout
	// Models is, for each layout, until when its jobs took and by how much longer each.
	Models []ReplayedModel
	Jobs   int
	// MakespanNS is from the first arrival to the end of the last job.
	MakespanNS int64
	// DelayPPM is what each job waited for a place, as a part of its duration, ascending.
	DelayPPM []int64
	// SlowerPPM is by how much the jobs took longer than alone, all together.
	SlowerPPM int64
	// Backfilled is how many jobs began without a reservation.
	Backfilled int
	// StalledPPM is the part of the turns that waited for a set-up.
	StalledPPM int64
	// Entries is how many log entries there were.
	Entries int64
}

// ReplayedModel is what became of the jobs of one model.
type ReplayedModel struct{ MakespanNS, SlowerPPM int64 }

// Quantile returns the delay that so many ppm of the jobs have at most.
func (r *Replayed) Quantile(ppm int64) int64 {
	if len(r.DelayPPM) == 0 {
		return 0
	}
	return r.DelayPPM[int64(len(r.DelayPPM)-1)*ppm/million]
}

// Replay lets a policy work through a trace. Each model has its own part of the cluster,
// with a state machine of its own, so up to workers of them run at the same time.
func Replay(ctx context.Context, policy string, p ReplayParams, workers int) (*Replayed, error) {
	jobs := Generate(p.Trace)
	out := &Replayed{Policy: policy, Layouts: Layouts(policy, p.Trace.GPUs), Jobs: len(jobs)}
	parts := make([]*share, len(out.Layouts))
	free := make(chan struct{}, workers)
	var all sync.WaitGroup
	for i, l := range out.Layouts {
		if l.Groups == 0 {
			return nil, fmt.Errorf("%d GPUs are too few for a group of %s", p.Trace.GPUs, l.Model.Name)
		}
		parts[i] = newPart(policy, l, jobs, p)
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			parts[i].run(ctx)
		})
	}
	all.Wait()
	end, took, alone, granted, waited := int64(0), int64(0), int64(0), int64(0), int64(0)
	for _, x := range parts {
		if x.m.err != nil {
			return nil, fmt.Errorf("%s, %s: %w", policy, x.layout.Model.Name, x.m.err)
		}
		end = max(end, x.end)
		out.Models = append(out.Models, ReplayedModel{x.end - jobs[0].ArrivesNS, part(x.took/ms-x.alone/ms, x.alone/ms)})
		took += x.took / ms
		alone += x.alone / ms
		granted += x.m.granted
		waited += x.m.waited
		out.Backfilled += x.backfilled
		out.Entries += x.m.entries
		out.DelayPPM = append(out.DelayPPM, x.delays...)
	}
	slices.Sort(out.DelayPPM)
	out.MakespanNS = end - jobs[0].ArrivesNS
	out.SlowerPPM = part(took-alone, alone)
	out.StalledPPM = part(waited, granted)
	return out, nil
}

// share is the part of the cluster that one model has.
type share struct {
	m       *machine
	loop    *sim.Loop
	layout  Layout
	policy  string
	params  ReplayParams
	queue   []*run // that are not submitted, the oldest first
	asked   *run   // that is submitted and has no place
	live    int64  // that are submitted
	spare   []*run // that run without a reservation, the oldest first
	promote bool   // a reservation is free, for the oldest of spare
	left    int

	end, took, alone int64
	delays           []int64
	backfilled       int
}

// run is a job of the trace.
type run struct {
	*Job
	worker  *worker
	number  int
	tries   int
	started int64 // when it got its first place; -1: it has none
	backs   bool  // it runs without a reservation
}

func newPart(policy string, l Layout, jobs []Job, p ReplayParams) *share {
	loop := &sim.Loop{}
	number := map[string]uint32{"isolated": isolated, "pack": pack, "spread": spread, "spread+backfill": spread}[policy]
	c := cluster{policy: number, slots: p.Slots, groups: l.Groups, nodes: l.Model.Nodes()}
	x := &share{m: newMachine(loop, c, p.SetUp), loop: loop, layout: l, policy: policy, params: p}
	for i := range jobs {
		if jobs[i].Model != l.Model {
			continue
		}
		r := &run{Job: &jobs[i], number: i, started: -1}
		r.worker = &worker{
			m: x.m, model: l.Model, turns: 1, steps: r.Steps,
			draws: sim.Draws(p.Trace.Seed), luck: uint64(i), jitterPPM: p.JitterPPM,
		}
		r.worker.done = func() { x.done(r) }
		r.worker.moved = func() bool { return x.moved(r) }
		x.left++
		loop.At(r.ArrivesNS, func() {
			x.queue = append(x.queue, r)
			x.fill()
		})
	}
	return x
}

// run lets the jobs arrive and ends when all are done.
func (x *share) run(ctx context.Context) {
	const slice = 24 * hour
	for x.left > 0 && x.m.err == nil {
		if err := ctx.Err(); err != nil {
			x.m.fail(err)
			return
		}
		if x.loop.Now() > 100*366*24*hour {
			x.m.fail(fmt.Errorf("%d jobs did not end in a hundred years", x.left))
			return
		}
		x.loop.Run(x.loop.Now() + slice)
	}
}

// fill submits jobs as long as there is room for their rollouts. One at most waits for
// its place, so that the queue is in the order of arrival.
func (x *share) fill() {
	for len(x.queue) > 0 && x.asked == nil && !x.promote && x.live < x.layout.Groups*x.layout.Jobs {
		r := x.queue[0]
		x.queue = x.queue[1:]
		x.live++
		if x.submit(r) || x.m.err != nil {
			continue
		}
		if x.policy == "spread+backfill" {
			x.backfill(r)
			continue
		}
		x.asked = r
	}
}

// submit hands a job in with its cycle, and reports whether it has got a reservation.
func (x *share) submit(r *run) bool {
	r.tries++
	r.backs = false
	r.worker.name = fmt.Sprintf("j%d.%d", r.number, r.tries)
	return x.m.submit(r.worker.job(), func() { x.start(r) })
}

// backfill takes a job that has found no reservation back, and has it take what others
// leave.
func (x *share) backfill(r *run) {
	x.m.forget(r.worker.name)
	r.tries++
	r.backs = true
	if r.started < 0 {
		x.backfilled++
	}
	x.spare = append(x.spare, r)
	slices.SortFunc(x.spare, func(a, b *run) int { return a.number - b.number })
	r.worker.name = fmt.Sprintf("j%d.%d", r.number, r.tries)
	job := r.worker.job()
	job.Cycle, job.Backfill = nil, true
	x.m.submit(job, func() { x.start(r) })
}

// start is called when a job has a place.
func (x *share) start(r *run) {
	if x.asked == r {
		x.asked = nil
		defer x.fill()
	}
	if r.started < 0 {
		r.started = x.loop.Now()
		x.delays = append(x.delays, delayPPM(r.started-r.ArrivesNS, r.DurationNS()))
	}
	r.worker.begin()
}

// delayPPM is a wait as a part of a duration. Both may be months.
func delayPPM(wait, duration int64) int64 { return part(wait/ms, duration/ms) }

// done takes a job away that has ended.
func (x *share) done(r *run) {
	x.left--
	x.live--
	x.end = x.loop.Now()
	x.took += x.end - r.started
	x.alone += r.DurationNS()
	if r.backs {
		x.spare = slices.DeleteFunc(x.spare, func(s *run) bool { return s == r })
	} else {
		x.promote = len(x.spare) > 0
	}
	x.m.remove(r.worker.name)
	if len(x.spare) == 0 {
		x.promote = false
	}
	if x.left == 0 {
		x.loop.Halt()
		return
	}
	if x.promote && x.spare[0].worker.withdraw() {
		x.advance(x.spare[0])
		return
	}
	x.fill()
}

// moved is called between two steps of a job.
func (x *share) moved(r *run) bool {
	if !r.backs || !x.promote || x.spare[0] != r {
		return false
	}
	x.advance(r)
	return true
}

// advance has the oldest of those without a reservation take one that has become free: at
// once if it waits for a turn, which may not come on a full group, else when its step ends.
func (x *share) advance(r *run) {
	x.promote = false
	x.spare = x.spare[1:]
	x.m.remove(r.worker.name)
	if !x.submit(r) {
		x.backfill(r)
	}
	x.fill()
}
