package scale

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// shape is a class of demands to measure.
type shape struct {
	name string
	draw func(*rand.Rand) Demand
}

func seconds(rng *rand.Rand) int64 { return 1e6 + rng.Int64N(60e9) }

var shapes = []shape{
	{"convex-1-to-32", func(rng *rand.Rand) Demand {
		return must(Scaled(must(Range(1, 32)), Serial(rng.Int64N(400_000)), seconds(rng)))
	}},
	{"convex-1-to-256", func(rng *rand.Rand) Demand {
		return must(Scaled(must(Range(1, 256)), Serial(rng.Int64N(400_000)), seconds(rng)))
	}},
	{"powers-of-two", func(rng *rand.Rand) Demand {
		return must(Scaled(must(Set(1, 2, 4, 8, 16, 32, 64, 128)), Serial(rng.Int64N(400_000)), seconds(rng)))
	}},
	{"16-random-degrees", func(rng *rand.Rand) Demand {
		set := []int32{1}
		for u := int32(2); u <= 128; u++ {
			if rng.IntN(8) == 0 {
				set = append(set, u)
			}
		}
		return bumpy(rng, must(Set(set...)))
	}},
	{"not-convex-1-to-32", func(rng *rand.Rand) Demand { return bumpy(rng, must(Range(1, 32))) }},
	{"not-convex-1-to-256", func(rng *rand.Rand) Demand { return bumpy(rng, must(Range(1, 256))) }},
}

// bumpy falls by chance from degree to degree.
func bumpy(rng *rand.Rand, a DoPSet) Demand {
	ns := make([]int64, a.Len())
	last := seconds(rng)
	for i := range ns {
		ns[i] = last
		last -= rng.Int64N(last/int64(1+a.At(i)) + 1)
	}
	return must(NewDemand(a, ns))
}

// full is one pass of the size that the decision is designed for.
func full(s shape, waiting, running int) Input {
	rng := rand.New(rand.NewPCG(1, 2))
	g := Input{Free: 256, Candidates: 128}
	for range g.Candidates + waiting {
		g.Queue = append(g.Queue, s.draw(rng))
	}
	for range running {
		g.Running = append(g.Running, rng.Int64N(60e9))
	}
	return g
}

// everyEviction evaluates all evictions, whether they help or not.
func everyEviction(e *Elastic, g *Input) (sum total) {
	e.start(g)
	e.sort(g.Running)
	sum = e.objective()
	e.keep()
	for e.arranger.Len() > 1 {
		e.evict(g.Running)
		if t := e.objective(); t.less(sum) {
			sum = t
		}
		e.keep()
	}
	return sum
}

func BenchmarkEveryEviction(b *testing.B) {
	for _, s := range shapes {
		for _, size := range [][2]int{{0, 0}, {128, 0}, {128, 128}} {
			b.Run(fmt.Sprintf("%s/waiting=%d/running=%d", s.name, size[0], size[1]), func(b *testing.B) {
				g := full(s, size[0], size[1])
				var e Elastic
				b.ReportAllocs()
				for b.Loop() {
					everyEviction(&e, &g)
				}
			})
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			g := full(s, 128, 128)
			var e Elastic
			b.ReportAllocs()
			for b.Loop() {
				e.Decide(g)
			}
		})
	}
}

// BenchmarkLiteral evaluates all evictions as Algorithm 1 does: each with a table
// and a heap of its own.
func BenchmarkLiteral(b *testing.B) {
	for _, s := range shapes {
		for _, size := range [][2]int{{0, 0}, {128, 128}} {
			b.Run(fmt.Sprintf("%s/waiting=%d/running=%d", s.name, size[0], size[1]), func(b *testing.B) {
				g := full(s, size[0], size[1])
				l := literal{depth: DepthDefault}
				b.ReportAllocs()
				for b.Loop() {
					for n := g.Candidates; n > 0; n-- {
						l.objective(g, g.Queue, n, 0)
					}
				}
			})
		}
	}
}

// BenchmarkTable is what a demand costs before anything is decided.
func BenchmarkTable(b *testing.B) {
	for _, most := range []int32{8, 32, 256} {
		a := must(Range(1, most))
		b.Run(fmt.Sprintf("serial/%d", most), func(b *testing.B) {
			for b.Loop() {
				must(Scaled(a, Serial(50_000), 3e9))
			}
		})
		b.Run(fmt.Sprintf("points/%d", most), func(b *testing.B) {
			for b.Loop() {
				must(Scaled(a, Table{{2, 950_000}, {4, 900_000}, {8, 800_000}, {32, 500_000}}, 3e9))
			}
		})
	}
}

func TestTheHotPathAllocatesNothing(t *testing.T) {
	for _, s := range shapes {
		g := full(s, 128, 128)
		var e Elastic
		if n := testing.AllocsPerRun(3, func() { everyEviction(&e, &g); e.Decide(g) }); n > 0 {
			t.Errorf("%s: %v allocations", s.name, n)
		}
	}
}

// TestEveryEvictionIsTheLiteralObjective compares all objectives of a pass of full
// size with those of the literal algorithms.
func TestEveryEvictionIsTheLiteralObjective(t *testing.T) {
	for _, s := range shapes {
		if testing.Short() && s.name == "not-convex-1-to-256" {
			continue
		}
		g := full(s, 64, 64)
		e := Elastic{LookAhead: 64}
		e.start(&g)
		e.sort(g.Running)
		for n := g.Candidates; ; n -= 9 {
			want, _ := literal{depth: DepthDefault}.objective(g, g.Queue, n, 0)
			if got := e.objective(); got != (total{lo: uint64(want)}) {
				t.Fatalf("%s: the first %d: %v, want %d", s.name, n, got, want)
			}
			if n < 9 {
				break
			}
			for range 9 {
				e.evict(g.Running)
			}
		}
	}
}
