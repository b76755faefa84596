package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// actor is a job that really runs: its phases vary, and its group is free when it is.
type actor struct {
	job     JobID
	cycle   Cycle
	start   int64 // of the cycle that runs, in milliseconds
	plan    int64 // the slot at which that was reserved to start
	ready   int64 // for the next segment
	segment int
	cycles  int64
}

// drift is what came of a simulation of some hours.
type drift struct {
	held, outside, foreign int64   // milliseconds: held, outside of one's own reservation, in another's
	late                   []int64 // how far from its reservation each segment started
	cycles, ideal          int64   // cycles done, and how many there are without sharing
	waited                 int64   // milliseconds waited, ready and not granted
}

// simulation runs the members of one group. Who is ready first has the group first.
type simulation struct {
	*Ledger
	variant
	rng    *rand.Rand
	jitter int64 // largest deviation in ppm, both ways
	free   int64
	actors []*actor
	drift
}

// variant is a way to deal with reservations and what really happens.
type variant struct {
	name     string
	hold     bool  // nobody starts a cycle before its reservation
	reanchor bool  // a finished cycle moves the reservation
	push     int64 // PushPPM
}

var variants = []variant{
	{"neither", false, false, 0},
	{"held", true, false, 0},
	{"held, re-anchored by waiting", true, true, 0},
	{"held, re-anchored by pushing", true, true, 50_000},
}

const ms = 1000 // milliseconds of a slot

func (s *simulation) vary(slots int64) int64 {
	return slots*ms + slots*ms*(s.rng.Int64N(2*s.jitter+1)-s.jitter)/million
}

// next returns who is ready first.
func (s *simulation) next() *actor {
	return slices.MinFunc(s.actors, func(a, b *actor) int {
		if a.ready != b.ready {
			return int(a.ready - b.ready)
		}
		return int(a.job) - int(b.job)
	})
}

// step lets one segment run.
func (s *simulation) step() {
	a := s.next()
	seg := a.cycle.Segments[a.segment]
	start := max(a.ready, s.free)
	s.waited += start - a.ready
	end := start + s.vary(seg.Length)
	s.count(a, seg, start, end)
	s.free = end
	if a.segment++; a.segment < len(a.cycle.Segments) {
		a.ready = end + s.vary(a.cycle.Segments[a.segment].Offset-seg.End())
		return
	}
	s.finish(a, end+s.vary(a.cycle.Period-seg.End()))
}

// count compares a turn with what is reserved.
func (s *simulation) count(a *actor, seg Segment, start, end int64) {
	s.head = max(s.head, start/ms-60)
	s.held += end - start
	s.late = append(s.late, abs(start-(a.plan+seg.Offset)*ms))
	for t := start; t < end; {
		until := min(end, (t/ms+1)*ms)
		switch held := s.Reserved(1, t/ms, t/ms+1); {
		case len(held) == 0:
			s.outside += until - t
		case held[0].Job != a.job:
			s.foreign += until - t
			s.outside += until - t
		}
		t = until
	}
}

// finish starts the next cycle: at what is reserved, or when the job is ready.
func (s *simulation) finish(a *actor, ready int64) {
	a.cycles++
	s.cycles++
	first := a.cycle.Segments[0].Offset
	slot := (ready + ms - 1) / ms
	r, _ := s.Reservation(a.job)
	g := s.jobs[a.job]
	if s.reanchor {
		f := must(s.Finish(a.job, slot))
		a.plan = f.Start
	} else {
		a.plan = r.starts(g.Period, a.cycles)
	}
	a.start = ready
	if s.hold {
		a.start = max(ready, a.plan*ms)
	}
	s.waited += a.start - ready
	a.segment, a.ready = 0, a.start+s.vary(first)
}

func abs(x int64) int64 { return max(x, -x) }

// simulate places the cycles on one group and lets them run for 8 hours.
func simulate(t *testing.T, cycles []Cycle, v variant, seed uint64) drift {
	t.Helper()
	conf := Default()
	conf.PushPPM = v.push
	l := build(conf, 0, 4)
	s := simulation{Ledger: l, rng: rand.New(rand.NewPCG(seed, 2)), jitter: 20_000, variant: v}
	for i, c := range cycles {
		f := must(l.Place(Request{Job: JobID(i + 1), Cycle: c}))
		if err := l.Reserve(f.Fit); err != nil {
			t.Fatal(err)
		}
	}
	_, rows := l.Rows()
	for i := range rows { // a later job may have changed the period, not the anchors
		a := &actor{job: rows[i].Job, cycle: rows[i].Cycle, plan: rows[i].Anchor, start: rows[i].Anchor * ms}
		a.ready = a.start + s.vary(a.cycle.Segments[0].Offset)
		s.actors = append(s.actors, a)
	}
	end := l.config.Slots * ms
	for s.next().ready < end {
		s.step()
	}
	for _, a := range s.actors {
		s.ideal += (end - rows[a.job-1].Anchor*ms) / (a.cycle.Period * ms)
	}
	return s.drift
}

// driftRuns is how many runs are averaged. The figures of the package comment are of
// 32.
const driftRuns = 2

// TestDrift reports how far reservations and turns are apart after 8 hours in which
// all phases vary by up to 2 %.
func TestDrift(t *testing.T) {
	split7B := Cycle{290, []Segment{{0, 10, 4}, {200, 38, 4}, {242, 10, 4}}}
	for _, c := range []struct {
		name   string
		cycles []Cycle
	}{
		{"two 7B", []Cycle{model7B, model7B}},
		{"four 7B", []Cycle{model7B, model7B, model7B, model7B}},
		{"7B and 30B", []Cycle{model7B, model30B}},
		{"235B and two 7B", []Cycle{model235B, model7B, model7B}},
		{"two 7B of three segments", []Cycle{split7B, split7B}},
	} {
		var sums []drift
		for _, v := range variants {
			var sum drift
			for seed := range uint64(driftRuns) {
				d := simulate(t, c.cycles, v, seed)
				sum.held += d.held
				sum.outside += d.outside
				sum.foreign += d.foreign
				sum.cycles += d.cycles
				sum.ideal += d.ideal
				sum.late = append(sum.late, d.late[len(d.late)*3/4:]...) // the last 2 hours
			}
			slices.Sort(sum.late)
			sums = append(sums, sum)
			t.Logf("%-24s %-28s %6.1f s apart (median) %6.1f s (p99) %6.2f %% outside %6.2f %% in another's %5.2f %% slower",
				c.name, v.name, float64(sum.apart(50))/ms, float64(sum.apart(99))/ms,
				percentOf(sum.outside, sum.held), percentOf(sum.foreign, sum.held), percentOf(sum.ideal-sum.cycles, sum.ideal))
		}
		never, always := sums[1], sums[3]
		if always.outside*3 > never.outside || always.apart(50)*3 > never.apart(50) {
			t.Errorf("%s: re-anchoring brings reservations hardly nearer", c.name)
		}
		if slower := percentOf(always.ideal-always.cycles, always.ideal); slower > 3 {
			t.Errorf("%s: re-anchored, jobs are %.2f %% slower", c.name, slower)
		}
	}
}

// apart returns how far from its reservation so many percent of the segments are at
// most.
func (d *drift) apart(percent int) int64 { return d.late[(len(d.late)-1)*percent/100] }

func percentOf(a, b int64) float64 { return 100 * float64(a) / float64(b) }
