package chunk

// Counts is how many chunks there are of each level: free ones of a node or of a
// pool, or ones that are asked for.
type Counts [Levels]int

// Units returns how many GPUs the chunks have together.
func (n Counts) Units() int {
	units := 0
	for l, k := range n {
		units += k << l
	}
	return units
}

// Add returns the sum.
func (n Counts) Add(o Counts) Counts {
	for l := range n {
		n[l] += o[l]
	}
	return n
}

// Take returns what is left when a chunk of the level is taken from the smallest
// free one that suffices, and the level of that. This choice dominates every
// other: whatever can be allocated after another can be allocated after it (see
// the package comment).
func (n Counts) Take(l Level) (left Counts, from Level, ok bool) {
	for b := l; b < Levels; b++ {
		if n[b] > 0 {
			return n.split(l, b), b, true
		}
	}
	return n, 0, false
}

// split takes a chunk of level l out of one of level b: of each level from l
// below b one buddy is left.
func (n Counts) split(l, b Level) Counts {
	n[b]--
	for k := l; k < b; k++ {
		n[k]++
	}
	return n
}

// slots returns how many disjoint chunks of each level could be cut from the
// chunks, were nothing else cut from them: s[l] is the sum of n[b] << (b-l) over
// the levels b from l on.
func (n Counts) slots() Counts {
	for l := Levels - 2; l >= 0; l-- {
		n[l] += 2 * n[l+1]
	}
	return n
}

// fromSlots is the inverse of slots.
func fromSlots(s Counts) Counts {
	for l := range Levels - 1 {
		s[l] -= 2 * s[l+1]
	}
	return s
}

// Fits reports whether chunks of these counts can all be allocated from free
// ones of n, in whatever order: the demand of each level and those above it,
// measured in chunks of that level, is at most what is free of it.
func (n Counts) Fits(demand Counts) bool {
	free, need := n.slots(), demand.slots()
	for l := range free {
		if need[l] > free[l] {
			return false
		}
	}
	return true
}
