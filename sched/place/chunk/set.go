package chunk

import "math/bits"

// Set is a set of GPUs of one node, one bit for each.
//
// The free set of a node is all that a buddy allocator has to remember: its free
// chunks are the maximal aligned runs of the set. To split a chunk is to take GPUs
// out of the set and to merge buddies is to put them back, so a merge can be
// neither forgotten nor done too early, and two replicas that agree on the bits
// agree on the chunks.
type Set uint64

// aligned has a bit for each start that a chunk of the level may have.
var aligned = [Levels]Set{
	0xFFFF_FFFF_FFFF_FFFF,
	0x5555_5555_5555_5555,
	0x1111_1111_1111_1111,
	0x0101_0101_0101_0101,
}

// Len returns how many GPUs are in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// Holds reports whether all GPUs of the chunk are in the set.
func (s Set) Holds(c Chunk) bool { return s&c.GPUs() == c.GPUs() }

// Take returns the set without a chunk; false if not all of it is in the set, or
// if it is not aligned.
func (s Set) Take(c Chunk) (Set, bool) {
	if !c.Valid(GPUsMax) || !s.Holds(c) {
		return s, false
	}
	return s &^ c.GPUs(), true
}

// Release returns the set with a chunk that was taken from it; false if some of
// it is in the set already, or if it is not aligned.
func (s Set) Release(c Chunk) (Set, bool) {
	if !c.Valid(GPUsMax) || s&c.GPUs() != 0 {
		return s, false
	}
	return s | c.GPUs(), true
}

// whole returns the starts of all aligned chunks of the level that are in the
// set, also of those that are part of larger ones.
func (s Set) whole(l Level) Set {
	for k := range l {
		s &= s >> k.Units()
	}
	return s & aligned[l]
}

// Chunks returns how many aligned chunks of the level are in the set, also as parts of larger
// ones. They do not overlap: whichever is taken, the others stay.
func (s Set) Chunks(l Level) int { return s.whole(l).Len() }

// maximal returns the starts of the free chunks of the level: those that are
// part of no larger one.
func (s Set) maximal(l Level) Set {
	w := s.whole(l)
	if l+1 < Levels {
		larger := s.whole(l + 1)
		w &^= larger | larger<<l.Units()
	}
	return w
}

// maximalAt returns the free chunk that a chunk in the set is part of.
func (s Set) maximalAt(c Chunk) Chunk {
	for c.Level+1 < Levels && s.Holds(c.parent(c.Level+1)) {
		c = c.parent(c.Level + 1)
	}
	return c
}

// Counts returns how many free chunks of each level the set has.
func (s Set) Counts() Counts {
	var n Counts
	for l := range n {
		n[l] = s.maximal(Level(l)).Len()
	}
	return n
}

// Allocate returns the chunk of the level that a node gives when no model is
// involved: the first part of the smallest free chunk that suffices (§5.3).
func (s Set) Allocate(l Level) (Chunk, bool) {
	for b := l; b < Levels; b++ {
		if m := s.maximal(b); m != 0 {
			return Chunk{Start: m.first(), Level: l}, true
		}
	}
	return Chunk{}, false
}

func (s Set) first() uint8 { return uint8(bits.TrailingZeros64(uint64(s))) }
