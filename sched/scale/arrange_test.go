package scale

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// kind of demands to draw.
type kind int

const (
	convexRanges kind = iota
	anything
)

// drawDemand draws a demand with few degrees and small durations, so that ties
// and flat curves are common.
func drawDemand(r *rapid.T, k kind, most int) Demand {
	dops := drawDoPSet(r, k, most)
	switch rapid.IntRange(0, 9).Draw(r, "known") {
	case 0:
		return Unknown(dops)
	case 1:
		return must(Rigid(dops, rapid.Int64Range(1, 40).Draw(r, "ns")))
	}
	gains := make([]int64, dops.Len()-1)
	sum := int64(0)
	for i := range gains {
		gains[i] = rapid.Int64Range(0, 12).Draw(r, "gain")
		sum += gains[i]
	}
	if k == convexRanges {
		slices.Sort(gains)
		slices.Reverse(gains)
	}
	ns := []int64{sum + rapid.Int64Range(1, 20).Draw(r, "last")}
	for _, g := range gains {
		ns = append(ns, ns[len(ns)-1]-g)
	}
	return must(NewDemand(dops, ns))
}

func drawDoPSet(r *rapid.T, k kind, most int) DoPSet {
	if k == convexRanges || rapid.Bool().Draw(r, "range") {
		least := rapid.IntRange(1, most).Draw(r, "least")
		return must(Range(int32(least), int32(rapid.IntRange(least, most).Draw(r, "most"))))
	}
	set := rapid.SliceOfNDistinct(rapid.Int32Range(1, int32(most)), 1, 4, rapid.ID).Draw(r, "set")
	slices.Sort(set)
	return must(Set(set...))
}

