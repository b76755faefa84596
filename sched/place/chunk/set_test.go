package chunk

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLevelFor(t *testing.T) {
	for units, want := range []int{-1, 0, 1, 2, 2, 3, 3, 3, 3, -1} {
		l, ok := LevelFor(units)
		if ok != (want >= 0) || ok && int(l) != want {
			t.Errorf("%d GPUs: level %d, %v, want %d", units, l, ok, want)
		}
	}
	if _, ok := LevelFor(-3); ok {
		t.Error("a negative number of GPUs has a level")
	}
}

// freeChunks finds the maximal aligned runs by looking at every GPU.
func freeChunks(free Set) (all []Chunk) {
	isFree := func(c Chunk) bool {
		for g := int(c.Start); g < c.End(); g++ {
			if free>>g&1 == 0 {
				return false
			}
		}
		return true
	}
	for l := range Level(Levels) {
		for s := 0; s+l.Units() <= GPUsMax; s += l.Units() {
			c := Chunk{uint8(s), l}
			above := Chunk{uint8(s / (2 * l.Units()) * 2 * l.Units()), l + 1}
			if isFree(c) && (above.Level == Levels || !isFree(above)) {
				all = append(all, c)
			}
		}
	}
	return all
}

func checkChunks(t interface{ Fatalf(string, ...any) }, free Set) {
	want := freeChunks(free)
	var counts Counts
	var union Set
	for _, c := range want {
		counts[c.Level]++
		union |= c.GPUs()
		if got := free.maximalAt(Chunk{c.Start, 0}); got != c {
			t.Fatalf("free %b: GPU %d is part of %v, want %v", free, c.Start, got, c)
		}
	}
	if free.Counts() != counts || counts.Units() != free.Len() || union != free {
		t.Fatalf("free %b: counts %v, want %v", free, free.Counts(), counts)
	}
	for l := range Level(Levels) {
		i := slices.IndexFunc(want, func(c Chunk) bool { return c.Level >= l })
		got, ok := free.Allocate(l)
		if ok != (i >= 0) || ok && got != (Chunk{want[i].Start, l}) {
			t.Fatalf("free %b: level %d is allocated at %v, %v", free, l, got, ok)
		}
	}
}

// TestChunksAreTheMaximalAlignedRuns looks at every free set of a node of 8 GPUs,
// and at some of larger ones.
func TestChunksAreTheMaximalAlignedRuns(t *testing.T) {
	for free := range Set(256) {
		checkChunks(t, free)
	}
	rapid.Check(t, func(r *rapid.T) {
		checkChunks(r, drawFree(r, 1, 64)[0])
	})
}

func TestNodesOfOtherSizes(t *testing.T) {
	for _, c := range []struct {
		gpus int
		want Counts
	}{
		{0, Counts{}}, {-1, Counts{}}, {1, Counts{1}}, {4, Counts{0, 0, 1}}, {6, Counts{0, 1, 1}},
		{7, Counts{1, 1, 1}}, {8, Counts{0, 0, 0, 1}}, {16, Counts{0, 0, 0, 2}}, {72, Counts{0, 0, 0, 8}},
	} {
		if got := All(c.gpus).Counts(); got != c.want {
			t.Errorf("%d GPUs: %v, want %v", c.gpus, got, c.want)
		}
	}
}

func TestTakeAndReleaseRefuseWhatCannotBe(t *testing.T) {
	free := All(8) &^ 1
	for _, c := range []Chunk{{0, 0}, {0, 3}, {1, 1}, {8, 0}, {0, 4}, {60, 3}} {
		if got, ok := free.Take(c); ok || got != free {
			t.Errorf("%v was taken from %b", c, free)
		}
	}
	for _, c := range []Chunk{{1, 0}, {0, 1}, {0, 7}, {9, 2}} {
		if got, ok := free.Release(c); ok || got != free {
			t.Errorf("%v was put back to %b", c, free)
		}
	}
	if got, ok := free.Release(Chunk{0, 0}); !ok || got != All(8) {
		t.Errorf("GPU 0 was put back: %b, %v", got, ok)
	}
	for _, c := range []struct {
		chunk Chunk
		gpus  int
		want  bool
	}{{Chunk{0, 3}, 8, true}, {Chunk{4, 2}, 8, true}, {Chunk{4, 2}, 7, false}, {Chunk{2, 2}, 8, false}, {Chunk{64, 0}, 80, false}, {Chunk{0, 4}, 64, false}} {
		if got := c.chunk.Valid(c.gpus); got != c.want {
			t.Errorf("%v on %d GPUs: valid %v", c.chunk, c.gpus, got)
		}
	}
}

// cluster is the oracle of allocation sequences: who owns each GPU.
type cluster struct {
	nodes Nodes
	owner [][GPUsMax]int
	live  []held
	last  int
}

type held struct {
	owner, node int
	variant     Variant
	chunk       Chunk
}

