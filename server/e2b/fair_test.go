package e2b

import (
	"testing"

	"pgregory.net/rapid"
)

// TestFair: one namespace gets half, the next one half of the rest, and all is returned.
func TestFair(t *testing.T) {
	f := newFair(100)
	count := func(namespace string) (n int64) {
		for f.change(namespace, 0, 1) {
			n++
		}
		return n
	}
	if a, b, c := count("a"), count("b"), count("c"); a != 50 || b != 25 || c != 12 {
		t.Errorf("they get %d, %d and %d", a, b, c)
	}
	if !f.change("a", 50, 10) || !f.change("b", 25, 0) || !f.change("c", 12, 0) {
		t.Error("less is refused")
	}
	if n := count("d"); n != 45 {
		t.Errorf("of 90 that are free, d gets %d", n)
	}
}

// TestFairKeepsCount: whatever is taken and returned, the units stay the same, and a namespace
// that holds nothing can have one while there are two.
func TestFairKeepsCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const units = 64
		f, held := newFair(units), map[string]int64{}
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "namespace")
			to := rapid.Int64Range(0, units).Draw(t, "to")
			if f.change(name, held[name], to) {
				held[name] = to
			} else if to <= held[name] {
				t.Fatalf("%s may not go from %d to %d", name, held[name], to)
			}
			if sum := f.free + held["a"] + held["b"] + held["c"]; sum != units || f.free < 0 {
				t.Fatalf("%d are free and %v are held", f.free, held)
			}
		}
		if free := f.free; free >= 2 && !f.change("new", 0, 1) {
			t.Fatalf("a new namespace gets none of %d", free)
		}
	})
}
