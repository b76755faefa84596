package ledger

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// scan looks for the cheapest fit by trying every period and every shift of every
// group, slot by slot. Ties are not told apart.
func scan(l *Ledger, a Request) (cost int64, found bool) {
	groups, reservations := l.Rows()
	for _, g := range groups {
		var members []Reservation
		for _, r := range reservations {
			if r.Group == g.ID {
				members = append(members, r)
			}
		}
		if g.Nodes < a.Cycle.Width() || len(members) >= l.config.MembersMax || len(members) > 0 && members[0].Dedicated {
			continue
		}
		for period := int64(1); period <= l.config.Slots; period++ {
			if len(members) == 0 && period != a.Cycle.Period {
				continue
			}
			c, ok := scanPeriod(l, a, g, members, period)
			if ok && (!found || c < cost) {
				cost, found = c, true
			}
		}
	}
	return cost, found
}

// scanPeriod tries all shifts in one period.
func scanPeriod(l *Ledger, a Request, g Group, members []Reservation, period int64) (int64, bool) {
	cost, common := int64(0), int64(0)
	held := int64(0)
	slow := func(p, cycle int64) int64 { n := p / cycle; return ((p-n*cycle)*million + n*cycle - 1) / (n * cycle) }
	all := append(slices.Clone(members), Reservation{Cycle: a.Cycle})
	for i, r := range all {
		n := period / r.Cycle.Period
		if n < 1 || n > l.config.CyclesMax || slow(period, r.Cycle.Period) > l.config.StretchPPM {
			return 0, false
		}
		common = gcd(common, n)
		held += n * r.Cycle.Held()
		many := l.config.Slots / r.Cycle.Period
		cost += slow(period, r.Cycle.Period) * many
		if i < len(members) {
			cost -= slow(g.Period, r.Cycle.Period) * many
		}
	}
	if common > 1 || held*million > l.config.DutyPPM*period && len(members) > 0 {
		return 0, false
	}
	busy := make([]bool, period)
	mark := func(r Reservation, index, anchor int64) (ok bool) {
		ok = true
		n := period / r.Cycle.Period
		for k := range n {
			for _, s := range r.Cycle.Segments {
				for i := range s.Length {
					at := mod(anchor+(k*period/n)-(index*period/n)+s.Offset+i, period)
					ok = ok && !busy[at]
					busy[at] = true
				}
			}
		}
		return ok
	}
	for _, r := range members {
		index := r.Index
		if period != g.Period {
			index = 0
		}
		if !mark(r, index, r.Anchor) {
			return 0, false
		}
	}
	before := slices.Clone(busy)
	for shift := range period/(period/a.Cycle.Period) + 1 {
		copy(busy, before)
		if mark(Reservation{Cycle: a.Cycle}, 0, a.Ready+shift) {
			return cost + 2*((shift*million+a.Cycle.Period-1)/a.Cycle.Period), true
		}
	}
	return 0, false
}

// TestPlaceIsAScan compares with trying every slot: a fit is found whenever there is
// one, and none is cheaper.
func TestPlaceIsAScan(t *testing.T) {
	found, refused := 0, 0
	often(t, func(r *rapid.T) {
		m := newMachine(r)
		m.config.DutyPPM = rapid.SampledFrom([]int64{million, 800_000}).Draw(r, "duty")
		for range rapid.IntRange(0, 25).Draw(r, "steps") {
			m.step(r)
		}
		a := Request{Job: 999, Cycle: drawCycle(r, min(24, m.config.Slots), 3), Ready: m.head + rapid.Int64Range(0, 5).Draw(r, "ready")}
		for _, g := range m.groups {
			for i := range g.members {
				g.members[i].Waited = 0 // who waits too long is another test
			}
		}
		cost, ok := scan(m.Ledger, a)
		f, err := m.Place(a)
		if (err == nil) != ok || ok && f.Cost != cost {
			r.Fatalf("found %+v, %v; a scan finds cost %d, %v", f, err, cost, ok)
		}
		if !ok {
			refused++
			var refusal *Refusal
			if !errors.As(err, &refusal) || len(refusal.Error()) < 20 {
				r.Fatalf("refused with %v", err)
			}
			return
		}
		found++
		if err := m.Reserve(f.Fit); err != nil {
			r.Fatalf("%v", err)
		}
		check(r, m.Ledger)
	})
	t.Logf("%d found, %d refused", found, refused)
}

