package state

import (
	"cmp"
	"math/bits"
	"strings"
)

// GPUClassID numbers a class of GPUs in the order in which nodes first declared
// them.
type GPUClassID uint32

const (
	// GPUsPerNodeMax is how many GPUs a node can have.
	GPUsPerNodeMax = 64
	// ChunkMax is how many GPUs a chunk can have.
	ChunkMax = 8
	// GPUClassesMax bounds the classes, which are never forgotten.
	GPUClassesMax = 256
)

// GPUClass is a class of GPUs, such as "H100".
type GPUClass struct {
	ID   GPUClassID
	Name string
	// Age is the worth of the dearest model that was ever evicted from GPUs of the class, in
	// microseconds; see Resident.Worth. 0 below feature level 3.
	Age uint64
}

// GPUs are those of a node, all of one class; Class is 0 if it has none.
type GPUs struct {
	Class  GPUClassID
	Count  uint32
	Memory uint64 // of each, in bytes
	Free   GPUSet // those that nothing holds and that are not out of use
}

// GPUSet is a set of GPUs of one node, a bit for each.
type GPUSet uint64

// AllGPUs returns the set of the first n.
func AllGPUs(n uint32) GPUSet {
	if n >= GPUsPerNodeMax {
		return ^GPUSet(0)
	}
	return 1<<n - 1
}

// Len returns how many GPUs are in the set.
func (s GPUSet) Len() int { return bits.OnesCount64(uint64(s)) }

// Slice returns their numbers.
func (s GPUSet) Slice() (gpus []uint32) {
	for ; s != 0; s &= s - 1 {
		gpus = append(gpus, uint32(bits.TrailingZeros64(uint64(s))))
	}
	return gpus
}

// Chunk is an aligned run of GPUs of one node. Units is a power of two that
// divides First; 0: no GPUs.
type Chunk struct{ First, Units uint32 }

// GPUs returns the chunk as a set.
func (r Chunk) GPUs() GPUSet { return AllGPUs(r.Units) << r.First }

// Aligned reports whether the chunk may exist on a node with that number of GPUs.
func (r Chunk) Aligned(count uint32) bool {
	return bits.OnesCount32(r.Units) == 1 && r.Units <= ChunkMax && r.First%r.Units == 0 && r.First < count && r.First+r.Units <= count
}

// Residency is what is in the memory of a node's GPUs. A node of which nothing is
// known has none.
type Residency struct {
	Node NodeID
	// Models in the order of Compare, least recently used first.
	Models []Resident
}

// Resident is a model in the memory of a chunk. The same model on another number
// of GPUs is another variant of it.
type Resident struct {
	Model  string
	Chunk  Chunk
	Bytes  uint64 // of each GPU
	UsedAt int64  // log time of the start or the end of its last use
	// Uses is how many actions used it since it became resident, at most UsesMax. Worth is what
	// its eviction would lose, in microseconds: the age of its class when it was last used, and
	// a set-up for each of its uses. Both are 0 if it was last used below feature level 3.
	Uses  uint32
	Worth uint64
}

const (
	// UsesMax is the most uses of a resident that count. It bounds for how long one that was
	// popular outlives its popularity.
	UsesMax = 8
	// setUpUnknown is what a set-up is taken to cost of which nothing is known, in nanoseconds,
	// where models are evicted by cost. Only its ratio to known set-ups matters.
	setUpUnknown = 10_000_000_000
)

// Valued returns the resident with the worth that it has after a use at the age of its class,
// where a set-up takes so many nanoseconds; 0: that is not known.
func (r Resident) Valued(age uint64, setUpNS int64) Resident {
	if setUpNS <= 0 {
		setUpNS = setUpUnknown
	}
	cost := uint64(r.Uses) * ((uint64(setUpNS) + 999) / 1000)
	if r.Worth = age + cost; r.Worth < age {
		r.Worth = ^uint64(0)
	}
	return r
}

// Compare orders residents by last use, and where that is the same by where and
// what they are.
func (r *Resident) Compare(o *Resident) int {
	return cmp.Or(cmp.Compare(r.UsedAt, o.UsedAt), cmp.Compare(r.Chunk.First, o.Chunk.First),
		cmp.Compare(r.Chunk.Units, o.Chunk.Units), strings.Compare(r.Model, o.Model))
}

