package chunk

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// on is a resident that takes a whole GPU.
func on(v Variant, start uint8, l Level, used int64) Resident {
	return Resident{Variant: v, Chunk: Chunk{start, l}, Used: used}
}

// worth is the resident with a worth.
func worth(r Resident, w uint64) Resident {
	r.Worth = w
	return r
}

func TestChoose(t *testing.T) {
	node := func(id uint64, free Set, rs ...Resident) Node { return Node{ID: id, Free: free, Residents: rs} }
	for _, c := range []struct {
		name    string
		nodes   Nodes
		request Request
		chose   string // node, first GPU, number of GPUs, hit, evicted
	}{
		{"an empty node is cut from its start",
			Nodes{node(1, All(8))},
			Request{Variant: 1, Level: 1}, "1 0+2 miss []"},
		{"the smallest chunk that suffices, on whatever node",
			Nodes{node(1, All(8)), node(2, 0b1111_0000)},
			Request{Variant: 1, Level: 1}, "2 4+2 miss []"},
		{"a resident in a larger chunk before a smaller chunk",
			Nodes{node(1, 0b11), node(2, All(8), on(1, 6, 1, 5))},
			Request{Variant: 1, Level: 1}, "2 6+2 hit []"},
		{"of two residents the one in the smaller chunk",
			Nodes{node(1, All(8), on(1, 6, 1, 5)), node(2, 0b1100, on(1, 2, 1, 4))},
			Request{Variant: 1, Level: 1}, "2 2+2 hit []"},
		{"of two residents alike the first",
			Nodes{node(1, 0b1111, on(1, 2, 1, 4), on(1, 0, 1, 5))},
			Request{Variant: 1, Level: 1}, "1 0+2 hit []"},
		{"whichever was used last",
			Nodes{node(1, 0b1111, on(1, 0, 1, 4), on(1, 2, 1, 5))},
			Request{Variant: 1, Level: 1}, "1 0+2 hit []"},
		{"a resident of another size is another's",
			Nodes{node(1, 0b1111, on(1, 0, 1, 4), on(1, 2, 0, 5))},
			Request{Variant: 1, Level: 0}, "1 2+1 hit []"},
		{"a resident is of no use while one of its GPUs is not free",
			Nodes{node(1, 0b1110, on(1, 0, 2, 5))},
			Request{Variant: 1, Level: 2}, ""},
		{"a variant of another degree is another service",
			Nodes{node(1, 0b1111, on(1, 0, 2, 5)), node(2, 0b11)},
			Request{Variant: 2, Level: 1}, "2 0+2 miss []"},
		{"a resident that would break a promise is passed by",
			Nodes{node(1, 0b11), node(2, All(8), on(1, 6, 1, 5))},
			Request{Variant: 1, Level: 1, Rest: Counts{0, 0, 0, 1}}, "1 0+2 miss []"},
		{"nothing is free but what is promised",
			Nodes{node(2, All(8), on(1, 6, 1, 5))},
			Request{Variant: 1, Level: 1, Rest: Counts{0, 0, 0, 1}}, ""},
		{"nobody is evicted where that can be avoided",
			Nodes{node(1, All(8), on(2, 4, 1, 1), on(3, 0, 2, 5))},
			Request{Variant: 1, Level: 1}, "1 6+2 miss []"},
		{"the least recently used goes, wherever in the chunk it is",
			Nodes{node(1, All(4), on(2, 0, 1, 7), on(3, 2, 1, 8)), node(2, All(4), on(4, 2, 1, 6), on(5, 0, 1, 9))},
			Request{Variant: 1, Level: 1}, "2 2+2 miss [4]"},
		{"a chunk is as recently used as its last used resident",
			Nodes{node(1, All(8), on(2, 0, 0, 1), on(3, 4, 2, 5), on(4, 1, 0, 9), on(5, 2, 1, 9))},
			Request{Variant: 1, Level: 1}, "1 4+2 miss [3]"},
		{"used at the same time: the first node, the first chunk",
			Nodes{node(1, 0b1111_0000, on(2, 4, 1, 3), on(3, 6, 1, 3)), node(2, 0b1111, on(4, 0, 2, 3))},
			Request{Variant: 1, Level: 1}, "1 4+2 miss [2]"},
		{"all that overlap go, least recently used first",
			Nodes{node(1, All(8), on(4, 7, 0, 1), on(2, 0, 2, 2), on(3, 4, 1, 8))},
			Request{Variant: 1, Level: 3}, "1 0+8 miss [4 2 3]"},
		{"no model: nothing is resident afterwards, and all memory is needed",
			Nodes{node(1, All(1), on(2, 0, 0, 2))},
			Request{}, "1 0+1 miss [2]"},
		{"nothing is free", Nodes{node(1, 0)}, Request{Level: 0}, ""},
		{"there is no such level", Nodes{node(1, All(64))}, Request{Level: 4}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.request.SetUp = 9
			if got := describe(Choose(c.nodes, c.request)); got != c.chose {
				t.Errorf("chose %q, want %q", got, c.chose)
			}
		})
	}
}

