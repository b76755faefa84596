package evaluate

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/internal/sim"
	"rota/internal/sim/workload"
)

const second = 1_000_000_000

// shareCase is a job: when it comes, what it can use and what it needs.
type shareCase struct{ at, milli, work int64 }

// finishes runs jobs on a node and returns when each ended.
func finishes(cores int64, jobs []shareCase) []int64 {
	var loop sim.Loop
	s := newShare(&loop, cores)
	ends := make([]int64, len(jobs))
	for i, j := range jobs {
		loop.At(j.at, func() { s.add(j.milli, j.work, func() { ends[i] = loop.Now() }) })
	}
	loop.Run(math.MaxInt64)
	return ends
}

func TestCoresAreSharedAsTheKernelDoes(t *testing.T) {
	for _, c := range []struct {
		name  string
		cores int64
		jobs  []shareCase
		want  []float64 // seconds
	}{
		{"alone, one core of two", 2, []shareCase{{0, 1000, 10 * second}}, []float64{10}},
		{"alone, all it can use", 8, []shareCase{{0, 4000, 12 * second}}, []float64{3}},
		// 2/3 of a core each until the first ends at 15 s; then a core each.
		{"three on two cores", 2, []shareCase{{0, 1000, 10 * second}, {0, 1000, 20 * second}, {0, 1000, 30 * second}},
			[]float64{15, 25, 35}},
		// The wide one gets what the others leave: two cores of four, and four when
		// they have ended at 10 s with 20 of 30 core seconds done.
		{"one that can use four", 4, []shareCase{{0, 4000, 30 * second}, {0, 1000, 10 * second}, {0, 1000, 10 * second}},
			[]float64{12.5, 10, 10}},
		// Four shares of one core: 0.25 each, also to the one that can use 0.5.
		{"a limit that does not bind", 1, []shareCase{{0, 500, second}, {0, 1000, second}, {0, 1000, second}, {0, 4000, second}},
			[]float64{4, 4, 4, 4}},
		// The first works alone for 5 s and shares the core until it ends.
		{"a late one", 1, []shareCase{{0, 1000, 10 * second}, {5 * second, 1000, 10 * second}}, []float64{15, 20}},
		{"nothing to do", 1, []shareCase{{3 * second, 1000, 0}}, []float64{3}},
	} {
		for i, got := range finishes(c.cores, c.jobs) {
			if d := float64(got)/second - c.want[i]; d < 0 || d > 0.001 {
				t.Errorf("%s: job %d ends at %d ns, want %g s", c.name, i, got, c.want[i])
			}
		}
	}
}

// naiveShare is the same division in small steps of floating point.
func naiveShare(cores float64, jobs []shareCase) []float64 {
	left, ends, now := make([]float64, len(jobs)), make([]float64, len(jobs)), 0.0
	for i, j := range jobs {
		left[i], ends[i] = float64(j.work)/second, -1
	}
	for slices.Contains(ends, -1) {
		rates, next := naiveRates(cores, now, jobs, ends), math.Inf(1)
		for i, j := range jobs {
			switch at := float64(j.at) / second; {
			case ends[i] >= 0:
			case at > now:
				next = min(next, at-now)
			default:
				next = min(next, left[i]/rates[i])
			}
		}
		now += next
		for i := range jobs {
			left[i] -= rates[i] * next
			if rates[i] > 0 && left[i] < 1e-9 && ends[i] < 0 {
				ends[i] = now
			}
		}
	}
	return ends
}

// naiveRates gives everybody the same until the node is full or nobody can use
// more.
func naiveRates(cores, now float64, jobs []shareCase, ends []float64) []float64 {
	rates := make([]float64, len(jobs))
	var order []int
	for i, j := range jobs {
		if ends[i] < 0 && float64(j.at)/second <= now+1e-12 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return int(jobs[a].milli - jobs[b].milli) })
	for n, i := range order {
		rates[i] = min(float64(jobs[i].milli)/1000, cores/float64(len(order)-n))
		cores -= rates[i]
	}
	return rates
}

func TestSharesAgreeWithANaiveDivision(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cores := rapid.Int64Range(1, 4).Draw(r, "cores")
		jobs := make([]shareCase, rapid.IntRange(1, 12).Draw(r, "jobs"))
		for i := range jobs {
			jobs[i] = shareCase{
				at:    rapid.Int64Range(0, 20).Draw(r, "at") * second,
				milli: rapid.SampledFrom([]int64{500, 1000, 2000, 4000}).Draw(r, "milli"),
				work:  rapid.Int64Range(1, 20).Draw(r, "work") * second,
			}
		}
		got, want := finishes(cores, jobs), naiveShare(float64(cores), jobs)
		// Rates are rounded down to 1/65,536 of a core, and what that leaves goes to the
		// widest: up to 11 parts of the 5,461 that each of twelve has of a core.
		const rounding = 11.0 / 5461
		for i := range jobs {
			if math.Abs(float64(got[i])/second-want[i]) > 0.02+rounding*want[i] {
				r.Fatalf("job %d of %+v on %d cores ends at %s, want %g s", i, jobs, cores, fmt.Sprint(got[i]), want[i])
			}
		}
	})
}

// TestAgedActionsMakeWay: on two cores, an action that is old has an eighth of the weight of others,
// and what they cannot use.
func TestAgedActionsMakeWay(t *testing.T) {
	for _, c := range []struct {
		name   string
		now    int64
		begun  []int64 // each can use one core
		shares []uint64
	}{
		{"all are young", 4, []int64{0, 1, 2}, []uint64{2 * part / 3, 2 * part / 3, 2 * part / 3}},
		{"one is old", 5, []int64{0, 1, 2}, []uint64{2 * part / 17, part - part/17, part - part/17}},
		{"all are old", 9, []int64{0, 1, 2}, []uint64{2 * part / 3, 2 * part / 3, 2 * part / 3}},
		{"the old one has the rest", 6, []int64{0, 4}, []uint64{part, part}},
	} {
		e := &equal{w: &world{}, age: 5 * second, cores: 2 * part, at: c.now * second}
		for _, at := range c.begun {
			e.jobs = append(e.jobs, &equalJob{c: &call{Action: &workload.Action{}, started: at * second}, limit: part, left: part})
		}
		e.divide()
		for i, j := range e.jobs {
			if d := int64(j.share) - int64(c.shares[i]); d < -2 || d > 2 {
				t.Errorf("%s: action %d has %d parts of a core, want %d", c.name, i, j.share, c.shares[i])
			}
		}
	}
}
