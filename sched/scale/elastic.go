package scale

import "slices"

const (
	// DepthDefault is how many degrees the first remaining action may explore
	// (§4.2: "in practice, 2 or 3 is sufficient").
	DepthDefault = 2
	// LookAheadDefault is how many actions behind the candidates are looked at.
	LookAheadDefault = 32
	// behindMax bounds how many more are counted.
	behindMax = 1 << 31
	// lookAheadMax keeps sums of durations within 64 bits.
	lookAheadMax = 1 << 9
)

// Input is what one decision is about: a key resource, what of it is free, and
// the actions that use and need it (Algorithm 1, lines 4 and 5).
type Input struct {
	// Free is how many units are free. With a Topology, it is that which counts.
	Free int
	// Topology says which of them fit together; nil if any do.
	Topology Operator
	// Queue is who waits, first come first. All share the key resource.
	Queue []Demand
	// Candidates is how many of the queue can start together with their least
	// degrees, by every resource but this one. Whether they fit this one too is
	// looked at here.
	Candidates int
	// Must is how many of them start in any case, if they fit: one at least does.
	Must int
	// Behind is how many more wait behind those in Queue.
	Behind int
	// Running is in how many nanoseconds each of those that run will end, in any
	// order. One that has taken longer than expected counts as about to end.
	Running []int64
}

// Elastic decides how many of the candidates start now, and with how much
// (Algorithm 1). The zero value is ready. It is reused: after the first few calls
// it allocates nothing. It keeps nothing from one decision to the next but memory.
type Elastic struct {
	// Depth is Algorithm 2's depth; 0 means DepthDefault.
	Depth int
	// LookAhead bounds how many actions behind the candidates are looked at; 0
	// means LookAheadDefault, and less than 0 none. At most 512 are.
	LookAhead int

	arranger Arranger
	unknown  int64   // stands for unknown durations: the mean
	behind   int     // how many wait that are not looked at one by one
	least    []int64 // durations of the queue with the least degrees
	first    []int64 // durations that one has as the first that remains
	before   []int64 // durations of the candidates in ends
	ends     []int64 // when what runs and the candidates end, sorted
	slots    slots   // completion heap
	kept     []int32 // which degrees the candidates accepted last get
}

// Decide returns how many units each of those that start now gets: they are a
// prefix of the queue. The result is good until the next call.
//
// If any candidate fits, at least one starts.
func (e *Elastic) Decide(g Input) []int32 {
	elastic := e.start(&g)
	n := e.arranger.Len()
	e.keep()
	if !elastic { // Algorithm 1, line 6
		return e.dops(g.Queue)
	}
	e.sort(g.Running)
	objective := e.objective()
	for t := n - 1; t >= max(1, g.Must); t-- { // lines 9 to 12
		e.evict(g.Running)
		evicted := e.objective()
		if !evicted.less(objective) {
			break
		}
		objective = evicted
		e.keep() // line 13
	}
	return e.dops(g.Queue)
}

// start arranges all candidates, and reports whether any of them is elastic.
func (e *Elastic) start(g *Input) bool {
	candidates := max(0, min(g.Candidates, len(g.Queue), CandidatesMax))
	queue := g.Queue[:min(len(g.Queue), candidates+e.lookAhead())]
	e.read(queue)
	if g.Topology == nil {
		e.arranger.OnLine(g.Free, queue[:candidates], e.unknown)
	} else {
		e.arranger.On(g.Topology, queue[:candidates], e.unknown)
	}
	n := e.arranger.Len()
	reach := min(len(queue), n+e.lookAhead())
	e.behind = min(len(g.Queue)-reach+max(0, g.Behind), behindMax)
	e.least, e.first = e.least[:reach], e.first[:reach]
	for i := range queue[:n] {
		if queue[i].Elastic() {
			return true
		}
	}
	return false
}

func (e *Elastic) lookAhead() int {
	switch {
	case e.LookAhead == 0:
		return LookAheadDefault
	case e.LookAhead < 0:
		return 0
	}
	return min(e.LookAhead, lookAheadMax)
}

// read takes from the queue what the estimate needs of it: durations with the
// least degree and with the largest that the first remaining action may explore.
// What is unknown is the mean of what is known.
func (e *Elastic) read(queue []Demand) {
	e.unknown = mean(queue)
	depth := e.Depth
	if depth <= 0 {
		depth = DepthDefault
	}
	e.least, e.first = e.least[:0], e.first[:0]
	for i := range queue {
		d := &queue[i]
		explored := min(depth, d.choices()) - 1
		e.least = append(e.least, d.duration(0, e.unknown))
		e.first = append(e.first, d.duration(explored, e.unknown))
	}
}

// mean returns the mean known duration with the least degree; 0 if none is known.
func mean(queue []Demand) int64 {
	var sum, known int64
	for i := range queue {
		if d := &queue[i]; len(d.ns) > 0 {
			sum += d.ns[0]
			known++
		}
	}
	if known == 0 {
		return 0
	}
	return sum / known
}

// keep remembers what the candidates get that are left.
func (e *Elastic) keep() {
	e.kept = append(e.kept[:0], e.arranger.choice...)
}

// dops turns what was kept into units.
func (e *Elastic) dops(queue []Demand) []int32 {
	for i, c := range e.kept {
		e.kept[i] = queue[i].dops.At(int(c))
	}
	return e.kept
}

// evict takes the last candidate out, and brings the sorted ends up to date.
func (e *Elastic) evict(running []int64) {
	a := &e.arranger
	a.Evict()
	current := a.current
	before := e.before[:len(current)]
	e.ends = remove(e.ends, e.before[len(current)])
	e.before = before
	changed := 0
	for i, is := range current {
		was := before[i]
		if is == was {
			continue
		}
		if changed++; changed > len(current)/8+4 {
			e.sort(running)
			return
		}
		replace(e.ends, was, is)
		before[i] = is
	}
}

// sort puts together when everything ends that runs or is about to.
func (e *Elastic) sort(running []int64) {
	e.before = append(e.before[:0], e.arranger.current...)
	e.ends = e.ends[:0]
	for _, end := range running {
		e.ends = append(e.ends, min(max(end, 0), DurationMax))
	}
	e.ends = append(e.ends, e.before...)
	slices.Sort(e.ends)
}

// remove takes one value out of a sorted slice that has it.
func remove(sorted []int64, v int64) []int64 {
	i, _ := slices.BinarySearch(sorted, v)
	copy(sorted[i:], sorted[i+1:])
	return sorted[:len(sorted)-1]
}

// replace puts one value in the place of another in a sorted slice.
func replace(sorted []int64, was, is int64) {
	from, _ := slices.BinarySearch(sorted, was)
	to, _ := slices.BinarySearch(sorted, is)
	if to <= from {
		copy(sorted[to+1:from+1], sorted[to:from])
		sorted[to] = is
		return
	}
	copy(sorted[from:to-1], sorted[from+1:to])
	sorted[to-1] = is
}
