package chunk

import "slices"

// View is what a choice is made from: the nodes of one class of GPU. It does not
// change during the choice.
type View interface {
	// Free returns how many free chunks of each level the nodes have together.
	Free() Counts
	// Holders visits the nodes that have the variant resident, by ID.
	Holders(v Variant, visit func(*Node) bool)
	// Offering visits the nodes that have a free chunk of the level that is part
	// of no larger one, by ID.
	Offering(l Level, visit func(*Node) bool)
}

// Request says which chunk is needed.
type Request struct {
	// Variant is the model variant that has to be resident; zero if none does.
	Variant Variant
	Level   Level
	// Bytes that it takes on each GPU; zero if not declared: then all.
	Bytes uint64
	// SetUp is what it costs to make it resident, in nanoseconds.
	SetUp int64
	// Rest is what has been promised to others and not been allocated yet: a
	// chunk is chosen so that these still fit. The operator promises on the
	// understanding that the smallest chunk is split that suffices; a resident
	// variant may be worth more than that, but not a promise.
	Rest Counts
	// Awaited says how many actions wait soon that need a variant, by its number. A chunk on
	// which no such variant is evicted comes first. Nil: that is not known.
	Awaited []int32
}

// awaits reports whether an action that waits soon needs the variant.
func (w *Request) awaits(v Variant) bool { return v < Variant(len(w.Awaited)) && w.Awaited[v] > 0 }

// Decision is a chunk and what it costs.
type Decision struct {
	Node  uint64
	Chunk Chunk
	// From is the level of the free chunk that Chunk is cut from.
	From Level
	// Hit says that the variant is resident on the chunk.
	Hit bool
	// Evict are the residents that have to go, in the order of Compare.
	Evict []Resident
	// SetUp is the set-up cost that is charged, in nanoseconds: none for a hit.
	SetUp int64
}

// Choose picks a chunk. It prefers one where the variant is resident. Otherwise it takes the
// one with the cheapest evictions: none that is awaited, then the least worth of the dearest
// of them, none being best; then the smallest free chunk that suffices; then the one whose
// dearest eviction was last used longest ago; then the first node, and the first chunk of it.
// False if there is none now.
//
// Where no resident is worth anything and none is awaited that is the smallest chunk with the
// least recently used residents, as the paper has it (§5.3, LRU).
//
// The paper looks for a resident variant only among chunks of the smallest level
// (§5.3). Here it comes first: a miss costs seconds, a split no more than Rest
// allows.
func Choose(v View, w Request) (Decision, bool) {
	if w.Level >= Levels {
		return Decision{}, false
	}
	from := sources(v.Free(), w)
	if w.Variant != 0 {
		if d, ok := chooseResident(v, w, from); ok {
			return d, true
		}
	}
	return chooseCheapest(v, w, from)
}

// sources returns the levels whose chunks may be split for the request.
func sources(free Counts, w Request) (from [Levels]bool) {
	for b := w.Level; b < Levels; b++ {
		from[b] = free[b] > 0 && free.split(w.Level, b).Fits(w.Rest)
	}
	return from
}

// chooseResident picks among the chunks where the variant is resident.
func chooseResident(v View, w Request, from [Levels]bool) (best Decision, ok bool) {
	v.Holders(w.Variant, func(n *Node) bool {
		for i := range n.Residents {
			r := &n.Residents[i]
			if r.Variant != w.Variant || r.Chunk.Level != w.Level || !n.Free.Holds(r.Chunk) {
				continue
			}
			b := n.Free.maximalAt(r.Chunk).Level
			if from[b] && (!ok || b < best.From || b == best.From && n.ID == best.Node && r.Chunk.Start < best.Chunk.Start) {
				best, ok = Decision{Node: n.ID, Chunk: r.Chunk, From: b, Hit: true}, true
			}
		}
		return !ok || best.From > w.Level // no later node is better
	})
	return best, ok
}

// chooseCheapest picks among the parts of the free chunks that may be split.
func chooseCheapest(v View, w Request, from [Levels]bool) (Decision, bool) {
	s := search{request: w}
	for s.from = w.Level; s.from < Levels && !s.best.free(); s.from++ {
		if from[s.from] {
			v.Offering(s.from, s.visit)
		}
	}
	best := &s.best
	if best.node == nil {
		return Decision{}, false
	}
	d := Decision{Node: best.node.ID, Chunk: best.chunk, From: best.from, SetUp: w.SetUp}
	for i := range best.node.evictions(best.chunk, w.Bytes) {
		d.Evict = append(d.Evict, best.node.Residents[i])
	}
	slices.Reverse(d.Evict)
	return d, true
}

