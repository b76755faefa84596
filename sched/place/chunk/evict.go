package chunk

import "cmp"

// Variant names a served model at one degree of parallelism; variants of a model
// are services of their own, as in ARL-Tangram (§5.3, elastic DoP). Zero is none.
type Variant uint64

// Resident is a model variant that is in the memory of the GPUs of a chunk.
type Resident struct {
	Variant Variant
	Chunk   Chunk
	// Bytes it takes on each GPU; zero if nobody declared it: then all of them.
	Bytes uint64
	// Used is when it was last used, in log time.
	Used int64
}

// Compare orders residents by last use, and by start, level and variant where
// that is the same.
func (r Resident) Compare(o Resident) int {
	if c := cmp.Compare(r.Used, o.Used); c != 0 {
		return c
	}
	if c := r.Chunk.compare(o.Chunk); c != 0 {
		return c
	}
	return cmp.Compare(r.Variant, o.Variant)
}

// Node is what this package needs to see of a node.
type Node struct {
	ID uint64
	// Free are the GPUs that nothing runs on and that may be allocated.
	Free Set
	// Memory is what each GPU has for models, in bytes; zero if nobody declared
	// it: then each GPU has room for one resident.
	Memory uint64
	// Residents in the order of Compare, least recently used first. One that
	// overlaps a free GPU is idle: what runs holds all GPUs of its chunk.
	Residents []Resident
}

// capacity and footprint give a size to what nobody declared.
func (n *Node) capacity() uint64 { return max(n.Memory, 1) }

func (n *Node) footprint(bytes uint64) uint64 {
	if c := n.capacity(); bytes == 0 || bytes > c {
		return c
	}
	return bytes
}

// takes reports whether a GPU of the node has room for so many bytes when
// nothing else is in it.
func (n *Node) takes(bytes uint64) bool { return n.Memory == 0 || bytes <= n.Memory }

// resident returns where in Residents the variant is on the chunk, -1 if it is
// not.
func (n *Node) resident(v Variant, c Chunk) int {
	for i := range n.Residents {
		if n.Residents[i].Variant == v && n.Residents[i].Chunk == c {
			return i
		}
	}
	return -1
}

// evictions appends to out, and returns, where in Residents those are that have
// to go before something with so many bytes on each GPU is loaded on the chunk,
// least recently used first (§5.3, LRU and EOE). Nobody goes in vain: who is left
// out of the result could not stay.
func (n *Node) evictions(c Chunk, bytes uint64, out []int) []int {
	var used [UnitsMax]uint64 // of each GPU of the chunk
	need := n.footprint(bytes)
	for i := range used[:c.Units()] {
		used[i] = need
	}
	for i := range n.Residents {
		n.charge(&used, c, i, 1)
	}
	first := len(out)
	for i := range n.Residents {
		if n.over(&used, c, n.Residents[i].Chunk.GPUs()) {
			n.charge(&used, c, i, -1)
			out = append(out, i)
		}
	}
	if len(out)-first < 2 {
		return out
	}
	return n.spare(&used, c, out, first)
}

// spare takes out of out[first:] those that can stay after all, newest first: an
// old small one may have gone before a large one that had to go anyway.
func (n *Node) spare(used *[UnitsMax]uint64, c Chunk, out []int, first int) []int {
	for k := len(out) - 1; k >= first; k-- {
		n.charge(used, c, out[k], 1)
		if n.over(used, c, n.Residents[out[k]].Chunk.GPUs()) {
			n.charge(used, c, out[k], -1)
			continue
		}
		out = append(out[:k], out[k+1:]...)
	}
	return out
}

// charge adds a resident's bytes to those GPUs of the chunk that it is on, or
// takes them off again.
func (n *Node) charge(used *[UnitsMax]uint64, c Chunk, resident, sign int) {
	r := &n.Residents[resident]
	bytes := n.footprint(r.Bytes)
	for m := r.Chunk.GPUs() & c.GPUs(); m != 0; m &= m - 1 {
		if i := m.first() - c.Start; sign > 0 {
			used[i] += bytes
		} else {
			used[i] -= bytes
		}
	}
}

// over reports whether a GPU of the chunk that is in the set has more in it than
// fits.
func (n *Node) over(used *[UnitsMax]uint64, c Chunk, in Set) bool {
	for m := in & c.GPUs(); m != 0; m &= m - 1 {
		if used[m.first()-c.Start] > n.capacity() {
			return true
		}
	}
	return false
}
