package ledger

// ring is a window of slots, [head, head+n), over a time that has no end (§5.2.1).
// Slot t is at index t mod n, so a slide moves nothing: the slot that leaves makes
// room for the one that enters. A range that wraps around the end of the array is
// two ranges of it.
type ring struct {
	tree
	n    int64
	head int64
}

func (r *ring) end() int64 { return r.head + r.n }

// parts returns the ranges of indices that stand for the slots from one until
// another, in the order of time. What is outside of the window is left out.
func (r *ring) parts(from, to int64) (a, b [2]int) {
	from, to = max(from, r.head), min(to, r.end())
	if from >= to {
		return a, b
	}
	start, length := from%r.n, to-from
	if wrapped := start + length - r.n; wrapped > 0 {
		return [2]int{int(start), int(r.n)}, [2]int{0, int(wrapped)}
	}
	return [2]int{int(start), int(start + length)}, b
}

// add adds v to the slots from one until another, as far as they are in the window.
func (r *ring) add(from, to int64, v int32) {
	a, b := r.parts(from, to)
	r.tree.add(a[0], a[1], v)
	r.tree.add(b[0], b[1], v)
}

// min returns the least value of the slots from one until another.
func (r *ring) min(from, to int64) int32 {
	a, b := r.parts(from, to)
	least := r.tree.min(a[0], a[1])
	if b[1] > 0 {
		least = min(least, r.tree.min(b[0], b[1]))
	}
	return least
}

// firstBelow returns the first slot from one until another with less than x.
func (r *ring) firstBelow(from, to int64, x int32) (int64, bool) {
	a, b := r.parts(from, to)
	i := r.tree.firstBelow(a[0], a[1], x)
	if i < 0 {
		i = r.tree.firstBelow(b[0], b[1], x)
	}
	return r.slot(i)
}

// lastBelow returns the last slot from one until another with less than x.
func (r *ring) lastBelow(from, to int64, x int32) (int64, bool) {
	a, b := r.parts(from, to)
	i := r.tree.lastBelow(b[0], b[1], x)
	if i < 0 {
		i = r.tree.lastBelow(a[0], a[1], x)
	}
	return r.slot(i)
}

// slot returns the slot of the window at an index, if there is one.
func (r *ring) slot(i int) (int64, bool) {
	if i < 0 {
		return 0, false
	}
	ahead := int64(i) - r.head%r.n
	if ahead < 0 {
		ahead += r.n
	}
	return r.head + ahead, true
}
