package scale

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bruteWorth tries every division, with floating-point speed-ups of its own, and returns
// the greatest sum of weighted speed-ups.
func bruteWorth(free int, demands []Demand, weights []int64) float64 {
	if len(demands) == 0 {
		return 0
	}
	d, best := &demands[0], math.Inf(-1)
	for i := range max(1, len(d.ns)) {
		units := int(d.dops.At(i))
		if units > free {
			break
		}
		best = max(best, worthOf(d, i)*float64(weights[0])+bruteWorth(free-units, demands[1:], weights[1:]))
	}
	return best
}

// worthOf is the speed-up with the i-th degree; in a range it is the best mixture of two
// degrees, one below and one above.
func worthOf(d *Demand, i int) float64 {
	speed := func(i int) float64 {
		return min(float64(d.dops.least)*float64(d.ns[0])/float64(d.ns[i]), float64(d.dops.At(i)))
	}
	if len(d.ns) < 2 {
		return 0
	}
	best := speed(i)
	if d.dops.Contiguous() {
		for a := range i {
			for b := i + 1; b < len(d.ns); b++ {
				best = max(best, speed(a)+(speed(b)-speed(a))*float64(i-a)/float64(b-a))
			}
		}
	}
	return best
}

// drawWeighted draws demands that fit together, their weights and what is free.
func drawWeighted(r *rapid.T, k kind) (free int, demands []Demand, weights []int64) {
	demands = drawDemands(r, k, 5, 7)
	least := 0
	for i := range demands {
		least += int(demands[i].dops.least)
		weights = append(weights, rapid.Int64Range(1, 50).Draw(r, "weight")*1000)
	}
	return least + rapid.IntRange(0, 12).Draw(r, "slack"), demands, weights
}

func divide(t testing.TB, free int, demands []Demand, weights []int64) []int32 {
	worth := make([]Demand, len(demands))
	for i := range demands {
		var err error
		if worth[i], err = demands[i].Worth(weights[i]); err != nil {
			t.Fatal(err)
		}
		if !worth[i].Convex() && worth[i].dops.Contiguous() {
			t.Fatalf("not convex: %v", worth[i].ns)
		}
	}
	var a Arranger
	a.OnLine(free, worth, 0)
	return dopsOf(&a)
}

func TestDivisionIsOfGreatestWorth(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		free, demands, weights := drawWeighted(r, anything)
		widths := divide(t, free, demands, weights)
		got, sum := 0.0, 0
		for i, w := range widths {
			sum += int(w)
			at := 0
			for demands[i].dops.At(at) < w {
				at++
			}
			got += worthOf(&demands[i], at) * float64(weights[i])
		}
		if sum > free || len(widths) != len(demands) {
			r.Fatalf("%v of %d", widths, free)
		}
		// Speed-ups are rounded down by some millionths.
		want := bruteWorth(free, demands, weights)
		if got < want*(1-1e-3) {
			r.Fatalf("%v is worth %f, want %f", widths, got, want)
		}
	})
}

func TestEqualsGetEqualShares(t *testing.T) {
	unknown := must(Scaled(must(Range(1, 256)), AssumedCurve, 1<<40))
	for n := 1; n <= 256; n++ {
		demands := slices.Repeat([]Demand{unknown}, n)
		widths := divide(t, 256, demands, slices.Repeat([]int64{WeightMax}, n))
		sum := int32(0)
		for _, w := range widths {
			sum += w
		}
		if sum != 256 || slices.Max(widths)-slices.Min(widths) > 1 {
			t.Fatalf("%d get %v", n, widths)
		}
	}
}

