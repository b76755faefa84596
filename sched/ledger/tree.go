package ledger

import "math"

// tree keeps a number for each slot, with range add and range minimum in
// logarithmic time. Nothing is pushed down: a node's least counts what was added
// to it and below it, not what was added above it.
type tree struct {
	size  int // leaves, a power of two
	least []int32
	added []int32 // of inner nodes
}

// newTree makes a tree of these values. Leaves behind them are never the least.
func newTree(values []int32) tree {
	size := 1
	for size < len(values) {
		size *= 2
	}
	t := tree{size: size, least: make([]int32, 2*size), added: make([]int32, size)}
	t.fill(values)
	return t
}

// fill sets all values at once.
func (t *tree) fill(values []int32) {
	clear(t.added)
	copy(t.least[t.size:], values)
	for i := t.size + len(values); i < 2*t.size; i++ {
		t.least[i] = math.MaxInt32 / 2
	}
	for i := t.size - 1; i > 0; i-- {
		t.least[i] = min(t.least[2*i], t.least[2*i+1])
	}
}

// add adds v to the values from l until r.
func (t *tree) add(l, r int, v int32) {
	if l >= r {
		return
	}
	first, last := l+t.size, r+t.size-1
	for l, r = first, last+1; l < r; l, r = l/2, r/2 {
		if l%2 == 1 {
			t.put(l, v)
			l++
		}
		if r%2 == 1 {
			r--
			t.put(r, v)
		}
	}
	t.above(first)
	t.above(last)
}

func (t *tree) put(i int, v int32) {
	t.least[i] += v
	if i < t.size {
		t.added[i] += v
	}
}

// above brings up to date what is above a leaf.
func (t *tree) above(i int) {
	for i /= 2; i > 0; i /= 2 {
		t.least[i] = min(t.least[2*i], t.least[2*i+1]) + t.added[i]
	}
}

// at returns one value.
func (t *tree) at(i int) int32 {
	i += t.size
	v := t.least[i]
	for i /= 2; i > 0; i /= 2 {
		v += t.added[i]
	}
	return v
}

// set sets one value.
func (t *tree) set(i int, v int32) { t.add(i, i+1, v-t.at(i)) }

// min returns the least of the values from l until r.
func (t *tree) min(l, r int) int32 { return t.lowest(1, 0, t.size, l, r) }

// lowest looks below node i, which stands for the slots from lo until hi.
func (t *tree) lowest(i, lo, hi, l, r int) int32 {
	switch {
	case r <= lo || hi <= l:
		return math.MaxInt32 / 2
	case l <= lo && hi <= r:
		return t.least[i]
	}
	mid := (lo + hi) / 2
	return min(t.lowest(2*i, lo, mid, l, r), t.lowest(2*i+1, mid, hi, l, r)) + t.added[i]
}

// firstBelow returns the first index from l until r whose value is below x, or -1.
func (t *tree) firstBelow(l, r int, x int32) int { return t.first(1, 0, t.size, l, r, x) }

func (t *tree) first(i, lo, hi, l, r int, x int32) int {
	if r <= lo || hi <= l || t.least[i] >= x {
		return -1
	}
	if hi-lo == 1 {
		return lo
	}
	x -= t.added[i]
	mid := (lo + hi) / 2
	if k := t.first(2*i, lo, mid, l, r, x); k >= 0 {
		return k
	}
	return t.first(2*i+1, mid, hi, l, r, x)
}

// lastBelow returns the last index from l until r whose value is below x, or -1.
func (t *tree) lastBelow(l, r int, x int32) int { return t.last(1, 0, t.size, l, r, x) }

func (t *tree) last(i, lo, hi, l, r int, x int32) int {
	if r <= lo || hi <= l || t.least[i] >= x {
		return -1
	}
	if hi-lo == 1 {
		return lo
	}
	x -= t.added[i]
	mid := (lo + hi) / 2
	if k := t.last(2*i+1, mid, hi, l, r, x); k >= 0 {
		return k
	}
	return t.last(2*i, lo, mid, l, r, x)
}
