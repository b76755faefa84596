package state

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSizesAreLearned(t *testing.T) {
	c := &Class{}
	if c = c.Sized(0, 1000); c.Sizes != nil {
		t.Errorf("without a hint it learns sizes: %v", c.Sizes)
	}
	c = c.Sized(5, 1000).Sized(7, 3000).Sized(0, 8000).Sized(1<<64-1, 1<<52)
	want := []SizeSeen{{0, (4000 + (1<<52-4000)/4), 4}, {3, 2000, 2}, {64, 1 << 52, 1}}
	if !slices.Equal(c.Sizes, want) {
		t.Errorf("it knows %v, want %v", c.Sizes, want)
	}
	for _, ns := range []int64{0, -1, execNSMax + 1} {
		if d := c.Sized(5, ns); d != c {
			t.Errorf("%d ns are learned", ns)
		}
	}
}

// The mean stays within what was seen, whatever comes in whatever order, and no row that
// was there before is changed.
func TestSizesAreMeans(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c, n := &Class{}, rapid.IntRange(1, 200).Draw(r, "attempts")
		least, most := int64(execNSMax), int64(0)
		for range n {
			hint, ns := rapid.Uint64Min(1).Draw(r, "hint"), rapid.Int64Range(1, execNSMax).Draw(r, "ns")
			least, most = min(least, ns), max(most, ns)
			old, were := c, slices.Clone(c.Sizes)
			c = c.Sized(hint, ns)
			if !slices.Equal(old.Sizes, were) {
				r.Fatalf("the row before was changed from %v to %v", were, old.Sizes)
			}
		}
		if !slices.IsSortedFunc(c.Sizes, func(a, b SizeSeen) int { return int(a.Octave) - int(b.Octave) }) || c.Sizes[0].Attempts != uint64(n) {
			r.Fatalf("%d attempts are learned as %v", n, c.Sizes)
		}
		for _, z := range c.Sizes {
			if z.MeanNS < least || z.MeanNS > most {
				r.Fatalf("%v is not between %d and %d", z, least, most)
			}
		}
	})
}
