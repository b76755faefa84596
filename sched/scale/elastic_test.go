package scale

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawGroup(r *rapid.T, k kind, n, most, free int) Input {
	g := Input{
		Queue:   drawDemands(r, k, n, most),
		Free:    rapid.IntRange(0, free).Draw(r, "free"),
		Running: rapid.SliceOfN(rapid.Int64Range(-5, 80), 0, 8).Draw(r, "running"),
	}
	g.Candidates = rapid.IntRange(0, len(g.Queue)+1).Draw(r, "candidates")
	return g
}

// TestElasticIsTheLiteralAlgorithm compares decisions with Algorithms 1 to 3 as
// printed, corrections and "at most" apart: they are the same, ties included.
func TestElasticIsTheLiteralAlgorithm(t *testing.T) {
	for name, k := range map[string]kind{"convex ranges": convexRanges, "anything": anything} {
		t.Run(name, func(t *testing.T) {
			var e Elastic
			rapid.Check(t, func(r *rapid.T) {
				g := drawGroup(r, k, 24, 9, 60)
				e.Depth = rapid.IntRange(1, 4).Draw(r, "depth")
				e.LookAhead = rapid.SampledFrom([]int{-1, 3, 128}).Draw(r, "look-ahead")
				g.Behind = rapid.IntRange(0, 9).Draw(r, "behind")
				want := literal{depth: e.Depth, lookAhead: max(0, e.LookAhead)}.decide(g)
				if got := e.Decide(g); !slices.Equal(got, want) {
					r.Fatalf("%v, want %v", got, want)
				}
			})
		})
	}
}

