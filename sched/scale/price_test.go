package scale

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func drawPrice(r *rapid.T) Price {
	return Price{
		Coming:  rapid.IntRange(0, 3).Draw(r, "coming"),
		Waiting: rapid.IntRange(0, 40).Draw(r, "waiting"), Units: rapid.IntRange(1, 40).Draw(r, "units"),
		Until: rapid.Int64Range(0, 200).Draw(r, "until"), Alone: rapid.Bool().Draw(r, "alone"),
	}
}

// costOf is what units cost by the definition, in fractions.
func costOf(p Price, at, ns int64, units int32) *big.Rat {
	dear := max(0, min(at+ns, p.Until)-at)
	sum := big.NewRat(int64(p.Waiting)*int64(units)*dear, int64(p.Units))
	sum.Add(sum, big.NewRat(at+ns, 1))
	sum.Add(sum, big.NewRat(int64(p.Coming)*int64(units)*ns, int64(p.Units)))
	if p.Alone {
		sum.Add(sum, big.NewRat(int64(p.Waiting)*at, 1))
	}
	return sum
}

// cheapest is the least that an action costs that begins at a time, and with how
// much it is: the least such degree.
func cheapest(p Price, d *Demand, units int, at int64) (k int32, cost *big.Rat) {
	for i, ns := range d.ns {
		if m := d.dops.At(i); int(m) <= units {
			if c := costOf(p, at, ns, m); cost == nil || c.Cmp(cost) < 0 {
				k, cost = m, c
			}
		}
	}
	return k, cost
}

// TestNarrow: what is left are the degrees up to that which costs least.
func TestNarrow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := drawPrice(r)
		for _, d := range drawDemands(r, anything, 4, 12) {
			got := p.Narrow(d)
			if !d.Elastic() {
				if got.dops.most != d.dops.most {
					r.Fatalf("%+v of %+v", got, d)
				}
				continue
			}
			most, _ := cheapest(p, &d, UnitsMax, 0)
			if got.dops.least != d.dops.least || got.dops.most != most || got.dops.Len() != len(got.ns) {
				r.Fatalf("%+v of %+v, want at most %d", got, d, most)
			}
			for i := range got.ns {
				if got.dops.At(i) != d.dops.At(i) || got.ns[i] != d.ns[i] {
					r.Fatalf("%+v of %+v", got, d)
				}
			}
		}
	})
}

// TestWaits: an action waits for units that come free if that costs less than what it
// can have now, and is at an end by which twice as much is free.
func TestWaits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := drawPrice(r)
		var ends []End
		at := int64(0)
		for range rapid.IntRange(0, 8).Draw(r, "running") {
			at += rapid.Int64Range(0, 40).Draw(r, "end")
			ends = append(ends, End{at, rapid.Int32Range(1, 9).Draw(r, "units")})
		}
		for _, d := range drawDemands(r, anything, 4, 12) {
			free := int(d.dops.least) + rapid.IntRange(0, 9).Draw(r, "free")
			want := false
			if d.Elastic() {
				_, now := cheapest(p, &d, free, 0)
				had, more := free, free
				for _, e := range ends {
					if more += int(e.Units); more >= 2*had {
						_, later := cheapest(p, &d, more, e.At)
						want = want || later.Cmp(now) < 0
						had = more
					}
				}
			}
			if got := p.Waits(&d, free, ends); got != want {
				r.Fatalf("%v, want %v", got, want)
			}
		}
	})
}

// TestPriceOfTheLongest does not overflow.
func TestPriceOfTheLongest(t *testing.T) {
	p := Price{Waiting: behindMax, Units: UnitsMax, Until: 1 << 62, Alone: true}
	got := p.cost(DurationMax, DurationMax, UnitsMax)
	// Twice as long to the end, and behindMax others delayed by each of both halves.
	want := new(big.Int).Mul(big.NewInt(DurationMax), big.NewInt(UnitsMax))
	want.Mul(want, big.NewInt(2+2*behindMax))
	have := new(big.Int).SetUint64(got.hi)
	have.Lsh(have, 64).Add(have, new(big.Int).SetUint64(got.lo))
	if have.Cmp(want) != 0 {
		t.Errorf("%v, want %v", have, want)
	}
}

// TestPriceAmong: half as many again as wait and could have been narrower, and two that
// always may come, but on few units.
func TestPriceAmong(t *testing.T) {
	for _, c := range []struct {
		units, waiting, elastic int
		work                    int64
		want                    Price
	}{
		{16, 3, 2, 170, Price{Units: 16, Waiting: 7, Until: 10, Coming: 2}},
		{7, 0, 0, 0, Price{Units: 7, Coming: 1}},
		{3, 2, 0, 30, Price{Units: 3, Waiting: 3, Until: 10}},
	} {
		if got := PriceAmong(c.units, c.waiting, c.elastic, c.work); got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}