func TestChooseByWorth(t *testing.T) {
	node := func(id uint64, free Set, rs ...Resident) Node { return Node{ID: id, Free: free, Residents: rs} }
	for _, c := range []struct {
		name    string
		nodes   Nodes
		request Request
		chose   string // node, first GPU, number of GPUs, hit, evicted
	}{
		{"what is worth least goes, whenever it was used",
			Nodes{node(1, All(4), worth(on(2, 0, 1, 7), 5), worth(on(3, 2, 1, 1), 6))},
			Request{Variant: 1, Level: 1}, "1 0+2 miss [2]"},
		{"worth the same: the least recently used",
			Nodes{node(1, All(4), worth(on(3, 2, 1, 1), 5), worth(on(2, 0, 1, 7), 5))},
			Request{Variant: 1, Level: 1}, "1 2+2 miss [3]"},
		{"the cheapest eviction in any chunk, not the smallest chunk",
			Nodes{node(1, 0b0001, worth(on(2, 0, 0, 1), 9)), node(2, All(2), worth(on(3, 0, 0, 3), 4), worth(on(4, 1, 0, 2), 8))},
			Request{Variant: 1, Level: 0}, "2 0+1 miss [3]"},
		{"no eviction in any chunk",
			Nodes{node(1, 0b0001, worth(on(2, 0, 0, 1), 9)), node(2, All(2), worth(on(3, 0, 0, 3), 4))},
			Request{Variant: 1, Level: 0}, "2 1+1 miss []"},
		{"worth nothing: the smallest chunk",
			Nodes{node(1, 0b0001, on(2, 0, 0, 7)), node(2, All(2), on(3, 0, 0, 3))},
			Request{Variant: 1, Level: 0}, "1 0+1 miss [2]"},
		{"a promise before a cheap eviction",
			Nodes{node(1, 0b0001, worth(on(2, 0, 0, 1), 9)), node(2, All(2))},
			Request{Variant: 1, Level: 0, Rest: Counts{0, 1}}, "1 0+1 miss [2]"},
		{"what is awaited stays, whatever it is worth",
			Nodes{node(1, All(2), worth(on(2, 0, 0, 1), 3), worth(on(3, 1, 0, 2), 9))},
			Request{Variant: 1, Level: 0, Awaited: []int32{0, 1, 1, 0}}, "1 1+1 miss [3]"},
		{"what is awaited goes where there is nothing else",
			Nodes{node(1, All(2), worth(on(2, 0, 0, 1), 3), worth(on(3, 1, 0, 2), 9))},
			Request{Variant: 1, Level: 0, Awaited: []int32{0, 0, 1, 1}}, "1 0+1 miss [2]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.request.SetUp = 9
			if got := describe(Choose(c.nodes, c.request)); got != c.chose {
				t.Errorf("chose %q, want %q", got, c.chose)
			}
		})
	}
}

func describe(d Decision, ok bool) string {
	if !ok {
		return ""
	}
	how := "miss"
	if d.Hit {
		how = "hit"
	}
	if (d.SetUp == 0) != d.Hit {
		how += " with a wrong cost"
	}
	evicted := []Variant{}
	for _, r := range d.Evict {
		evicted = append(evicted, r.Variant)
	}
	return fmt.Sprintf("%d %d+%d %s %v", d.Node, d.Chunk.Start, d.Chunk.Units(), how, evicted)
}

