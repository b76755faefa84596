package scale

import (
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawCurve(r *rapid.T) Curve {
	if rapid.Bool().Draw(r, "serial") {
		return Serial(rapid.Int64Range(0, Whole).Draw(r, "ppm"))
	}
	var t Table
	units, speed := int32(0), int64(Whole)
	for range rapid.IntRange(1, 6).Draw(r, "points") {
		units += rapid.Int32Range(1, 40).Draw(r, "units")
		least := (speed + int64(units) - 1) / int64(units)
		p := Point{units, rapid.Int64Range(min(least, Whole), Whole).Draw(r, "ratio")}
		if units == 1 {
			p.Ratio = Whole
		}
		speed = p.Ratio * int64(units)
		t = append(t, p)
	}
	return t
}

// exactly is equation 1 in rational numbers.
func exactly(c Curve, ns int64, m int32) *big.Rat {
	one := big.NewRat(Whole, 1)
	if s, ok := c.(Serial); ok {
		part := big.NewRat((Whole-int64(s))/1, int64(m))
		part.Add(part, big.NewRat(int64(s), 1))
		return part.Mul(part, big.NewRat(ns, 1)).Quo(part, one)
	}
	before := Point{1, Whole}
	speed := big.NewRat(0, 1)
	for _, p := range c.(Table) {
		if p.Units >= m {
			if run := int64(p.Units - before.Units); run > 0 {
				speed.SetFrac64((int64(p.speed())-int64(before.speed()))*int64(m-before.Units), run)
			}
			break
		}
		before = p
	}
	speed.Add(speed, big.NewRat(int64(before.speed()), 1))
	whole := new(big.Rat).Mul(big.NewRat(ns, 1), one)
	return whole.Quo(whole, speed)
}

func TestScaledIsEquationOne(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c, a := drawCurve(r), drawDoPSet(r, anything, 300)
		ns := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, 1<<40), rapid.Int64Range(DurationMax-9, DurationMax)).Draw(r, "ns")
		d, err := Scaled(a, c, ns)
		if err != nil {
			r.Fatal(err)
		}
		for i, got := range d.ns {
			want := exactly(c, ns, a.At(i))
			// The speed-up between two points is rounded to the millionth.
			slack := new(big.Rat).Mul(want, big.NewRat(1, Whole))
			high := new(big.Rat).Add(want, slack)
			high.Add(high, big.NewRat(int64(i)+2, 1))
			is := big.NewRat(got, 1)
			if is.Cmp(new(big.Rat).Sub(want, big.NewRat(1, 1<<10))) < 0 || is.Cmp(high) > 0 {
				r.Fatalf("%d units: %d ns, by equation 1 %s", a.At(i), got, want.FloatString(3))
			}
		}
	})
}

// TestSerialIsConvex: rounding does not take marginal allocation away from
// Amdahl's law, however short the action is.
func TestSerialIsConvex(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		most := rapid.Int32Range(1, 512).Draw(r, "most")
		ns := rapid.OneOf(rapid.Int64Range(1, 10000), rapid.Int64Range(1, DurationMax)).Draw(r, "ns")
		d := must(Scaled(must(Range(1, most)), Serial(rapid.Int64Range(0, Whole).Draw(r, "ppm")), ns))
		if d.ns[0] != ns {
			r.Fatalf("%d ns with one unit, want %d", d.ns[0], ns)
		}
		if !d.Convex() {
			r.Fatalf("not convex: %v", d.ns)
		}
	})
}

func TestConvex(t *testing.T) {
	for _, c := range []struct {
		ns   []int64
		want bool
	}{
		{nil, true},
		{[]int64{5}, true},
		{[]int64{9, 2}, true},
		{[]int64{9, 6, 4, 3, 3}, true},
		{[]int64{9, 6, 3, 0}, true},
		{[]int64{9, 6, 5, 3}, false},
		{[]int64{9, 9, 8}, false},
	} {
		if got := Convex(c.ns); got != c.want {
			t.Errorf("%v: %v", c.ns, got)
		}
	}
	set := must(NewDemand(must(Set(1, 2, 4)), []int64{9, 6, 4}))
	if set.Convex() {
		t.Error("a set with gaps is not for marginal allocation")
	}
}

