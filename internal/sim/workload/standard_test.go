package workload

import (
	"math"
	"testing"
)

func TestStandardNormal(t *testing.T) {
	for _, c := range []struct {
		p, z float64
	}{{0.5, 0}, {0.841345, 1}, {0.158655, -1}, {0.977250, 2}, {0.022750, -2}, {0.998650, 3}} {
		u := uint64(c.p * (1 << 62) * 4)
		if z := float64(Normal(u)) / 1e6; math.Abs(z-c.z) > 0.03 {
			t.Errorf("quantile %g is %g, want %g", c.p, z, c.z)
		}
		if at := NormalRank(int64(c.z*1e6), 100_000); math.Abs(float64(at)/1e5-c.p) > 0.003 {
			t.Errorf("%g falls on %d of 100,000, want %g", c.z, at, c.p*1e5)
		}
	}
	if Normal(0) < -4_500_000 || Normal(math.MaxUint64) > 4_500_000 || NormalRank(-9_000_000, 7) != 0 || NormalRank(9_000_000, 7) != 6 {
		t.Error("the ends are not bounded")
	}
}

func TestTimesExp(t *testing.T) {
	for _, c := range []struct{ v, x, want int64 }{
		{1000, 0, 1000}, {1000, 1_000_000, 2718}, {1000, -1_000_000, 367}, {0, 1_000_000, 0}, {-1, 0, 0},
		{1 << 61, 13_000_000, 1<<62 - 1}, {1, -14_000_000, 0},
	} {
		if got := TimesExp(c.v, c.x); got != c.want {
			t.Errorf("%d x e^%g is %d, want %d", c.v, float64(c.x)/1e6, got, c.want)
		}
	}
}