// candidate is a chunk and what its evictions cost.
type candidate struct {
	node    *Node
	chunk   Chunk
	from    Level
	awaited bool // one of them is
	dearest Resident
	some    bool // there are evictions
}

// free reports whether no chunk that is part of a larger free one is better.
func (c *candidate) free() bool { return c.node != nil && !c.awaited && c.dearest.Worth == 0 }

// before reports whether the candidate is better than one that was found before it.
func (c *candidate) before(o *candidate) bool {
	switch {
	case o.node == nil:
		return true
	case c.awaited != o.awaited:
		return o.awaited
	case c.dearest.Worth != o.dearest.Worth:
		return c.dearest.Worth < o.dearest.Worth
	case c.from != o.from:
		return c.from < o.from
	case c.some != o.some:
		return o.some
	}
	return c.dearest.Used < o.dearest.Used
}

// search is the way through nodes to the chunk with the cheapest evictions.
type search struct {
	request Request
	from    Level
	best    candidate
}

// visit looks at one more node; false if no later one can be better.
func (s *search) visit(n *Node) bool {
	if !n.takes(s.request.Bytes) {
		return true
	}
	for starts := n.Free.parts(s.request.Level, s.from); starts != 0; starts &= starts - 1 {
		c := candidate{node: n, chunk: Chunk{Start: starts.first(), Level: s.request.Level}, from: s.from}
		s.price(&c)
		if c.before(&s.best) {
			s.best = c
		}
		if !c.some {
			return false
		}
	}
	return true
}

// price looks at what a candidate evicts, the dearest first.
func (s *search) price(c *candidate) {
	for i := range c.node.evictions(c.chunk, s.request.Bytes) {
		r := &c.node.Residents[i]
		if !c.some {
			c.some, c.dearest = true, *r
		}
		if c.awaited = s.request.awaits(r.Variant); c.awaited || s.request.Awaited == nil {
			return
		}
	}
}

// parts returns the starts of the chunks of level l in free chunks of level b.
func (s Set) parts(l, b Level) Set {
	m := s.maximal(b)
	for k := b; k > l; k-- {
		m |= m << (k - 1).Units()
	}
	return m
}

// Start returns the node as a decision for the request leaves it at this log time:
// the chunk taken, the evicted gone, the variant resident and used. What it is worth is not
// changed. False if the
// decision was made from something else. The node itself does not change.
func (n Node) Start(w Request, d Decision, now int64) (Node, bool) {
	free, ok := n.Free.Take(d.Chunk)
	if !ok || d.Node != n.ID || d.Hit != (n.resident(w.Variant, d.Chunk) >= 0) {
		return n, false
	}
	kept := make([]Resident, 0, len(n.Residents)+1)
	for _, r := range n.Residents {
		if !slices.Contains(d.Evict, r) {
			kept = append(kept, r)
		}
	}
	if len(kept)+len(d.Evict) != len(n.Residents) {
		return n, false
	}
	n.Free, n.Residents = free, kept
	return n.used(w.Variant, d.Chunk, w.Bytes, now), true
}

// End returns the node after what ran on the chunk has ended: its GPUs are free,
// the variant stays resident and was last used now. False if the chunk is not
// taken. The node itself does not change.
func (n Node) End(v Variant, c Chunk, now int64) (Node, bool) {
	free, ok := n.Free.Release(c)
	if !ok {
		return n, false
	}
	n.Free = free
	if i := n.resident(v, c); i >= 0 {
		bytes := n.Residents[i].Bytes
		n.Residents = slices.Clone(n.Residents)
		return n.used(v, c, bytes, now), true
	}
	return n, true
}

// used notes a use of a variant; Residents must be the node's own.
func (n Node) used(v Variant, c Chunk, bytes uint64, now int64) Node {
	if v == 0 {
		return n
	}
	r := Resident{Variant: v, Chunk: c, Bytes: bytes}
	if i := n.resident(v, c); i >= 0 {
		r = n.Residents[i]
		n.Residents = slices.Delete(n.Residents, i, i+1)
	}
	r.Used = now
	at, _ := slices.BinarySearchFunc(n.Residents, r, Resident.Compare)
	n.Residents = slices.Insert(n.Residents, at, r)
	return n
}
