package evaluate

import (
	"container/heap"

	"rota/internal/sim"
)

// share divides the cores of a node among jobs as the kernel does among cgroups
// of the same weight: to each the same, but to none more than it can use, and
// what one leaves is the others'.
//
// Jobs that can use the same number of cores progress alike, so a group of them
// has one count of what each was served, and the job with the least left is
// always the first of a heap: an event costs O(log n), however many share. Counts
// wrap around; differences do not.
type share struct {
	loop   *sim.Loop
	cores  uint64 // in parts of a core
	groups []*shareGroup
	at     int64 // when what was served was last counted
	armed  int64 // the earliest time at which there is an event; 0: none
	seq    uint64
}

// part is the unit of rates: 65,536 are a core. Rates are rounded down.
const part = 1 << 16

// workMax is what a job may take at most, in nanoseconds of one core: 19 hours.
const workMax = 1 << 46

type shareGroup struct {
	limit  uint64 // what each can use, in parts of a core
	rate   uint64 // what each gets
	served uint64 // what each got since the beginning, in parts times nanoseconds
	jobs   shareHeap
}

type shareJob struct {
	finish uint64 // in terms of served
	seq    uint64
	done   func()
}

func newShare(loop *sim.Loop, cores int64) *share {
	return &share{loop: loop, cores: uint64(cores) * part}
}

// add begins a job that can use so many thousandths of a core and needs so many
// nanoseconds of one core.
func (s *share) add(milli, work int64, done func()) {
	s.count()
	g := s.group(max(1, uint64(milli)*part/1000))
	s.seq++
	heap.Push(&g.jobs, shareJob{g.served + uint64(min(work, workMax))*part, s.seq, done})
	s.divide()
	s.arm()
}

// group returns the group of a limit; groups ascend.
func (s *share) group(limit uint64) *shareGroup {
	i := 0
	for i < len(s.groups) && s.groups[i].limit < limit {
		i++
	}
	if i == len(s.groups) || s.groups[i].limit != limit {
		s.groups = append(s.groups, nil)
		copy(s.groups[i+1:], s.groups[i:])
		s.groups[i] = &shareGroup{limit: limit}
	}
	return s.groups[i]
}

// count adds up what was served until now.
func (s *share) count() {
	now := s.loop.Now()
	for _, g := range s.groups {
		g.served += g.rate * uint64(now-s.at)
	}
	s.at = now
}

// divide sets the rates. Those who can use least come first: what they leave of
// an equal share is for the others.
func (s *share) divide() {
	left, jobs := s.cores, uint64(0)
	for _, g := range s.groups {
		jobs += uint64(len(g.jobs))
	}
	for _, g := range s.groups {
		n := uint64(len(g.jobs))
		if n == 0 {
			g.rate = 0
			continue
		}
		g.rate = max(1, min(g.limit, left/jobs))
		left -= min(left, g.rate*n)
		jobs -= n
	}
}

// arm sees to it that there is an event when the next job ends.
func (s *share) arm() {
	next := int64(0)
	for _, g := range s.groups {
		if len(g.jobs) == 0 {
			continue
		}
		left := int64(g.jobs[0].finish - g.served)
		at := s.at
		if left > 0 {
			at += (left + int64(g.rate) - 1) / int64(g.rate)
		}
		if next == 0 || at < next {
			next = at
		}
	}
	if next == 0 || s.armed != 0 && s.armed <= next {
		return
	}
	s.armed = next
	s.loop.At(next, func() { s.fire(next) })
}

// fire ends the jobs that have got all they need. An event that has been
// overtaken by an earlier one does nothing.
func (s *share) fire(at int64) {
	if s.armed != at {
		return
	}
	s.armed = 0
	s.count()
	var done []func()
	for _, g := range s.groups {
		for len(g.jobs) > 0 && int64(g.jobs[0].finish-g.served) <= 0 {
			done = append(done, heap.Pop(&g.jobs).(shareJob).done)
		}
	}
	s.divide()
	s.arm()
	for _, f := range done {
		f()
	}
}

// shareHeap has the job first that ends first.
type shareHeap []shareJob

func (h shareHeap) Len() int { return len(h) }
func (h shareHeap) Less(i, j int) bool {
	d := int64(h[i].finish - h[j].finish)
	return d < 0 || d == 0 && h[i].seq < h[j].seq
}
func (h shareHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *shareHeap) Push(x any)   { *h = append(*h, x.(shareJob)) }
func (h *shareHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = shareJob{}
	*h = old[:len(old)-1]
	return last
}