// with returns a ledger of some groups of 4 nodes.
func with(groups int) *Ledger {
	return build(Default(), 0, slices.Repeat([]int64{4}, groups)...)
}

func reserve(t *testing.T, l *Ledger, job JobID, g GroupID, c Cycle, anchor, period int64) {
	t.Helper()
	if err := l.Reserve(Fit{Job: job, Group: g, Cycle: c, Anchor: anchor, Period: period}); err != nil {
		t.Fatal(err)
	}
}

// The cycles of Table 2 in slots of a second, as PlexRL's two concurrent jobs have
// them: log probabilities, the update and the weights one after the other, at the end.
var (
	model7B   = Cycle{290, []Segment{{232, 58, 4}}}
	model30B  = Cycle{285, []Segment{{201, 84, 4}}}
	model235B = Cycle{590, []Segment{{478, 112, 4}}}
)

// TestTable2 packs one group with as many jobs of the paper as fit.
func TestTable2(t *testing.T) {
	for _, c := range []struct {
		name   string
		cycles []Cycle
		fit    int
		period int64
	}{
		{"7B", []Cycle{model7B}, 4, 290},
		{"30B", []Cycle{model30B}, 3, 285},
		{"235B", []Cycle{model235B}, 4, 590},
		{"7B with 30B", []Cycle{model7B, model30B}, 3, 290},
		{"30B with 7B", []Cycle{model30B, model7B}, 3, 290},
		{"235B with 7B", []Cycle{model235B, model7B}, 3, 590},
		{"7B with 235B", []Cycle{model7B, model235B}, 4, 590},
	} {
		l := with(1)
		fit := 0
		for ; ; fit++ {
			f, err := l.Place(Request{Job: JobID(fit + 1), Cycle: c.cycles[fit%len(c.cycles)]})
			if err != nil {
				t.Logf("%s: %d jobs, then: %v", c.name, fit, err)
				break
			}
			t.Logf("%s: job %d starts %d later, is %d ppm longer, interference %d ppm", c.name, fit+1, f.Shift, f.StretchPPM, f.InterferencePPM)
			reserve(t, l, f.Job, f.Group, f.Cycle, f.Anchor, f.Period)
		}
		if period := l.groups[0].Period; fit != c.fit || period != c.period {
			t.Errorf("%s: %d jobs in a period of %d, want %d in %d", c.name, fit, period, c.fit, c.period)
		}
		check(t, l)
	}
}

