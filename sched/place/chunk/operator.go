package chunk

import "math/bits"

// TasksMax is for how many tasks there can be an operator. It keeps the number of
// states from overflowing: no count is above the number of tasks.
const TasksMax = 1 << 14

// Degrees are the fewest and the most GPUs that a task can use.
type Degrees struct{ Least, Most int }

// Operator is the DP operator over chunks (ARL-Tangram appendix B, Algorithm 4).
// A state is how many free chunks of each level there are, as one number in a
// mixed radix; Prev is what a task leaves of it.
//
// A DP over it reads: the best for the first i tasks in state s is the least over
// k of the duration of task i on k GPUs and the best for the first i-1 tasks in
// state Prev(s, k), where the best for no task is zero in every state. In Full
// this answers every prefix of the tasks at once.
//
// The order in which tasks are served does not matter: the state that is left
// depends on how many chunks of each level were taken only.
type Operator struct {
	radix  [Levels]int // most chunks of the level there can be, plus one
	stride [Levels]int
	// step is what a state changes by when a chunk of the first level is taken
	// from one of the second.
	step   [Levels][Levels]int
	has    []uint8 // of each state, which levels have a free chunk, a bit each
	full   Counts
	hidden int
}

// NewOperator returns an operator for tasks on the free chunks.
//
// Chunks that the tasks cannot use are left out of the states, which changes no
// answer. If there are still more states than the limit, chunks are hidden, those
// first that save most states for their GPUs, but never so many that tasks that
// fit at their least no longer do: then an arrangement may be worse than the best,
// and is still possible. False if that does not suffice, or if there are more than
// TasksMax: bring fewer tasks.
func NewOperator(free Counts, tasks []Degrees, limit int) (*Operator, bool) {
	if len(tasks) > TasksMax {
		return nil, false
	}
	touched := touches(tasks)
	o := &Operator{full: clip(free, tasks, touched)}
	before := o.full.Units()
	for o.measure(touched) > limit {
		if !o.hide(least(tasks), touched) {
			return nil, false
		}
	}
	o.hidden = before - o.full.Units()
	o.tabulate()
	return o, true
}

// States returns how many states there are: each is at least 0 and less than
// that. Not all can be reached.
func (o *Operator) States() int { return len(o.has) }

// Full returns the state in which no task has been served.
func (o *Operator) Full() int { return o.Encode(o.full) }

// Hidden returns how many GPUs the tasks could use and are not told of, to stay
// within the limit.
func (o *Operator) Hidden() int { return o.hidden }

// Prev returns the state that is left of one when a task takes so many GPUs: one
// chunk, from the smallest free one that suffices. False if there is none, or if
// no task was said to use so few or so many.
func (o *Operator) Prev(state, units int) (int, bool) {
	l, ok := LevelFor(units)
	if !ok || state < 0 || state >= len(o.has) {
		return 0, false
	}
	m := o.has[state] >> l
	if m == 0 {
		return 0, false
	}
	b := l + Level(bits.TrailingZeros8(m))
	if b > l && o.radix[l] == 1 {
		return 0, false // no task takes so few: there is no place for what is left
	}
	return state + o.step[l][b], true
}

// Encode returns the state with these counts, none of which may be above that of
// the full state, or one where that is zero.
func (o *Operator) Encode(n Counts) int {
	state := 0
	for l := range n {
		state += n[l] * o.stride[l]
	}
	return state
}

// Decode returns the counts of a state.
func (o *Operator) Decode(state int) (n Counts) {
	for l := range n {
		n[l] = state / o.stride[l] % o.radix[l]
	}
	return n
}

// touches returns how many tasks can take a chunk of each level, or a part of it.
func touches(tasks []Degrees) (n Counts) {
	for _, t := range tasks {
		if a, ok := LevelFor(t.Least); ok {
			for l := a; l < Levels; l++ {
				n[l]++
			}
		}
	}
	return n
}

// clip leaves out what the tasks cannot use: chunks above the most that all of
// them together can take, and chunks of a level above one for each task that can
// touch it, since each takes a chunk or part of one.
func clip(free Counts, tasks []Degrees, touched Counts) Counts {
	slots, most := free.slots(), most(tasks).slots()
	for l := range slots {
		slots[l] = min(slots[l], most[l])
	}
	n := fromSlots(slots)
	for l := range n {
		n[l] = min(n[l], touched[l])
	}
	return n
}

// most and least return the demand of the tasks at their most and at their least.
func most(tasks []Degrees) (n Counts) {
	for _, t := range tasks {
		if l, ok := LevelFor(min(max(t.Least, t.Most), UnitsMax)); ok {
			n[l]++
		}
	}
	return n
}

func least(tasks []Degrees) (n Counts) {
	for _, t := range tasks {
		if l, ok := LevelFor(t.Least); ok {
			n[l]++
		}
	}
	return n
}

// measure sets the radices and returns how many states they make.
//
// A chunk is split only when there is none of the levels below it that would do,
// and leaves one of each. So there are never more of a level than at first, or
// one: that is what keeps the states few.
func (o *Operator) measure(touched Counts) int {
	states, above := 1, false
	for l := Levels - 1; l >= 0; l-- {
		most := o.full[l]
		if most == 0 && above && touched[l] > 0 {
			most = 1
		}
		above = above || most > 0
		o.radix[l] = most + 1
		states *= o.radix[l]
	}
	return states
}

// hide takes away the chunk that saves most states for its GPUs and without which
// the least demand fits if it did before. False if there is none.
func (o *Operator) hide(demand, touched Counts) bool {
	fits, states, best := o.full.Fits(demand), o.measure(touched), -1
	for l, n := range o.full {
		if n == 0 || best >= 0 && (n+1)<<l >= (o.full[best]+1)<<best {
			continue
		}
		less := Operator{full: o.full}
		less.full[l]--
		if less.measure(touched) < states && (!fits || less.full.Fits(demand)) {
			best = l
		}
	}
	if best < 0 {
		return false
	}
	o.full[best]--
	return true
}

// tabulate fills in what Prev reads.
func (o *Operator) tabulate() {
	states := 1
	for l := range o.radix {
		o.stride[l] = states
		states *= o.radix[l]
	}
	for l := range o.step {
		for b := l; b < Levels; b++ {
			o.step[l][b] = o.Encode(Counts{}.split(Level(l), Level(b)))
		}
	}
	o.has = make([]uint8, states)
	var n Counts
	var has uint8
	for s := range o.has {
		o.has[s] = has
		for l := range n { // count one further
			if n[l]++; n[l] < o.radix[l] {
				has |= 1 << l
				break
			}
			n[l], has = 0, has&^(1<<l)
		}
	}
}