func TestMemory(t *testing.T) {
	sized := func(v Variant, start uint8, l Level, used int64, bytes uint64) Resident {
		return Resident{Variant: v, Chunk: Chunk{start, l}, Bytes: bytes, Used: used}
	}
	for _, c := range []struct {
		name    string
		node    Node
		request Request
		chose   string
	}{
		{"there is room beside others",
			Node{Free: All(2), Memory: 80, Residents: []Resident{sized(2, 0, 1, 1, 50)}},
			Request{Variant: 1, Level: 1, Bytes: 30}, "0 0+2 miss []"},
		{"only the oldest goes if that is enough",
			Node{Free: All(2), Memory: 80, Residents: []Resident{sized(2, 0, 1, 1, 40), sized(3, 0, 1, 2, 40)}},
			Request{Variant: 1, Level: 1, Bytes: 40}, "0 0+2 miss [2]"},
		{"an old one stays if a newer has to go anyway",
			Node{Free: All(2), Memory: 80, Residents: []Resident{sized(2, 0, 1, 1, 20), sized(3, 0, 1, 2, 60)}},
			Request{Variant: 1, Level: 1, Bytes: 60}, "0 0+2 miss [3]"},
		{"one that is in the way on one GPU goes from all",
			Node{Free: All(2), Memory: 80, Residents: []Resident{sized(2, 0, 2, 1, 80)}},
			Request{Variant: 1, Level: 0, Bytes: 1}, "0 0+1 miss [2]"},
		{"larger than declared is as large as can be",
			Node{Free: All(1), Memory: 80, Residents: []Resident{sized(2, 0, 0, 1, 1<<63)}},
			Request{Variant: 1, Level: 0, Bytes: 80}, "0 0+1 miss [2]"},
		{"what no GPU has room for is refused",
			Node{Free: All(8), Memory: 80}, Request{Variant: 1, Level: 0, Bytes: 81}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.request.SetUp = 9
			if got := describe(Choose(Nodes{c.node}, c.request)); got != c.chose {
				t.Errorf("chose %q, want %q", got, c.chose)
			}
		})
	}
}

// drawNodes draws nodes with some GPUs free and residents on some chunks, idle or
// not.
func drawNodes(r *rapid.T) Nodes {
	var ns Nodes
	for i, free := range drawFree(r, 3, 16) {
		n := Node{ID: uint64(10 * i), Free: free, Memory: 80}
		if rapid.IntRange(0, 4).Draw(r, "undeclared") == 0 {
			n.Memory = 0
		}
		for range rapid.IntRange(0, 6).Draw(r, "residents") {
			v := Variant(rapid.IntRange(1, 5).Draw(r, "variant"))
			c := Chunk{uint8(rapid.IntRange(0, 15).Draw(r, "start")), 0}.parent(variantLevel(v))
			if n.resident(v, c) < 0 {
				n.Residents = append(n.Residents, Resident{Variant: v, Chunk: c, Bytes: variantBytes(v), Used: int64(rapid.IntRange(0, 5).Draw(r, "used"))})
			}
		}
		slices.SortFunc(n.Residents, Resident.Compare)
		ns = append(ns, n)
	}
	return ns
}

// option is a chunk that could be chosen.
type option struct {
	d       Decision
	last    int64  // use of the evicted that are worth most
	worth   uint64 // of the dearest
	awaited bool   // one of the evicted is
}