// TestRanking has three groups that a job could go to.
func TestRanking(t *testing.T) {
	c := Cycle{100, []Segment{{0, 20, 4}}}
	for _, x := range []struct {
		name   string
		policy Policy
		setUp  func(l *Ledger)
		group  GroupID
		shift  int64
	}{
		{"nothing costs less than an empty group", Spread, func(l *Ledger) {
			reserve(t, l, 1, 1, c, 50, 100)
			reserve(t, l, 2, 2, c, 50, 100)
		}, 3, 0},
		{"packed, the fullest is best", Pack, func(l *Ledger) {
			reserve(t, l, 1, 2, c, 0, 100)
			reserve(t, l, 2, 2, c, 20, 100)
			reserve(t, l, 3, 1, c, 50, 100)
		}, 2, 40},
		{"isolated, one is empty", Isolated, func(l *Ledger) {
			reserve(t, l, 1, 1, c, 50, 100)
			reserve(t, l, 2, 3, c, 50, 100)
		}, 2, 0},
		{"the earliest fit", Spread, func(l *Ledger) {
			reserve(t, l, 1, 1, c, 10, 100)
			reserve(t, l, 2, 2, c, 5, 100)
			reserve(t, l, 3, 3, c, 15, 100)
		}, 2, 25},
		{"of equal costs the least interference", Spread, func(l *Ledger) {
			reserve(t, l, 1, 1, c, 21, 100)
			reserve(t, l, 2, 2, c, 50, 100)
			reserve(t, l, 3, 3, c, 79, 100)
		}, 2, 0},
		{"commensurate periods", Spread, func(l *Ledger) {
			reserve(t, l, 1, 1, Cycle{97, c.Segments}, 50, 97)
			reserve(t, l, 2, 2, Cycle{300, c.Segments}, 150, 300)
			reserve(t, l, 3, 3, Cycle{200, c.Segments}, 150, 200)
		}, 3, 0},
		{"a stretch of the others counts", Spread, func(l *Ledger) {
			reserve(t, l, 1, 1, Cycle{97, c.Segments}, 50, 97)
			reserve(t, l, 2, 2, Cycle{99, c.Segments}, 50, 99)
			reserve(t, l, 3, 3, Cycle{96, c.Segments}, 50, 96)
		}, 2, 0},
		{"a stretch costs more than a shift: it is for good", Spread, func(l *Ledger) {
			reserve(t, l, 1, 1, Cycle{97, c.Segments}, 50, 97)
			reserve(t, l, 2, 2, c, 0, 100)
			reserve(t, l, 3, 3, c, 10, 100)
		}, 2, 20},
	} {
		l := with(3)
		x.setUp(l)
		f, err := l.Place(Request{Job: 9, Cycle: c, Policy: x.policy})
		if err != nil || f.Group != x.group || f.Shift != x.shift {
			t.Errorf("%s: %+v, %v, want group %d, shift %d", x.name, f, err, x.group, x.shift)
		}
	}
}

// TestRefusals reads what would have to change.
func TestRefusals(t *testing.T) {
	c := Cycle{100, []Segment{{0, 60, 4}}}
	for _, x := range []struct {
		name  string
		setUp func(l *Ledger)
		cycle Cycle
		why   Reason
		says  string
	}{
		{"too wide", func(*Ledger) {}, Cycle{100, []Segment{{0, 10, 5}}}, Narrow, "5 nodes are needed at once, and the widest group, 1, has 4"},
		{"not yet known", func(l *Ledger) {
			if err := l.Reserve(Fit{Job: 1, Group: 1, Dedicated: true}); err != nil {
				t.Fatal(err)
			}
		}, c, Dedicated, "group 1 is kept for job 1"},
		{"other periods", func(l *Ledger) { reserve(t, l, 1, 1, Cycle{100, []Segment{{0, 10, 4}}}, 0, 100) },
			Cycle{2000, []Segment{{0, 10, 4}}}, Period, "762 to 800 slots"},
		{"short cycles", func(l *Ledger) { reserve(t, l, 1, 1, Cycle{100, []Segment{{0, 10, 4}}}, 0, 100) },
			Cycle{9, []Segment{{0, 1, 4}}}, Period, "12 to 12 slots"},
		{"too much", func(l *Ledger) { reserve(t, l, 1, 1, c, 0, 100) }, Cycle{100, []Segment{{0, 36, 4}}}, Duty, "held 91.4 % of the time, and may be held 90.0 %"},
		{"no window", func(l *Ledger) {
			reserve(t, l, 1, 1, Cycle{100, []Segment{{0, 20, 4}, {50, 20, 4}}}, 0, 100)
		}, Cycle{100, []Segment{{0, 40, 4}}}, Window, "40 slots are needed at once, and group 1 is never free for more than 35"},
		{"windows elsewhere", func(l *Ledger) {
			reserve(t, l, 1, 1, Cycle{100, []Segment{{0, 20, 4}, {50, 20, 4}}}, 0, 100)
		}, Cycle{100, []Segment{{0, 10, 4}, {40, 10, 4}, {70, 10, 4}}}, Window, "do not lie as the segments do"},
		{"waiting", func(l *Ledger) {
			reserve(t, l, 1, 1, Cycle{100, []Segment{{0, 10, 4}}}, 0, 100)
			l.groups[0].members[0].Waited = 41
		}, Cycle{100, []Segment{{0, 10, 4}}}, Waiting, "job 1 of group 1 waits 5.1 % of its time for its turns, and may wait 5.0 %"},
	} {
		l := with(1)
		x.setUp(l)
		_, err := l.Place(Request{Job: 9, Cycle: x.cycle})
		var r *Refusal
		if !errors.As(err, &r) || r.Reason != x.why || !strings.Contains(r.Error(), x.says) {
			t.Errorf("%s: %v (%+v), want %d: %q", x.name, err, r, x.why, x.says)
		}
	}
	if _, err := with(0).Place(Request{Job: 9, Cycle: c}); err == nil || !strings.Contains(err.Error(), "no groups") {
		t.Errorf("without groups: %v", err)
	}
}

