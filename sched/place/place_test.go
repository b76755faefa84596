package place

import (
	"fmt"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

func TestCores(t *testing.T) {
	two := []state.CoreSet{state.CoreRange(0, 4), state.CoreRange(4, 4)}
	free := func(cpus ...int) state.CoreSet {
		var s state.CoreSet
		for _, c := range cpus {
			s.Add(c)
		}
		return s
	}
	for _, c := range []struct {
		name string
		free state.CoreSet
		n    int
		want string
	}{
		{"the NUMA node that it leaves the least of", free(0, 1, 2, 5, 6), 2, "[5 6]"},
		{"one that has just enough", free(0, 1, 2, 3, 5), 1, "[5]"},
		{"across two if none has enough, fullest first", free(0, 4, 5, 6), 4, "[0 4 5 6]"},
		{"then the smallest rest that suffices", free(0, 1, 2, 4, 5), 4, "[0 1 2 4]"},
		{"no more than are free", free(1, 7), 5, "[1 7]"},
	} {
		if got := fmt.Sprint(Cores(two, c.free, c.n).Slice()); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestCoresSpanFewestNUMANodes compares with all choices of NUMA nodes.
func TestCoresSpanFewestNUMANodes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var numa []state.CoreSet
		var free state.CoreSet
		for i := range rapid.IntRange(1, 4).Draw(r, "numa") {
			numa = append(numa, state.CoreRange(i*6, 6))
			for c := range 6 {
				if rapid.Bool().Draw(r, "free") {
					free.Add(i*6 + c)
				}
			}
		}
		n := rapid.IntRange(0, 20).Draw(r, "n")
		got := Cores(numa, free, n)
		if got.Minus(free) != (state.CoreSet{}) || got.Len() != min(n, free.Len()) {
			r.Fatalf("asked for %d of %v, got %v", n, free.Slice(), got.Slice())
		}
		if used, best := spanned(numa, got), fewest(numa, free, got.Len()); used != best {
			r.Fatalf("%d NUMA nodes used, %d suffice", used, best)
		}
	})
}

func spanned(numa []state.CoreSet, s state.CoreSet) (n int) {
	for _, c := range numa {
		if c.Intersect(s) != (state.CoreSet{}) {
			n++
		}
	}
	return n
}

func fewest(numa []state.CoreSet, free state.CoreSet, n int) int {
	best := len(numa)
	for subset := range uint(1) << len(numa) {
		cores := 0
		for i, c := range numa {
			if subset>>i&1 == 1 {
				cores += c.Intersect(free).Len()
			}
		}
		if cores >= n {
			best = min(best, bits.OnesCount(subset))
		}
	}
	return best
}

func BenchmarkCores(b *testing.B) {
	var numa []state.CoreSet
	for i := range 8 {
		numa = append(numa, state.CoreRange(i*32, 32))
	}
	free := state.CoreRange(0, 256)
	for b.Loop() {
		Cores(numa, free, 4)
	}
}
