package evaluate

import (
	"cmp"
	"slices"

	"rota/fsm/state"
)

// equal is no system that could be built, and says what could be hoped for: all
// nodes are one, and at every moment everybody has the same number of cores, in
// fractions, resized at no cost. Nobody waits, except for a sandbox to open.
//
// With an age it says what could be hoped for from shared cores: those that are older have an eighth
// of the others' weight, so that short ones hardly wait for them and they do not stand still.
type equal struct {
	w     *world
	age   int64       // from which on one counts for less; 0: all count the same
	cores uint64      // in parts
	jobs  []*equalJob // those who can use least come first
	at    int64       // when progress was last counted
	turn  uint64      // of the newest event; older ones do nothing
}

// youngWeight is the weight of those that are not old, which have 1.
const youngWeight = 8

type equalJob struct {
	c     *call
	limit uint64 // what it can use, in parts of a core
	share uint64 // what it has
	speed uint64 // how much faster than on one core, in parts
	left  uint64 // of its time on one core, in parts of a nanosecond
	used  uint64 // core nanoseconds
}

func newEqual(w *world, age int64) *equal {
	return &equal{w: w, age: age, cores: uint64(w.in.Params().Cluster.Cores()) * part}
}

// begin opens the sandbox of a rollout. An action that is no trajectory's has none.
func (e *equal) begin(r *rollout) {
	if !r.Alone {
		r.ready = e.w.loop.Now() + e.w.in.Latency.Open
	}
}

func (e *equal) end(*rollout) {}

// submit has a call compute at once, but for its sandbox that opens.
func (e *equal) submit(c *call) {
	if d := e.w.opening(c, e.w.loop.Now()); d > 0 {
		e.w.loop.After(d, func() { e.compute(c) })
		return
	}
	e.compute(c)
}

func (e *equal) compute(c *call) {
	c.started = e.w.loop.Now()
	e.count()
	j := &equalJob{c: c, limit: uint64(c.Cost[0].Max) * part, left: uint64(min(c.Single, workMax)) * part}
	i, _ := slices.BinarySearchFunc(e.jobs, j.limit+1, func(k *equalJob, limit uint64) int { return int(k.limit) - int(limit) })
	e.jobs = slices.Insert(e.jobs, i, j)
	e.divide()
}

// count adds up what everybody has done since the last time.
func (e *equal) count() {
	passed := uint64(e.w.loop.Now() - e.at)
	for _, j := range e.jobs {
		j.left -= min(j.left, j.speed*passed)
		j.used += state.MulDiv(j.share, passed, part)
	}
	e.at = e.w.loop.Now()
}

// weight is what a job counts for.
func (e *equal) weight(j *equalJob) uint64 {
	if e.age == 0 || e.at-j.c.started >= e.age {
		return 1
	}
	return youngWeight
}

// inOrder returns the jobs, those first that can use least of their weight, and all weights.
func (e *equal) inOrder() (jobs []*equalJob, weights uint64) {
	jobs = e.jobs
	if e.age > 0 {
		jobs = slices.Clone(jobs)
		slices.SortStableFunc(jobs, func(a, b *equalJob) int { return cmp.Compare(a.limit/e.weight(a), b.limit/e.weight(b)) })
	}
	for _, j := range jobs {
		weights += e.weight(j)
	}
	return jobs, weights
}

// divide gives everybody the same, or by weight, and what one cannot use to the others. It
// plans the next end, or the next time that one gets old.
func (e *equal) divide() {
	jobs, weights := e.inOrder()
	left, next := e.cores, int64(-1)
	for _, j := range jobs {
		weight := e.weight(j)
		j.share = max(1, min(j.limit, left*weight/weights))
		weights -= weight
		left -= min(left, j.share)
		if until := j.c.started + e.age - e.at; until > 0 && (next < 0 || until < next) {
			next = until
		}
		j.speed = speed(j.share, uint64(j.c.Curve.SerialPPM))
		if in := int64((j.left + j.speed - 1) / j.speed); next < 0 || in < next {
			next = in
		}
	}
	if next < 0 {
		return
	}
	e.turn++
	turn := e.turn
	e.w.loop.After(next, func() {
		if e.turn == turn {
			e.finish()
		}
	})
}

// speed is Amdahl's law for fractions of cores: below one core it is what there
// is of it.
func speed(share, serial uint64) uint64 {
	if share <= part {
		return share
	}
	return max(1, part*million/(serial+(million-serial)*part/share))
}

func (e *equal) finish() {
	e.count()
	var done []*equalJob
	e.jobs = slices.DeleteFunc(e.jobs, func(j *equalJob) bool {
		if j.left == 0 {
			done = append(done, j)
		}
		return j.left == 0
	})
	e.divide()
	for _, j := range done {
		j.c.exec += e.w.loop.Now() - j.c.started
		j.c.busy += int64(j.used)
		e.w.ended(j.c, true)
	}
}

func (e *equal) capacity() Capacity { return Capacity{"cpu", int64(e.cores / part)} }