func TestDivision(t *testing.T) {
	to16 := must(Range(1, 16))
	perfect := must(Scaled(to16, Serial(0), 1<<30))
	serial := must(Scaled(to16, Serial(Whole/2), 1<<30))
	one := must(Scaled(must(Range(1, 1)), Serial(0), 1<<30))
	step := must(Scaled(must(Set(1, 8)), Serial(0), 1<<30)) // all or little
	for name, tc := range map[string]struct {
		free    int
		demands []Demand
		weights []int64
		want    []int32
	}{
		"none":                      {8, nil, nil, []int32{}},
		"one takes what it can use": {64, []Demand{perfect}, []int64{1}, []int32{16}},
		"to whom it helps":          {16, []Demand{serial, perfect}, []int64{1, 1}, []int32{1, 15}},
		"to who ends soon":          {16, []Demand{serial, serial}, []int64{9, 1}, []int32{12, 4}},
		"no more than it may":       {8, []Demand{one, serial}, []int64{1000, 1}, []int32{1, 7}},
		"a degree that fits":        {9, []Demand{step, step}, []int64{1, 2}, []int32{1, 8}},
		"and none that does not":    {8, []Demand{step, step}, []int64{1, 2}, []int32{1, 1}},
		"of equals the older":       {3, []Demand{perfect, perfect}, []int64{1, 1}, []int32{2, 1}},
		"unknown is worth nothing":  {8, []Demand{Unknown(to16), serial}, []int64{9, 1}, []int32{1, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := divide(t, tc.free, tc.demands, tc.weights); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestWeight(t *testing.T) {
	const second = int64(1e9)
	last := Weight(0)
	if last != WeightMax {
		t.Errorf("the weight of one that ends now is %d", last)
	}
	for ns := int64(1); ns < DurationMax; ns += 1 + ns/64 {
		w := Weight(ns)
		want := WeightMax * math.Pow(1024/float64(max(ns, 1024)), 0.3)
		if w > last || float64(w) < want-1 || float64(w) > want*1.2 {
			t.Fatalf("the weight of %d ns is %d after %d, want %f", ns, w, last, want)
		}
		last = w
	}
	if a, b := Weight(second), Weight(1000*second); a < 7*b || a > 9*b {
		t.Errorf("a second weighs %d and a thousand %d", a, b)
	}
	if Weight(math.MaxInt64) < 1 {
		t.Error("the weight of the longest is 0")
	}
}

func TestStepWeight(t *testing.T) {
	last := int64(1)
	for ns := int64(1); ns < DurationMax; ns += 1 + ns/64 {
		w := StepWeight(ns)
		if w < last || w > WeightMax {
			t.Fatalf("in a step, %d ns weigh %d after %d", ns, w, last)
		}
		last = w
	}
	if a, b := StepWeight(10e9), Weight(10e9); a != b {
		t.Errorf("10 s weigh %d in a step, %d outside", a, b)
	}
}

func TestWorthRefuses(t *testing.T) {
	d := must(Scaled(must(Range(1, 4)), AssumedCurve, 1<<40))
	for _, weight := range []int64{-1, 0, WeightMax + 1} {
		if _, err := d.Worth(weight); err == nil {
			t.Errorf("a weight of %d is accepted", weight)
		}
	}
	wide := must(Scaled(must(Set(1, UnitsMax)), Serial(0), DurationMax))
	if _, err := wide.Worth(1); err == nil {
		t.Error("a speed-up by a million is accepted")
	}
}

// FuzzWorth has curves that are no curves: whatever durations a class has learned, there
// is a division, and no unit is given twice.
func FuzzWorth(f *testing.F) {
	f.Add([]byte{9, 9, 9, 1, 200}, uint16(20))
	f.Fuzz(func(t *testing.T, drops []byte, free uint16) {
		if len(drops) < 2 || len(drops) > 512 {
			return
		}
		ns := []int64{1 + 1<<20}
		for _, b := range drops[1:] {
			ns = append(ns, max(1, ns[len(ns)-1]-int64(b)<<(drops[0]%32)))
		}
		d := must(NewDemand(must(Range(1, int32(len(ns)))), ns))
		sum := 0
		for _, w := range divide(t, int(free), []Demand{d, d, d}, []int64{1, WeightMax, 77}) {
			sum += int(w)
		}
		if sum > int(free) {
			t.Fatalf("%d of %d units are given", sum, free)
		}
	})
}

// BenchmarkDivide divides 256 units among 128 actions, whose demands are known: those of a
// class that weigh the same share one.
func BenchmarkDivide(b *testing.B) {
	var worth []Demand
	for i := range 128 {
		d := must(Scaled(must(Range(1, 64)), Serial(Whole/int64(i%7+4)), 1<<30))
		worth = append(worth, must(d.Worth(WeightMax>>(i%9))))
	}
	var a Arranger
	b.ReportAllocs()
	for b.Loop() {
		a.OnLine(256, worth, 0)
	}
	if a.Len() != len(worth) {
		b.Fatalf("%d of %d fit", a.Len(), len(worth))
	}
}

func BenchmarkWorth(b *testing.B) {
	d := must(Scaled(must(Range(1, 64)), Serial(Whole/20), 1<<30))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Worth(WeightMax / 3); err != nil {
			b.Fatal(err)
		}
	}
}