// options are all of them, best first by LRU: a hit, the smallest chunk, the one that was last
// used longest ago.
func options(ns Nodes, w Request, awaited ...Variant) (all []option) {
	for i := range ns {
		n := &ns[i]
		if n.Memory > 0 && w.Bytes > n.Memory {
			continue
		}
		for s := 0; s < GPUsMax; s += w.Level.Units() {
			c := Chunk{uint8(s), w.Level}
			left, ok := n.Free.Take(c)
			rest := slices.Clone(ns)
			rest[i].Free = left
			if !ok || !rest.Free().Fits(w.Rest) {
				continue
			}
			o := option{d: Decision{Node: n.ID, Chunk: c}, last: -1}
			for _, f := range freeChunks(n.Free) {
				if f.GPUs()&c.GPUs() != 0 {
					o.d.From = f.Level
				}
			}
			if o.d.Hit = w.Variant != 0 && n.resident(w.Variant, c) >= 0; !o.d.Hit {
				o.d.SetUp, o.d.Evict = w.SetUp, evicted(n, c, w.Bytes)
			}
			for _, r := range o.d.Evict {
				o.worth = max(o.worth, r.Worth)
				o.awaited = o.awaited || slices.Contains(awaited, r.Variant)
			}
			for _, r := range o.d.Evict {
				if r.Worth == o.worth {
					o.last = max(o.last, r.Used)
				}
			}
			all = append(all, o)
		}
	}
	slices.SortStableFunc(all, func(a, b option) int {
		if a.d.Hit != b.d.Hit {
			return map[bool]int{true: -1, false: 1}[a.d.Hit]
		}
		return cmp.Or(cmp.Compare(a.d.From, b.d.From), cmp.Compare(a.last, b.last))
	})
	return all
}

// evicted says it as the paper does: the least recently used goes until there is
// room. Then those come back, newest first, that there is room for.
func evicted(n *Node, c Chunk, bytes uint64) (gone []Resident) {
	room := func(kept []Resident) (short Set) {
		for g := range GPUsMax {
			used := uint64(0)
			if c.GPUs()>>g&1 == 1 {
				used = n.footprint(bytes)
			}
			for _, r := range kept {
				if r.Chunk.GPUs()>>g&1 == 1 {
					used += n.footprint(r.Bytes)
				}
			}
			if used > n.capacity() && c.GPUs()>>g&1 == 1 {
				short |= 1 << g
			}
		}
		return short
	}
	kept := slices.Clone(n.Residents)
	for _, r := range n.Residents {
		if room(kept)&r.Chunk.GPUs() != 0 {
			kept = slices.DeleteFunc(kept, func(k Resident) bool { return k == r })
			gone = append(gone, r)
		}
	}
	for _, r := range slices.Backward(slices.Clone(gone)) {
		if back := append(slices.Clone(kept), r); room(back)&r.Chunk.GPUs() == 0 {
			kept, gone = back, slices.DeleteFunc(gone, func(k Resident) bool { return k == r })
		}
	}
	return gone
}

// TestCheapestAgainstAllOptions compares with looking at every chunk, where models have a worth
// and some are awaited.
func TestCheapestAgainstAllOptions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ns := drawNodes(r)
		for i := range ns {
			for j := range ns[i].Residents {
				ns[i].Residents[j].Worth = rapid.Uint64Range(0, 3).Draw(r, "worth")
			}
			slices.SortFunc(ns[i].Residents, Resident.Compare)
		}
		v := Variant(rapid.IntRange(1, 5).Draw(r, "variant"))
		w := Request{Variant: v, Level: variantLevel(v), Bytes: variantBytes(v), SetUp: 7}
		var awaited []Variant
		for v := range Variant(6) {
			w.Awaited = append(w.Awaited, int32(rapid.IntRange(0, 1).Draw(r, "awaited")))
			if w.Awaited[v] > 0 {
				awaited = append(awaited, v)
			}
		}
		for range rapid.IntRange(0, 4).Draw(r, "promised") {
			w.Rest = w.Rest.put(anyLevel.Draw(r, "level"))
		}
		got, ok := Choose(ns, w)
		all := options(ns, w, awaited...)
		if ok != (len(all) > 0) {
			r.Fatalf("chose %+v, %v, options %+v", got, ok, all)
		}
		if !ok || all[0].d.Hit {
			return
		}
		best := slices.MinFunc(all, func(a, b option) int { // the first of those alike
			wait := func(o option) int { return map[bool]int{true: 1}[o.awaited] }
			return cmp.Or(cmp.Compare(wait(a), wait(b)), cmp.Compare(a.worth, b.worth), cmp.Compare(a.d.From, b.d.From), cmp.Compare(a.last, b.last))
		})
		if fmt.Sprint(got) != fmt.Sprint(best.d) {
			r.Fatalf("chose %+v, best is %+v", got, best.d)
		}
	})
}