// Same reports whether both are the same variant in the same place.
func (r *Resident) Same(o *Resident) bool { return r.Model == o.Model && r.Chunk == o.Chunk }

func (r *GPUClass) code(c *codec) {
	number(c, &r.ID)
	c.text(&r.Name)
	trailing(c, &r.Age, number)
}

func (r *GPUs) code(c *codec) {
	number(c, &r.Class)
	number(c, &r.Count)
	number(c, &r.Memory)
	number(c, &r.Free)
}

func (r *Chunk) code(c *codec) {
	number(c, &r.First)
	number(c, &r.Units)
}

func (r *Residency) code(c *codec) {
	number(c, &r.Node)
	list(c, &r.Models, func(c *codec, m *Resident) {
		c.text(&m.Model)
		m.Chunk.code(c)
		number(c, &m.Bytes)
		signed(c, &m.UsedAt)
	})
	if !c.trails() { // what they are worth came with feature level 3
		return
	}
	valued := false
	for i := range r.Models {
		m := &r.Models[i]
		number(c, &m.Uses)
		number(c, &m.Worth)
		valued = valued || m.Uses > 0
	}
	c.trailed(valued)
}

// PutGPUClass stores a class of GPUs.
func (s *State) PutGPUClass(r *GPUClass) {
	db(s).gpuClasses.put(db(s).enc, r.ID, r)
	db(s).index.gpuClassNames.Set(r.Name, r.ID)
}

// GPUClass returns a class, nil if there is none.
func (s *State) GPUClass(id GPUClassID) *GPUClass { return db(s).gpuClasses.get(id) }

// GPUClassByName returns a class, nil if there is none.
func (s *State) GPUClassByName(name string) *GPUClass {
	id, _ := db(s).index.gpuClassNames.Get(name)
	return db(s).gpuClasses.get(id)
}

// GPUClasses visits all classes in the order of first registration.
func (s *State) GPUClasses(fn func(*GPUClass) bool) { db(s).gpuClasses.scan(0, fn) }

// PutResidency stores what is resident on a node; an empty list is no row.
func (s *State) PutResidency(r *Residency) {
	if len(r.Models) == 0 {
		db(s).residency.delete(r.Node)
		return
	}
	db(s).residency.put(db(s).enc, r.Node, r)
}

// DeleteResidency forgets what is resident on a node.
func (s *State) DeleteResidency(id NodeID) { db(s).residency.delete(id) }

// ModelsOn returns what is resident on a node, least recently used first; the
// caller must not change it.
func (s *State) ModelsOn(id NodeID) []Resident {
	if r := db(s).residency.get(id); r != nil {
		return r.Models
	}
	return nil
}

// gpuRank orders the usable nodes of a queue of GPUs by what is free.
type gpuRank struct {
	queue QueueKey
	free  int
	node  NodeID
}

func (a gpuRank) less(b gpuRank) bool {
	if a.queue != b.queue {
		return a.queue < b.queue
	}
	if a.free != b.free {
		return a.free > b.free
	}
	return a.node < b.node
}

func (r *Node) gpuRank() gpuRank { return gpuRank{r.GPUQueue().Key(), r.GPUs.Free.Len(), r.ID} }

// GPUQueue is the queue that the node's GPUs serve, none if it has no GPUs.
func (r *Node) GPUQueue() Queue {
	if r.GPUs.Class == 0 {
		return Queue{}
	}
	return QueueOfGPUs(r.Pool, r.GPUs.Class)
}

// NodesByFreeGPUs visits the usable nodes of a queue of GPUs, most free GPUs
// first.
func (s *State) NodesByFreeGPUs(q Queue, fn func(*Node) bool) {
	db(s).index.freeGPUs.Ascend(gpuRank{queue: q.Key(), free: GPUsPerNodeMax + 1}, func(k gpuRank) bool {
		return k.queue == q.Key() && fn(db(s).nodes.get(k.node))
	})
}

// withGPUs is the node if it has GPUs.
func (r *Node) withGPUs() *Node {
	if r == nil || r.GPUs.Class == 0 {
		return nil
	}
	return r
}
