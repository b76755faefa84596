package evaluate

import (
	"slices"

	"rota/fsm/state"
)

// equal is no system that could be built, and says what could be hoped for: all
// nodes are one, and at every moment everybody has the same number of cores, in
// fractions, resized at no cost. Nobody waits.
type equal struct {
	w     *world
	cores uint64      // in parts
	jobs  []*equalJob // those who can use least come first
	at    int64       // when progress was last counted
	turn  uint64      // of the newest event; older ones do nothing
}

type equalJob struct {
	c     *call
	limit uint64 // what it can use, in parts of a core
	share uint64 // what it has
	speed uint64 // how much faster than on one core, in parts
	left  uint64 // of its time on one core, in parts of a nanosecond
	used  uint64 // core nanoseconds
}

func newEqual(w *world) *equal {
	return &equal{w: w, cores: uint64(w.in.Params().Cluster.Cores()) * part}
}

func (e *equal) begin(*rollout) {}
func (e *equal) end(*rollout)   {}

func (e *equal) submit(c *call) {
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

// divide gives everybody the same, and what one cannot use to the others. It
// plans the next end.
func (e *equal) divide() {
	left, next := e.cores, int64(-1)
	for i, j := range e.jobs {
		j.share = max(1, min(j.limit, left/uint64(len(e.jobs)-i)))
		left -= min(left, j.share)
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
