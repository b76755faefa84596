package state

import "math/bits"

// CoresPerNodeMax is the largest CPU number a node may have, plus one.
const CoresPerNodeMax = 512

// CoreSet is a set of CPU numbers of one node.
type CoreSet [CoresPerNodeMax / 64]uint64

// CoreRange returns the set of n CPUs from first on.
func CoreRange(first, n int) CoreSet {
	var s CoreSet
	for c := first; c < first+n; c++ {
		s.Add(c)
	}
	return s
}

// Add puts a CPU into the set.
func (s *CoreSet) Add(cpu int) { s[cpu/64] |= 1 << (cpu % 64) }

// Has reports whether a CPU is in the set.
func (s CoreSet) Has(cpu int) bool { return s[cpu/64]&(1<<(cpu%64)) != 0 }

// Len returns how many CPUs are in the set.
func (s CoreSet) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Union returns the CPUs of either set.
func (s CoreSet) Union(t CoreSet) CoreSet {
	for i := range s {
		s[i] |= t[i]
	}
	return s
}

// Intersect returns the CPUs of both sets.
func (s CoreSet) Intersect(t CoreSet) CoreSet {
	for i := range s {
		s[i] &= t[i]
	}
	return s
}

// Minus returns the CPUs of s that are not in t.
func (s CoreSet) Minus(t CoreSet) CoreSet {
	for i := range s {
		s[i] &^= t[i]
	}
	return s
}

// First returns the set of the n lowest CPUs, or of all if there are fewer.
func (s CoreSet) First(n int) CoreSet {
	var out CoreSet
	for i, w := range s {
		for w != 0 && n > 0 {
			low := w & -w
			out[i] |= low
			w &^= low
			n--
		}
	}
	return out
}

// Slice returns the CPU numbers in ascending order.
func (s CoreSet) Slice() []uint32 {
	out := make([]uint32, 0, s.Len())
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			out = append(out, uint32(i*64+bits.TrailingZeros64(w)))
		}
	}
	return out
}