// TestShiftBound refuses a shift that alpha does not allow, and says which would do.
func TestShiftBound(t *testing.T) {
	conf := Default()
	conf.ShiftPPM = 100_000
	l := build(conf, 0, 4)
	c := Cycle{100, []Segment{{0, 20, 4}}}
	reserve(t, l, 1, 1, c, 0, 100)
	_, err := l.Place(Request{Job: 2, Cycle: c, Ready: 5})
	var r *Refusal
	if !errors.As(err, &r) || r.Shift != 15 {
		t.Fatalf("%v: %+v", err, r)
	}
	if f, err := l.Place(Request{Job: 2, Cycle: c, Ready: 10}); err != nil || f.Shift != 10 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestCold(t *testing.T) {
	l := build(Default(), 0, 4, 4, 2)
	job := JobID(0)
	for _, c := range []struct {
		nodes int64
		group GroupID
		says  string
	}{
		{5, 0, "5 nodes are needed"},
		{2, 3, ""}, // the narrowest that suffices
		{2, 1, ""},
		{4, 2, ""},
		{1, 0, "no group is without jobs"},
	} {
		job++
		p, err := l.PlaceCold(job, c.nodes, 0)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || p.Group != c.group {
			t.Fatalf("%d nodes: %+v, %v", c.nodes, p, err)
		}
		if err != nil {
			continue
		}
		if err := l.Reserve(p); err != nil {
			t.Fatal(err)
		}
		check(t, l)
	}
	if err := l.Share(3, model7B, 0); err != nil {
		t.Fatal(err)
	}
	check(t, l)
	if f, err := l.Place(Request{Job: 99, Cycle: Cycle{290, []Segment{{0, 50, 2}}}}); err != nil || f.Group != 1 {
		t.Errorf("who shares takes nobody: %+v, %v", f, err)
	}
}

// TestKeptGroup: a group that is kept takes nobody else.
func TestKeptGroup(t *testing.T) {
	c := Cycle{100, []Segment{{0, 20, 4}}}
	l := with(3)
	reserve(t, l, 1, 1, c, 0, 100)
	reserve(t, l, 2, 1, c, 50, 100)
	reserve(t, l, 3, 2, c, 0, 100)
	reserve(t, l, 4, 3, Cycle{100, []Segment{{0, 30, 4}}}, 0, 100)
	request := Request{Job: 9, Cycle: c, Ready: 20, Promise: Promise{2, 7}}
	if f, err := l.Place(request); err != nil || f.Group == 2 {
		t.Errorf("placed at %+v, %v", f, err)
	}
	request.Only = 2
	if _, err := l.Place(request); err == nil || !strings.Contains(err.Error(), "takes nobody before job 7") {
		t.Errorf("on a group that is kept: %v", err)
	}
}