// TestChooseAgainstAllOptions compares with looking at every chunk, where no model has a worth:
// the decisions are those of LRU.
func TestChooseAgainstAllOptions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ns := drawNodes(r)
		v := Variant(rapid.IntRange(0, 5).Draw(r, "variant"))
		w := Request{Variant: v, Level: variantLevel(v), Bytes: variantBytes(v), SetUp: 7}
		if v == 0 {
			w.Bytes = uint64(rapid.IntRange(0, 90).Draw(r, "bytes"))
		}
		for range rapid.IntRange(0, 4).Draw(r, "promised") {
			w.Rest = w.Rest.put(anyLevel.Draw(r, "level"))
		}
		before := fmt.Sprint(ns)
		got, ok := Choose(ns, w)
		all := options(ns, w)
		if ok != (len(all) > 0) {
			r.Fatalf("chose %+v, %v, options %+v", got, ok, all)
		}
		if !ok {
			return
		}
		if fmt.Sprint(got) != fmt.Sprint(all[0].d) {
			r.Fatalf("chose %+v, best is %+v", got, all[0].d)
		}
		started, ok := ns[got.Node/10].Start(w, got, 8)
		if !ok || v != 0 && started.resident(v, got.Chunk) < 0 || fmt.Sprint(ns) != before {
			r.Fatalf("%+v started on %+v, %v", got, started, ok)
		}
	})
}

// TestStartRefusesAnOldDecision starts twice what was decided once.
func TestStartRefusesAnOldDecision(t *testing.T) {
	n := Node{ID: 1, Free: All(8), Residents: []Resident{on(2, 0, 3, 1)}}
	w := Request{Variant: 1, Level: 2}
	d, _ := Choose(Nodes{n}, w)
	started, ok := n.Start(w, d, 5)
	if !ok {
		t.Fatal("the decision was refused at once")
	}
	if _, ok := started.Start(w, d, 6); ok {
		t.Error("a chunk was taken twice")
	}
	ended, _ := started.End(1, d.Chunk, 6)
	if _, ok := ended.Start(w, d, 7); ok {
		t.Error("a resident that is gone was evicted again")
	}
	hit, _ := Choose(Nodes{ended}, w)
	other := ended
	other.Residents = nil
	if _, ok := other.Start(w, hit, 7); ok || !hit.Hit {
		t.Error("a hit was taken for granted")
	}
	if other.ID = 2; hit.Hit {
		if _, ok := other.Start(w, hit, 7); ok {
			t.Error("a decision for another node was accepted")
		}
	}
	again, _ := ended.Start(w, hit, 9)
	if len(again.Residents) != 1 || again.Residents[0].Used != 9 || ended.Residents[0].Used != 6 || started.Residents[0].Used != 5 {
		t.Errorf("used at 5, 6 and 9: %v, %v, %v", started.Residents, ended.Residents, again.Residents)
	}
	if len(n.Residents) != 1 || n.Free != All(8) {
		t.Error("the node changed")
	}
}

// Nodes is a View of a few nodes, by ID: it looks at all of them.
type Nodes []Node

// Free implements View.
func (ns Nodes) Free() Counts {
	var sum Counts
	for i := range ns {
		sum = sum.Add(ns[i].Free.Counts())
	}
	return sum
}

// Holders implements View.
func (ns Nodes) Holders(v Variant, visit func(*Node) bool) {
	for i := range ns {
		has := slices.ContainsFunc(ns[i].Residents, func(r Resident) bool { return r.Variant == v })
		if has && !visit(&ns[i]) {
			return
		}
	}
}

// Offering implements View.
func (ns Nodes) Offering(l Level, visit func(*Node) bool) {
	for i := range ns {
		if ns[i].Free.maximal(l) != 0 && !visit(&ns[i]) {
			return
		}
	}
}

// All returns the set of the first n GPUs.
func All(n int) Set {
	if n >= GPUsMax {
		return ^Set(0)
	}
	return 1<<max(n, 0) - 1
}