// TestElasticOnATopologyThatIsALine: the operator makes no difference.
func TestElasticOnATopologyThatIsALine(t *testing.T) {
	var onLine, onOperator Elastic
	rapid.Check(t, func(r *rapid.T) {
		g := drawGroup(r, anything, 16, 9, 40)
		want := onLine.Decide(g)
		g.Topology = Line(g.Free)
		if got := onOperator.Decide(g); !slices.Equal(got, want) {
			r.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestElasticGuarantees: who starts is a prefix of the candidates and never
// empty if somebody fits; each gets a degree that it allows; together they get
// no more than is free.
func TestElasticGuarantees(t *testing.T) {
	var e Elastic
	rapid.Check(t, func(r *rapid.T) {
		g := drawGroup(r, rapid.SampledFrom([]kind{convexRanges, anything}).Draw(r, "kind"), 40, 12, 100)
		got := e.Decide(g)
		if len(got) > min(g.Candidates, len(g.Queue)) {
			r.Fatalf("%d start of %d candidates", len(got), g.Candidates)
		}
		sum := 0
		for i, k := range got {
			if d := &g.Queue[i]; !d.dops.Contains(k) || !d.Elastic() && k != d.dops.least {
				r.Fatalf("%d units for %+v", k, *d)
			}
			sum += int(k)
		}
		if sum > g.Free {
			r.Fatalf("%d units of %d", sum, g.Free)
		}
		if min(g.Candidates, len(g.Queue)) > 0 && int(g.Queue[0].dops.least) <= g.Free && len(got) == 0 {
			r.Fatal("nobody starts although the first fits")
		}
	})
}

// TestWithoutElasticityAllStart is Algorithm 1, line 6.
func TestWithoutElasticityAllStart(t *testing.T) {
	flat := must(NewDemand(must(Range(2, 4)), []int64{9, 9, 9}))
	g := Input{Free: 20, Candidates: 3, Queue: []Demand{Unknown(must(Range(1, 8))), must(Rigid(must(Range(3, 8)), 1000)), flat, flat}}
	var e Elastic
	if got := e.Decide(g); !slices.Equal(got, []int32{1, 3, 2}) {
		t.Errorf("%v", got)
	}
}

func TestElastic(t *testing.T) {
	linear := func(least, most int32, ns int64) Demand {
		return must(Scaled(must(Range(least, most)), Serial(0), ns))
	}
	for _, c := range []struct {
		name  string
		group Input
		want  string
	}{
		{"nobody waits", Input{Free: 8}, "[]"},
		{"nobody may start", Input{Free: 8, Queue: []Demand{linear(1, 8, 840)}}, "[]"},
		{"nobody fits", Input{Free: 1, Candidates: 1, Queue: []Demand{linear(2, 8, 840)}}, "[]"},
		{"alone, all of it", Input{Free: 8, Candidates: 1, Queue: []Demand{linear(1, 8, 840)}}, "[8]"},
		{"in a crowd each a little", Input{Free: 4, Candidates: 4, Queue: slices.Repeat([]Demand{linear(1, 8, 840)}, 14)}, "[1 1 1 1]"},
		{"one may wait to get more itself", Input{Free: 4, Candidates: 4, Queue: slices.Repeat([]Demand{linear(1, 8, 840)}, 4)}, "[2 1 1]"},
		{
			"a short one waits for what is about to end",
			Input{Free: 2, Candidates: 2, Running: []int64{1}, Queue: []Demand{linear(1, 8, 84000), linear(1, 1, 10)}}, "[2]",
		},
		{
			"but not for what takes long",
			Input{Free: 2, Candidates: 2, Running: []int64{90000}, Queue: []Demand{linear(1, 8, 84000), linear(1, 1, 10)}}, "[1 1]",
		},
		{
			"of equal objectives nobody is evicted", // 60+30 and 30+(30+30) are the same
			Input{Free: 2, Candidates: 2, Queue: []Demand{linear(1, 2, 60), linear(1, 1, 30)}}, "[1 1]",
		},
	} {
		if got := fmt.Sprint(new(Elastic).Decide(c.group)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestLongestSumsDoNotOverflow has as many actions as there may be, as long as
// they may be, and compares the objective with one of any precision.
func TestLongestSumsDoNotOverflow(t *testing.T) {
	long := must(NewDemand(must(Range(1, 2)), []int64{DurationMax, DurationMax - 1}))
	g := Input{Free: CandidatesMax + 1, Behind: 1 << 40, Candidates: CandidatesMax, Queue: slices.Repeat([]Demand{long}, CandidatesMax+lookAheadMax+9)}
	for _, running := range [][]int64{nil, {DurationMax, 1 << 62}} {
		g.Running = running
		e := Elastic{LookAhead: lookAheadMax}
		e.start(&g)
		e.sort(g.Running)
		for e.arranger.Len() > 1 {
			e.objective()
			e.evict(g.Running)
		}
		got := e.objective()
		ends := []int64{DurationMax - 1}
		for range running {
			ends = append(ends, DurationMax)
		}
		want := precise(ends, e.arranger.Cost(), e.first[1], e.least[2:])
		have := new(big.Int).SetUint64(got.hi)
		have.Lsh(have, 64).Add(have, new(big.Int).SetUint64(got.lo))
		if have.Cmp(want) != 0 {
			t.Errorf("objective %v, want %v", have, want)
		}
		if want.BitLen() <= 63 {
			t.Errorf("%v is no test of anything", want)
		}
	}
}

// precise is the objective without bounds on numbers.
func precise(ends []int64, cost, first int64, rest []int64) *big.Int {
	h := []*big.Int{}
	for _, end := range ends {
		h = append(h, big.NewInt(end))
	}
	sum := big.NewInt(cost)
	slots := big.NewInt(int64(len(h)))
	for _, ns := range append([]int64{first}, rest...) {
		slices.SortFunc(h, (*big.Int).Cmp)
		h[0] = new(big.Int).Add(h[0], big.NewInt(ns))
		sum.Add(sum, h[0])
	}
	slices.SortFunc(h, (*big.Int).Cmp)
	m := big.NewInt(behindMax)
	sum.Add(sum, h[0].Mul(h[0], m))
	m.Mul(m, big.NewInt(behindMax-1)).Mul(m, big.NewInt(DurationMax/2))
	return sum.Add(sum, m.Quo(m, slots))
}

func TestReplaceAndRemoveKeepOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := rapid.SliceOfN(rapid.Int64Range(0, 20), 1, 20).Draw(r, "s")
		was := rapid.SampledFrom(s).Draw(r, "was")
		is := rapid.Int64Range(0, 20).Draw(r, "is")
		slices.Sort(s)
		want := slices.Clone(s)
		want[slices.Index(want, was)] = is
		slices.Sort(want)
		replace(s, was, is)
		if !slices.Equal(s, want) {
			r.Fatalf("%v, want %v", s, want)
		}
		want = slices.Delete(want, slices.Index(want, is), slices.Index(want, is)+1)
		if s = remove(s, is); !slices.Equal(s, want) {
			r.Fatalf("%v, want %v", s, want)
		}
	})
}
