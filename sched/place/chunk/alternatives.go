package chunk

import "slices"

// Alternative is a chunk that Choose compares with others, and what it would cost.
type Alternative struct {
	Chunk Chunk
	Node  uint64
	// Evict are the residents that would have to go, the dearest first. Cost is the worth of
	// that one, 0 if there are none.
	Evict []Resident
	Cost  uint64
}

// Alternatives returns all chunks that Choose compares for a request whose variant is resident on
// none of them, the best first: it chooses that one. It is for people who ask why: Choose itself
// looks at no more than it needs.
func Alternatives(v View, w Request) []Alternative {
	if w.Level >= Levels {
		return nil
	}
	var all []candidate
	from := sources(v.Free(), w)
	s := search{request: w}
	for s.from = w.Level; s.from < Levels; s.from++ {
		if from[s.from] {
			v.Offering(s.from, func(n *Node) bool {
				all = s.collect(n, all)
				return true
			})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		switch {
		case a.before(&b):
			return -1
		case b.before(&a):
			return 1
		}
		return 0
	})
	out := make([]Alternative, len(all))
	for i := range all {
		out[i] = all[i].alternative(w)
	}
	return out
}

// collect adds the candidates on a node.
func (s *search) collect(n *Node, all []candidate) []candidate {
	if !n.takes(s.request.Bytes) {
		return all
	}
	own := *n // a view may use the node again for the next
	for starts := n.Free.parts(s.request.Level, s.from); starts != 0; starts &= starts - 1 {
		c := candidate{node: &own, chunk: Chunk{Start: starts.first(), Level: s.request.Level}, from: s.from}
		s.price(&c)
		all = append(all, c)
	}
	return all
}

func (c *candidate) alternative(w Request) Alternative {
	a := Alternative{Node: c.node.ID, Chunk: c.chunk, Cost: c.dearest.Worth}
	for i := range c.node.evictions(c.chunk, w.Bytes) {
		a.Evict = append(a.Evict, c.node.Residents[i])
	}
	return a
}
