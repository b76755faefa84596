package chunk

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// packings visits every way to place chunks of the levels, in this order, on real
// GPUs, with what is then free. It stops when visit returns false.
func packings(free []Set, levels []Level, visit func([]Set) bool) bool {
	if len(levels) == 0 {
		return visit(free)
	}
	for i := range free {
		for s := 0; s+levels[0].Units() <= GPUsMax; s += levels[0].Units() {
			left, ok := free[i].Take(Chunk{uint8(s), levels[0]})
			if !ok {
				continue
			}
			rest := slices.Clone(free)
			rest[i] = left
			if !packings(rest, levels[1:], visit) {
				return false
			}
		}
	}
	return true
}

// packable searches all packings, largest chunks first, to be done sooner.
func packable(free []Set, demand Counts) bool {
	var levels []Level
	for l := Levels - 1; l >= 0; l-- {
		levels = append(levels, slices.Repeat([]Level{Level(l)}, demand[l])...)
	}
	return !packings(free, levels, func([]Set) bool { return false })
}

func countsOf(free []Set) (n Counts) {
	for _, s := range free {
		n = n.Add(s.Counts())
	}
	return n
}

// TestFitsIsExact compares with all packings of every free set of a node.
func TestFitsIsExact(t *testing.T) {
	for free := range Set(256) {
		for demand := range demands(free.Len() + 1) {
			got, want := free.Counts().Fits(demand), packable([]Set{free}, demand)
			if got != want {
				t.Fatalf("free %b (%v), demand %v: fits %v, want %v", free, free.Counts(), demand, got, want)
			}
		}
	}
}

// demands are all counts of at most so many GPUs.
func demands(units int) func(func(Counts) bool) {
	return func(yield func(Counts) bool) {
		for n := range (units + 1) * (units/2 + 1) * (units/4 + 1) * (units/8 + 1) {
			d := Counts{n % (units + 1)}
			n /= units + 1
			d[1], n = n%(units/2+1), n/(units/2+1)
			d[2], d[3] = n%(units/4+1), n/(units/4+1)
			if d.Units() <= units && !yield(d) {
				return
			}
		}
	}
}

// drawFree draws nodes of which some chunks are taken.
func drawFree(r *rapid.T, nodes, gpus int) []Set {
	return rapid.SliceOfN(rapid.Custom(func(r *rapid.T) Set {
		free := All(gpus)
		for range rapid.IntRange(0, gpus/2).Draw(r, "taken") {
			free &^= Chunk{uint8(rapid.IntRange(0, gpus-1).Draw(r, "start")), 0}.parent(anyLevel.Draw(r, "level")).GPUs()
		}
		return free
	}), nodes, nodes).Draw(r, "nodes")
}

var anyLevel = rapid.SampledFrom([]Level{0, 1, 2, 3})

// TestTheSmallestChunkDominates is the lemma of the package comment: however a
// sequence is placed, nothing fits then that does not fit after taking the
// smallest chunk each time; and in another order the same is left.
func TestTheSmallestChunkDominates(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		free := drawFree(r, 2, 8)
		levels := rapid.SliceOfN(anyLevel, 2, 3).Draw(r, "levels")
		left, ok := take(countsOf(free), levels)
		best, any := left.slots(), false
		packings(free, levels, func(other []Set) bool {
			any = true
			for l, s := range countsOf(other).slots() {
				if s > best[l] {
					r.Fatalf("left %v, but a packing leaves %v", left, countsOf(other))
				}
			}
			return ok
		})
		if any != ok {
			r.Fatalf("free %v, levels %v: taken %v, packable %v", countsOf(free), levels, ok, any)
		}
		again, okAgain := take(countsOf(free), rapid.Permutation(levels).Draw(r, "order"))
		if okAgain != ok || ok && again != left {
			r.Fatalf("in another order %v is left, not %v", again, left)
		}
	})
}

func take(n Counts, levels []Level) (Counts, bool) {
	for _, l := range levels {
		var ok bool
		if n, _, ok = n.Take(l); !ok {
			return n, false
		}
	}
	return n, true
}

// TestCountsAreRealised does to GPUs what Take does to counts.
func TestCountsAreRealised(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var ns Nodes
		for i, s := range drawFree(r, 5, 64) {
			ns = append(ns, Node{ID: uint64(i), Free: s})
		}
		for n := ns.Free(); ; {
			l := anyLevel.Draw(r, "level")
			left, from, ok := n.Take(l)
			d, found := Choose(ns, Request{Level: l})
			if ok != found || ok && d.From != from {
				r.Fatalf("counts %v: taken %v from %d, chosen %v from %d", n, ok, from, found, d.From)
			}
			if !ok {
				return
			}
			ns[d.Node], _ = ns[d.Node].Start(Request{Level: l}, d, 0)
			if n = left; ns.Free() != n {
				r.Fatalf("counts %v, on the GPUs %v", n, ns.Free())
			}
		}
	})
}

func TestSlotsInvert(t *testing.T) {
	for n := range demands(16) {
		if got := fromSlots(n.slots()); got != n {
			t.Fatalf("%v became %v", n, got)
		}
	}
}
