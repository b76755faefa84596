package chunk

import (
	"cmp"
	"iter"
)

// Variant names a served model at one degree of parallelism; variants of a model
// are services of their own, as in ARL-Tangram (§5.3, elastic DoP). Zero is none.
type Variant uint64

// Resident is a model variant that is in the memory of the GPUs of a chunk.
type Resident struct {
	Variant Variant
	Chunk   Chunk
	// Bytes it takes on each GPU; zero if not declared: then all of them.
	Bytes uint64
	// Worth is what is lost if it is evicted, in any unit that is the same for all. Where all
	// are worth the same, the least recently used is evicted first.
	Worth uint64
	// Used is when it was last used, in log time.
	Used int64
}

// Compare orders residents by worth, by last use where that is the same, and then by start,
// level and variant.
func (r Resident) Compare(o Resident) int {
	if c := cmp.Or(cmp.Compare(r.Worth, o.Worth), cmp.Compare(r.Used, o.Used)); c != 0 {
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
	// Memory is what each GPU has for models, in bytes; zero if not declared
	// it: then each GPU has room for one resident.
	Memory uint64
	// Residents in the order of Compare, first to be evicted first. One that
	// overlaps a free GPU is idle: what runs holds all GPUs of its chunk.
	Residents []Resident
}

// capacity and footprint give a size to what was not declared.
func (n *Node) capacity() uint64 { return max(n.Memory, 1) }

func (n *Node) footprint(bytes uint64) uint64 {
	if c := n.capacity(); bytes == 0 || bytes > c {
		return c
	}
	return bytes
}

// takes reports whether a GPU of the node has room for a number of bytes when
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

// evictions visits where in Residents those are that have to go before something
// with so many bytes on each GPU is loaded on the chunk, the dearest first: the last in the
// order of Compare.
//
// It goes through that order backwards and lets stay whoever still has room on each GPU of the
// chunk. That is to evict the cheapest until there is room and then to take back, dearest
// first, whoever went in vain: a cheap small one before a large one that had to go anyway.
func (n *Node) evictions(c Chunk, bytes uint64) iter.Seq[int] {
	return func(visit func(int) bool) {
		var used [UnitsMax]uint64 // of each GPU of the chunk
		need := n.footprint(bytes)
		for i := range used {
			used[i] = need
		}
		for i := len(n.Residents) - 1; i >= 0; i-- {
			r := &n.Residents[i]
			shared := (r.Chunk.GPUs() & c.GPUs()) >> c.Start
			if !n.stays(&used, shared, n.footprint(r.Bytes)) && !visit(i) {
				return
			}
		}
	}
}

// stays adds bytes to what these GPUs have in them, unless there is no room on one
// of them.
func (n *Node) stays(used *[UnitsMax]uint64, gpus Set, bytes uint64) bool {
	for m := gpus; m != 0; m &= m - 1 {
		if used[m.first()] > n.capacity()-bytes {
			return false
		}
	}
	for m := gpus; m != 0; m &= m - 1 {
		used[m.first()] += bytes
	}
	return true
}