func drawDemands(r *rapid.T, k kind, n, most int) []Demand {
	demands := make([]Demand, rapid.IntRange(0, n).Draw(r, "demands"))
	for i := range demands {
		demands[i] = drawDemand(r, k, most)
	}
	return demands
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// brute tries every allocation, and returns the best cost and degrees. Of equals
// it is the one that gives the last demand the least, then the one before it.
func brute(op Operator, demands []Demand, unknown int64) (int64, []int32) {
	best, bestKs := int64(math.MaxInt64), []int32(nil)
	ks := make([]int32, len(demands))
	var try func(n, state int, cost int64)
	try = func(n, state int, cost int64) {
		if n == 0 {
			if cost < best {
				best, bestKs = cost, slices.Clone(ks)
			}
			return
		}
		d := &demands[n-1]
		for i := range d.choices() {
			ks[n-1] = d.dops.At(i)
			if left, ok := op.Prev(state, int(ks[n-1])); ok {
				try(n-1, left, cost+d.duration(i, unknown))
			}
		}
	}
	try(len(demands), op.Full(), 0)
	return best, bestKs
}

func dopsOf(a *Arranger) []int32 {
	ks := []int32{}
	for i := range a.Len() {
		ks = append(ks, a.DoP(i))
	}
	return ks
}

// checkArranged compares every prefix with what want says of it.
func checkArranged(r *rapid.T, a *Arranger, demands []Demand, want func(prefix []Demand) (int64, []int32)) {
	r.Helper()
	for {
		n := a.Len()
		cost, ks := want(demands[:n])
		if got := dopsOf(a); a.Cost() != cost || !slices.Equal(got, ks) {
			r.Fatalf("the first %d cost %d with %v, want %d with %v", n, a.Cost(), got, cost, ks)
		}
		if n == 0 {
			return
		}
		a.Evict()
	}
}

func TestArrangeIsOptimal(t *testing.T) {
	for name, k := range map[string]kind{"convex ranges": convexRanges, "anything": anything} {
		t.Run(name, func(t *testing.T) {
			var a Arranger
			rapid.Check(t, func(r *rapid.T) {
				demands := drawDemands(r, k, 5, 7)
				free := rapid.IntRange(0, 24).Draw(r, "free")
				a.OnLine(free, demands, 7)
				fits, least := 0, 0
				for fits < len(demands) && least+int(demands[fits].dops.least) <= free {
					least += int(demands[fits].dops.least)
					fits++
				}
				if a.Len() != fits {
					r.Fatalf("%d fit, want %d", a.Len(), fits)
				}
				checkArranged(r, &a, demands, func(prefix []Demand) (int64, []int32) {
					return brute(Line(free), prefix, 7)
				})
			})
		})
	}
}

// TestOneTableAnswersAllPrefixes compares, for larger inputs than can be tried
// out, one arrangement with a table for each prefix, with the operator's table,
// and with marginal allocation where that is exact.
func TestOneTableAnswersAllPrefixes(t *testing.T) {
	for name, k := range map[string]kind{"convex ranges": convexRanges, "anything": anything} {
		t.Run(name, func(t *testing.T) {
			var a, onTable, onOperator Arranger
			rapid.Check(t, func(r *rapid.T) {
				demands := drawDemands(r, k, 16, 12)
				free := rapid.IntRange(0, 80).Draw(r, "free")
				separate := func(prefix []Demand) (int64, []int32) {
					if len(prefix) == 0 {
						return 0, nil
					}
					return literalArrange(free, prefix, false, 7)
				}
				a.OnLine(free, demands, 7)
				n := a.Len()
				if k == convexRanges && !a.convex {
					r.Fatal("not handed out unit by unit")
				}
				checkArranged(r, &a, demands, separate)
				onOperator.On(Line(free), demands, 7)
				if onOperator.Len() != n {
					r.Fatalf("%d fit by the operator, %d without", onOperator.Len(), n)
				}
				checkArranged(r, &onOperator, demands, separate)
				arrangeByTable(&onTable, free, demands[:n], 7)
				checkArranged(r, &onTable, demands, separate)
			})
		})
	}
}

// arrangeByTable is OnLine without marginal allocation.
func arrangeByTable(a *Arranger, free int, fitting []Demand, unknown int64) {
	a.demands, a.convex = a.start(fitting, unknown), false
	a.table.fillLine(free, fitting, unknown)
	a.trace()
}

func TestMoreUnitsNeverCostMore(t *testing.T) {
	var a Arranger
	rapid.Check(t, func(r *rapid.T) {
		k := rapid.SampledFrom([]kind{convexRanges, anything}).Draw(r, "kind")
		demands := drawDemands(r, k, 12, 9)
		last, fitted := int64(math.MaxInt64), 0
		for free := range 100 {
			a.OnLine(free, demands, 7)
			if a.Len() < fitted {
				r.Fatalf("%d fit into %d, fewer than before", a.Len(), free)
			}
			if a.Len() == fitted && a.Cost() > last {
				r.Fatalf("%d units cost %d, fewer cost %d", free, a.Cost(), last)
			}
			last, fitted = a.Cost(), a.Len()
		}
	})
}

// buddies is a topology that is not a line: free chunks of 1, 2 and 4, where
// degrees are powers of two and a larger chunk is split if need be.
type buddies struct{ free [3]int }

func (b buddies) States() int { return 5 * 5 * 5 }
func (b buddies) Full() int   { return encode(b.free) }

func encode(c [3]int) int { return c[0] + 5*c[1] + 25*c[2] }

func (b buddies) Prev(j, k int) (int, bool) {
	c := [3]int{j % 5, j / 5 % 5, j / 25}
	for level := range c {
		if 1<<level < k || c[level] == 0 {
			continue
		}
		c[level]--
		for l := level - 1; l >= 0 && 1<<l >= k; l-- {
			c[l]++
		}
		return encode([3]int{min(c[0], 4), min(c[1], 4), c[2]}), true
	}
	return 0, false
}

func TestArrangeOnATopologyIsOptimal(t *testing.T) {
	var a Arranger
	rapid.Check(t, func(r *rapid.T) {
		var op buddies
		for i := range op.free {
			op.free[i] = rapid.IntRange(0, 2).Draw(r, "chunks")
		}
		demands := make([]Demand, rapid.IntRange(0, 5).Draw(r, "demands"))
		for i := range demands {
			ns := []int64{30, 20, 15}
			ns[0] += rapid.Int64Range(0, 9).Draw(r, "a")
			ns[1] += rapid.Int64Range(0, 9).Draw(r, "b")
			demands[i] = must(NewDemand(must(Set(1, 2, 4)), ns))
		}
		a.On(op, demands, 7)
		if n := a.Len(); n < len(demands) {
			if _, ks := brute(op, demands[:n+1], 7); ks != nil {
				r.Fatalf("only %d fit, but so does the next: %v", n, ks)
			}
		}
		checkArranged(r, &a, demands, func(prefix []Demand) (int64, []int32) { return brute(op, prefix, 7) })
	})
}

// TestIsValidIsWhatTheTableSays: a cell of the literal table is finite if and
// only if IsValid holds for it.
func TestIsValidIsWhatTheTableSays(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		demands := drawDemands(r, anything, 5, 7)
		end := 0
		for i := range demands {
			end += int(demands[i].dops.At(demands[i].choices() - 1))
		}
		free := rapid.IntRange(0, 30).Draw(r, "free")
		if len(demands) == 0 {
			return
		}
		cost, _ := literalArrange(free, demands, true, 7)
		if valid := isValid(min(free, end), demands); valid != (cost < math.MaxInt64) {
			r.Fatalf("valid is %v, and the cost is %d", valid, cost)
		}
	})
}

