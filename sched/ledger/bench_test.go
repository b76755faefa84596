package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// shape is a class of clusters to measure.
type shape struct {
	name    string
	draw    func(*rand.Rand) Cycle
	groups  int
	jobs    int
	policy  Policy
	newJob  Cycle
	settled bool
}

func alike(rng *rand.Rand) Cycle {
	return []Cycle{model7B, model30B, model235B}[rng.IntN(3)]
}

// mixed cycles have periods of 120 to 900 seconds and are held 10 to 50 %.
func mixed(rng *rand.Rand) Cycle {
	p := 120 + rng.Int64N(780)
	n := 1 + rng.Int64N(4)
	held := p * (100 + rng.Int64N(400)) / 1000
	c := Cycle{Period: p}
	for i := range n {
		c.Segments = append(c.Segments, Segment{i * p / n, max(1, held/n), 4})
	}
	return c
}

var shapes = []shape{
	{"table2/free-groups", alike, 256, 200, Spread, model30B, false},
	{"table2/settled", alike, 256, 200, Spread, model30B, true},
	{"table2/packed", alike, 256, 200, Pack, model30B, false},
	{"mixed/free-groups", mixed, 256, 200, Spread, model30B, false},
	{"mixed/settled", mixed, 256, 200, Spread, model30B, true},
	{"mixed/packed", mixed, 256, 200, Pack, model30B, false},
	{"table2/full", alike, 64, 200, Spread, model30B, false},
	{"mixed/full", mixed, 64, 200, Spread, model30B, false},
	{"table2/few", alike, 3, 9, Spread, model235B, false},
	{"mixed/few", mixed, 3, 6, Spread, model30B, false},
	{"wide/refused", mixed, 64, 200, Spread, Cycle{600, []Segment{{0, 500, 4}}}, true},
}

// cluster places as many jobs as the shape says, if they fit.
func cluster(s shape) *Ledger {
	l := build(Default(), 0, slices.Repeat([]int64{4}, s.groups)...)
	rng := rand.New(rand.NewPCG(1, 2))
	for job := range 4 * s.jobs {
		if len(l.jobs) == s.jobs {
			break
		}
		f, err := l.Place(Request{Job: JobID(job + 1), Cycle: s.draw(rng), Ready: rng.Int64N(900), Policy: s.policy})
		if err != nil {
			continue
		}
		if err := l.Reserve(f.Fit); err != nil {
			panic(err)
		}
	}
	l.head = 1000
	return l
}

func BenchmarkPlace(b *testing.B) {
	for _, s := range shapes {
		l := cluster(s)
		request := Request{Job: 9999, Cycle: s.newJob, Ready: 1000, Policy: s.policy, Settled: s.settled}
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			var f Placement
			for b.Loop() {
				f, _ = l.Place(request)
			}
			report(b, l, f.Search)
		})
	}
}

func report(b *testing.B, l *Ledger, s Search) {
	share := func(n int64) float64 { return 100 * float64(n) / float64(s.Shifts) }
	b.ReportMetric(float64(len(l.jobs)), "jobs")
	b.ReportMetric(share(s.ByBounds), "%bounds")
	b.ReportMetric(share(s.ByIntervals), "%intervals")
	b.ReportMetric(float64(s.Tried), "tried")
}

// slotScan answers the same question by looking at slots: for every group and period,
// every shift, every cycle in the horizon and every slot of its segments.
func slotScan(l *Ledger, a Request) (best rank, found bool) {
	s := search{Ledger: l, Request: a, held: a.Cycle.Held(), width: a.Cycle.Width()}
	busy := make([]bool, l.config.Slots)
	for _, g := range l.groups {
		if !s.suited(g) || !s.bound(g) {
			continue
		}
		s.candidates(g)
		for _, c := range s.periods {
			var under circle
			if !under.layOut(c.period, g.under(c.period)) {
				continue
			}
			n := cycles(c.period, a.Cycle.Period)
			if held := under.held() + n*s.held; ppm(held, c.period) > l.config.DutyPPM && len(g.members) > 0 {
				continue
			}
			clear(busy)
			for _, i := range under.busy {
				for start := mod(i.start-l.head, c.period) - c.period; start < l.config.Slots; start += c.period {
					for t := max(0, start); t < min(start+i.end-i.start, l.config.Slots); t++ {
						busy[t] = true
					}
				}
			}
			for shift := range s.limit(c.period/n) + 1 {
				if !scanFits(busy, a.Cycle, a.Ready-l.head+shift, c.period, n) {
					continue
				}
				margin := mulDivUp(c.period/n, l.config.MarginPPM, million)
				if r := s.key(g, c, shift, under.interference(a.Cycle, a.Ready+shift, margin)); !found || r.compare(best) < 0 {
					best, found = r, true
				}
				break
			}
		}
	}
	return best, found
}

func scanFits(busy []bool, c Cycle, from, period, n int64) bool {
	for k := int64(0); ; k++ {
		start := from + begins(period, k, n)
		if start >= int64(len(busy)) {
			return true
		}
		for _, s := range c.Segments {
			for t := start + s.Offset; t < min(start+s.End(), int64(len(busy))); t++ {
				if busy[t] {
					return false
				}
			}
		}
	}
}

// TestPlaceIsTheScanOfSlots compares what is measured.
func TestPlaceIsTheScanOfSlots(t *testing.T) {
	for _, s := range shapes {
		if s.groups > 3 {
			continue // it takes too long under the race detector
		}
		l := cluster(s)
		request := Request{Job: 9999, Cycle: s.newJob, Ready: 1000, Policy: s.policy, Settled: s.settled}
		want, ok := slotScan(l, request)
		f, err := l.Place(request)
		if (err == nil) != ok || ok && (f.Group != GroupID(want[5]) || s.policy == Spread && f.Cost != want[0]) {
			t.Errorf("%s: %+v, %v, a scan finds %v, %v", s.name, f, err, want, ok)
		}
	}
}

func BenchmarkScanOfSlots(b *testing.B) {
	for _, s := range shapes {
		l := cluster(s)
		request := Request{Job: 9999, Cycle: s.newJob, Ready: 1000, Policy: s.policy, Settled: s.settled}
		b.Run(s.name, func(b *testing.B) {
			for b.Loop() {
				slotScan(l, request)
			}
		})
	}
}

func BenchmarkReserveRelease(b *testing.B) {
	l := cluster(shapes[0])
	f := must(l.Place(Request{Job: 9999, Cycle: model30B, Ready: 1000}))
	b.ReportAllocs()
	for b.Loop() {
		if l.Reserve(f.Fit) != nil || l.Release(9999) != nil {
			b.Fatal("it does not fit")
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	l := cluster(shapes[0])
	groups, reservations := l.Rows()
	b.ReportAllocs()
	for b.Loop() {
		must(Build(l.config, l.head, groups, reservations))
	}
}

// BenchmarkFinish ends cycles in time, and late so that others make room.
func BenchmarkFinish(b *testing.B) {
	for _, late := range []int64{0, 3} {
		b.Run(fmt.Sprintf("late=%d", late), func(b *testing.B) {
			l := build(Default(), 0, 4)
			for job := range JobID(4) {
				f := must(l.Place(Request{Job: job + 1, Cycle: model7B}))
				if err := l.Reserve(f.Fit); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				job := JobID(i%4 + 1)
				r, _ := l.Reservation(job)
				next := r.starts(290, 1)
				l.head = max(l.head, next-290)
				must(l.Finish(job, next+late))
			}
		})
	}
}
