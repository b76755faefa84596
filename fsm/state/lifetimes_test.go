package state

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLifetimeBuckets(t *testing.T) {
	last := int64(-1)
	for b := range LifetimeBucket(execNSMax) + 1 {
		least := LifetimeLeast(b)
		if least <= last || LifetimeBucket(least) != b || b > 0 && LifetimeBucket(least-1) != b-1 {
			t.Errorf("bucket %d begins at %d, after %d, and that is in bucket %d", b, least, last, LifetimeBucket(least))
		}
		if width := LifetimeLeast(b+1) - least; width > 1 && 4*width > least {
			t.Errorf("bucket %d of %d is %d wide", b, least, width)
		}
		last = least
	}
	if b := LifetimeBucket(-1); b != 0 {
		t.Errorf("less than nothing is in bucket %d", b)
	}
}

// Counts fade, and what is seen now outweighs what was seen long ago.
func TestLifetimesFade(t *testing.T) {
	c := &Class{}
	for range 10 * lifetimesMax {
		c = c.Lived(1000, true)
	}
	sum := func() (n uint64) {
		for _, l := range c.Lifetimes {
			n += l.Ended + l.Cut
		}
		return n
	}
	if n := sum(); n > lifetimesMax*LifetimeUnit || n < lifetimesMax*LifetimeUnit/2 {
		t.Errorf("%d attempts count for %d", 10*lifetimesMax, n)
	}
	for range lifetimesMax {
		c = c.Lived(1_000_000, true)
	}
	if q := c.Lifetimes.Quantiles(500_000)[0]; q < 900_000 || q > 1_100_000 {
		t.Errorf("the median is %d after %d attempts of 1,000,000", q, lifetimesMax)
	}
	for range 10 * lifetimesMax {
		c = c.Lived(1_000_000, false)
	}
	if len(c.Lifetimes) != 1 {
		t.Errorf("what was seen long ago is not forgotten: %v", c.Lifetimes)
	}
	if q := c.Lifetimes.Quantiles(990_000)[0]; q != 0 {
		t.Errorf("all were cut off, and 99 %% take %d", q)
	}
	for _, ns := range []int64{0, -1, execNSMax + 1} {
		if d := c.Lived(ns, true); d != c {
			t.Errorf("%d ns are learned", ns)
		}
	}
}

// The quantiles are those of Kaplan and Meier, over all attempts one by one.
func TestQuantilesOfLifetimes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		type attempt struct {
			ns    int64
			ended bool
		}
		all := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) attempt {
			return attempt{int64(rapid.IntRange(1, 1<<20).Draw(r, "ns")), rapid.Bool().Draw(r, "ended")}
		}), 1, 100).Draw(r, "attempts")
		c := &Class{}
		for _, a := range all {
			c = c.Lived(a.ns, a.ended)
		}
		ppm := []uint64{100_000, 500_000, 900_000, 1_000_000}
		got := c.Lifetimes.Quantiles(ppm...)
		if !slices.IsSorted(slices.DeleteFunc(slices.Clone(got), func(q int64) bool { return q == 0 })) {
			r.Fatalf("quantiles %v do not ascend", got)
		}
		// Those of a bucket end together, after all that are cut off before it.
		slices.SortFunc(all, func(a, b attempt) int { return int(LifetimeBucket(a.ns)) - int(LifetimeBucket(b.ns)) })
		alive, q := 1.0, 0
		for i := 0; i < len(all); {
			j, ended := i, 0.0
			for ; j < len(all) && LifetimeBucket(all[j].ns) == LifetimeBucket(all[i].ns); j++ {
				if all[j].ended {
					ended++
				}
			}
			alive *= 1 - ended/float64(len(all)-i)
			for ; q < len(ppm) && alive <= 1-float64(ppm[q])/1e6-1e-9; q++ {
				if b := LifetimeBucket(all[i].ns); got[q] < LifetimeLeast(b) || got[q] > LifetimeLeast(b+1) {
					r.Fatalf("%d ppm take %d, want from %d to %d", ppm[q], got[q], LifetimeLeast(b), LifetimeLeast(b+1))
				}
			}
			for ; q < len(ppm) && math.Abs(alive-1+float64(ppm[q])/1e6) < 1e-9; q++ {
			} // at a corner rounding decides
			i = j
		}
		for ; q < len(ppm); q++ {
			if got[q] != 0 && alive > 1-float64(ppm[q])/1e6+1e-9 {
				r.Fatalf("%d ppm take %d, and %f of all are alive in the end", ppm[q], got[q], alive)
			}
		}
	})
}