func TestBadDemandsAreRefused(t *testing.T) {
	ten := must(Range(1, 10))
	refusal := func(_ any, err error) error { return err }
	scaled := func(c Curve, ns int64) error { return refusal(Scaled(ten, c, ns)) }
	for _, c := range []struct {
		want string
		err  error
	}{
		{"at least 1", refusal(Range(0, 4))},
		{"below the least", refusal(Range(5, 4))},
		{"at most 1048576", refusal(Range(1, UnitsMax+1))},
		{"degrees to choose from", refusal(Range(1, dopsMax+1))},
		{"empty", refusal(Set())},
		{"at least 1", refusal(Set(-1))},
		{"ascend", refusal(Set(1, 4, 4))},
		{"at most 1048576", refusal(Set(UnitsMax + 1))},
		{"0 durations for 10 degrees", refusal(NewDemand(ten, nil))},
		{"at least 1", refusal(Rigid(ten, 0))},
		{"may be at most", refusal(Rigid(ten, DurationMax+1))},
		{"longer than", refusal(NewDemand(must(Set(1, 4)), []int64{3, 4}))},
		{"serial fraction", scaled(Serial(-1), 1)},
		{"serial fraction", scaled(Serial(Whole+1), 1)},
		{"duration with 1 unit", scaled(Serial(0), 0)},
		{"duration with 1 unit", scaled(Serial(0), DurationMax+1)},
		{"empty", scaled(Table{}, 1)},
		{"ascend", scaled(Table{{2, Whole}, {2, Whole}}, 1)},
		{"at most 1048576", scaled(Table{{UnitsMax + 1, Whole}}, 1)},
		{"between 1 and", scaled(Table{{2, 0}}, 1)},
		{"between 1 and", scaled(Table{{2, Whole + 1}}, 1)},
		{"by definition", scaled(Table{{1, Whole - 1}}, 1)},
		{"slower", scaled(Table{{2, Whole / 3}}, 1)},
		{"slower", scaled(Table{{2, Whole}, {3, Whole / 2}}, 1)},
		{"nothing was seen", refusal(Learned(ten, nil))},
		{"seen after", refusal(Learned(ten, []Seen{{2, 5, 1}, {1, 5, 1}}))},
		{"a duration of", refusal(Learned(ten, []Seen{{2, 0, 1}}))},
		{"attempts were seen", refusal(Learned(ten, []Seen{{2, 5, 0}}))},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want it to say %q", c.err, c.want)
		}
	}
}

func TestMonotone(t *testing.T) {
	for _, c := range []struct {
		name string
		seen []Seen
		want []int64
	}{
		{"as it is", []Seen{{1, 9, 1}, {2, 5, 1}, {4, 5, 1}}, []int64{9, 5, 5}},
		{"two pooled", []Seen{{1, 9, 1}, {2, 4, 1}, {4, 6, 1}}, []int64{9, 5, 5}},
		{"by attempts", []Seen{{1, 9, 1}, {2, 3, 1}, {4, 6, 2}}, []int64{9, 5, 5}},
		{"a lucky one weighs little", []Seen{{1, 90, 1}, {2, 1, 1}, {4, 50, 99}}, []int64{90, 49, 49}},
		{"back to the first", []Seen{{1, 4, 1}, {2, 3, 1}, {4, 11, 1}}, []int64{6, 6, 6}},
		{"largest", []Seen{{1, DurationMax - 1, AttemptsMax}, {2, DurationMax, AttemptsMax}}, []int64{DurationMax - 1, DurationMax - 1}},
	} {
		if got := Monotone(c.seen); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestMonotoneIsClosest compares with every way to cut what was seen into pools:
// the closest monotone durations are the means of some pools.
func TestMonotoneIsClosest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		seen := make([]Seen, rapid.IntRange(1, 7).Draw(r, "seen"))
		for i := range seen {
			// Multiples of all sums of attempts: means are whole.
			seen[i] = Seen{int32(i + 1), 5040 * rapid.Int64Range(1, 30).Draw(r, "ns"), 1}
		}
		got := Monotone(seen)
		if best := closest(seen); distance(seen, got) > best {
			r.Fatalf("%v is %d away, the closest %d", got, distance(seen, got), best)
		}
		for i := 1; i < len(got); i++ {
			if got[i] > got[i-1] {
				r.Fatalf("%v", got)
			}
		}
	})
}

func distance(seen []Seen, ns []int64) (sum int64) {
	for i, s := range seen {
		sum += (s.NS - ns[i]) * (s.NS - ns[i])
	}
	return sum
}

func closest(seen []Seen) int64 {
	best := int64(1) << 62
	for cuts := range 1 << (len(seen) - 1) {
		ns, from := []int64{}, 0
		for i := range seen {
			if i < len(seen)-1 && cuts>>i&1 == 0 {
				continue
			}
			sum := int64(0)
			for _, s := range seen[from : i+1] {
				sum += s.NS
			}
			for range i + 1 - from {
				ns = append(ns, sum/int64(i+1-from))
			}
			from = i + 1
		}
		if slices.IsSortedFunc(ns, func(a, b int64) int { return int(b - a) }) {
			best = min(best, distance(seen, ns))
		}
	}
	return best
}

func TestLearned(t *testing.T) {
	d := must(Learned(must(Range(1, 10)), []Seen{{2, 600, 3}, {4, 400, 3}, {8, 360, 1}}))
	if want := []int64{1200, 600, 500, 400, 390, 380, 370, 360, 360, 360}; !slices.Equal(d.ns, want) {
		t.Errorf("%v, want %v", d.ns, want)
	}
	d = must(Learned(must(Range(1, 2)), []Seen{{1000, DurationMax, 1}}))
	if want := []int64{DurationMax, DurationMax}; !slices.Equal(d.ns, want) {
		t.Errorf("%v, want %v", d.ns, want)
	}
}