func newCluster(sizes ...int) *cluster {
	c := &cluster{owner: make([][GPUsMax]int, len(sizes))}
	for i, gpus := range sizes {
		c.nodes = append(c.nodes, Node{ID: uint64(i), Free: All(gpus), Memory: 80})
		for g := gpus; g < GPUsMax; g++ {
			c.owner[i][g] = -1
		}
	}
	return c
}

func (c *cluster) start(t *rapid.T, w Request, now int64) bool {
	d, ok := Choose(c.nodes, w)
	if !ok {
		return false
	}
	c.last++
	h := held{c.last, int(d.Node), w.Variant, d.Chunk}
	if int(d.Chunk.Start)%w.Level.Units() != 0 || d.Chunk.Units() != w.Level.Units() {
		t.Fatalf("chunk %v is not aligned, or not of level %d", d.Chunk, w.Level)
	}
	for g := int(d.Chunk.Start); g < d.Chunk.End(); g++ {
		if who := c.owner[h.node][g]; who != 0 {
			t.Fatalf("GPU %d of node %d is owned by %d", g, h.node, who)
		}
		c.owner[h.node][g] = h.owner
	}
	n, ok := c.nodes[h.node].Start(w, d, now)
	if !ok {
		t.Fatalf("%+v cannot be started on %+v", d, c.nodes[h.node])
	}
	c.nodes[h.node] = n
	c.live = append(c.live, h)
	return true
}

func (c *cluster) end(t *rapid.T, i int, now int64) {
	h := c.live[i]
	c.live = slices.Delete(c.live, i, i+1)
	for g := int(h.chunk.Start); g < h.chunk.End(); g++ {
		c.owner[h.node][g] = 0
	}
	n, ok := c.nodes[h.node].End(h.variant, h.chunk, now)
	if !ok {
		t.Fatalf("%+v does not end on %+v", h, c.nodes[h.node])
	}
	c.nodes[h.node] = n
	if _, again := n.End(h.variant, h.chunk, now); again {
		t.Fatalf("%+v ends twice", h)
	}
}

// check compares with the oracle: GPUs conserved, chunks as large as can be,
// residents in order and no more than fit.
func (c *cluster) check(t *rapid.T) {
	for i, n := range c.nodes {
		for g, who := range c.owner[i] {
			if free := n.Free>>g&1 == 1; free != (who == 0) {
				t.Fatalf("GPU %d of node %d: free %v, owner %d", g, i, free, who)
			}
		}
		checkChunks(t, n.Free)
		if !slices.IsSortedFunc(n.Residents, Resident.Compare) {
			t.Fatalf("residents of node %d are out of order: %v", i, n.Residents)
		}
		var used [GPUsMax]uint64
		for _, r := range n.Residents {
			for g := int(r.Chunk.Start); g < r.Chunk.End(); g++ {
				if used[g] += n.footprint(r.Bytes); used[g] > n.capacity() {
					t.Fatalf("GPU %d of node %d has %d bytes in it", g, i, used[g])
				}
			}
		}
	}
	for _, h := range c.live {
		if h.variant != 0 && c.nodes[h.node].resident(h.variant, h.chunk) < 0 {
			t.Fatalf("%+v runs and its model was evicted", h)
		}
	}
}

// variantBytes and variantLevel are the models of the tests: half of them leave
// room for another, one is of unknown size.
func variantBytes(v Variant) uint64 { return []uint64{0, 80, 30, 50, 20, 0}[v] }
func variantLevel(v Variant) Level  { return []Level{0, 0, 1, 1, 2, 3}[v] }

func TestAllocationSequences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{8, 8, 8, 4, 6, 16}), 1, 4).Draw(r, "nodes")
		c := newCluster(sizes...)
		for now := range int64(rapid.IntRange(1, 60).Draw(r, "steps")) {
			if len(c.live) > 0 && rapid.IntRange(0, 2).Draw(r, "end") == 0 {
				c.end(r, rapid.IntRange(0, len(c.live)-1).Draw(r, "which"), now/2)
			} else {
				v := Variant(rapid.IntRange(0, 5).Draw(r, "variant"))
				w := Request{Variant: v, Level: variantLevel(v), Bytes: variantBytes(v), SetUp: 7}
				free := c.nodes.Free()
				if c.start(r, w, now/2) != free.Fits(Counts{}.put(w.Level)) {
					r.Fatalf("%+v was not decided by what is free: %v", w, free)
				}
			}
			c.check(r)
		}
		for len(c.live) > 0 {
			c.end(r, len(c.live)-1, 99)
		}
		c.check(r)
		for i, gpus := range sizes {
			if c.nodes[i].Free != All(gpus) || gpus == 8 && c.nodes[i].Free.Counts() != (Counts{0, 0, 0, 1}) {
				r.Fatalf("node %d is not whole again: %v", i, c.nodes[i].Free.Counts())
			}
		}
	})
}

// put adds a chunk.
func (n Counts) put(l Level) Counts {
	n[l]++
	return n
}