func TestArrange(t *testing.T) {
	linear := func(least, most int32, ns int64) Demand {
		return must(Scaled(must(Range(least, most)), Serial(0), ns))
	}
	pow := func(ns ...int64) Demand { return must(NewDemand(must(Set(1, 2, 4, 8)), ns)) }
	for _, c := range []struct {
		name    string
		free    int
		demands []Demand
		want    string
		cost    int64
	}{
		{"nobody", 8, nil, "[]", 0},
		{"no room", 1, []Demand{linear(2, 4, 60)}, "[]", 0},
		{"all to one", 8, []Demand{linear(1, 8, 840)}, "[8]", 105},
		{"half each", 8, []Demand{linear(1, 8, 840), linear(1, 8, 840)}, "[4 4]", 420},
		{"odd unit to the older", 3, []Demand{linear(1, 8, 840), linear(1, 8, 840)}, "[2 1]", 1260},
		{"most to the longest", 6, []Demand{linear(1, 8, 100), linear(1, 8, 900)}, "[2 4]", 275},
		{"what helps nobody stays free", 9, []Demand{pow(10, 5, 5, 5)}, "[2]", 5},
		{"no exact sum is needed", 7, []Demand{pow(80, 40, 20, 10)}, "[4]", 20},
		{"the first of three does not fit exactly", 23, []Demand{pow(80, 40, 20, 10), pow(80, 40, 20, 10), pow(80, 40, 20, 10)}, "[8 8 4]", 40},
		{"the prefix that fits", 5, []Demand{linear(2, 2, 10), linear(2, 3, 30), linear(4, 4, 10)}, "[2 3]", 5 + 10},
		{"unknown gets the least", 9, []Demand{Unknown(must(Range(1, 8))), linear(1, 8, 840)}, "[1 8]", 112},
	} {
		var a Arranger
		a.OnLine(c.free, c.demands, 7)
		if got := fmt.Sprint(dopsOf(&a)); got != c.want || a.Cost() != c.cost {
			t.Errorf("%s: %s at %d, want %s at %d", c.name, got, a.Cost(), c.want, c.cost)
		}
	}
}

// Line is the basic operator: any k of j free units. Arranger.OnLine does the
// same faster.
type Line int

// States implements Operator.
func (l Line) States() int { return int(l) + 1 }

// Full implements Operator.
func (l Line) Full() int { return int(l) }

// Prev implements Operator.
func (l Line) Prev(j, k int) (int, bool) { return j - k, k <= j }
