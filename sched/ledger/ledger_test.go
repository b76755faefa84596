package ledger

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// small is a configuration in which a lot happens within few slots.
func small(slots int64) Config {
	c := Default()
	c.Slots, c.DutyPPM, c.StretchPPM, c.PushPPM, c.MarginPPM = slots, million, 200_000, 150_000, 100_000
	c.CyclesMax, c.MembersMax = 4, 5
	return c
}

func drawCycle(r *rapid.T, periodMax int64, nodes int64) Cycle {
	c := Cycle{Period: rapid.Int64Range(1, periodMax).Draw(r, "period")}
	at := int64(0)
	for range rapid.IntRange(1, 3).Draw(r, "segments") {
		at += rapid.Int64Range(0, c.Period/3).Draw(r, "gap")
		length := rapid.Int64Range(1, 1+c.Period/5).Draw(r, "length")
		if at+length > c.Period {
			break
		}
		c.Segments = append(c.Segments, Segment{at, length, rapid.Int64Range(1, nodes).Draw(r, "nodes")})
		at += length
	}
	if len(c.Segments) == 0 {
		c.Segments = []Segment{{0, 1, 1}}
	}
	return c
}

// machine does random things to a ledger.
type machine struct {
	*Ledger
	last JobID
	live []JobID
}

func newMachine(r *rapid.T) *machine {
	head := rapid.Int64Range(0, 200).Draw(r, "head")
	slots := rapid.Int64Range(20, 70).Draw(r, "slots")
	nodes := rapid.SliceOfN(rapid.Int64Range(1, 3), 1, 4).Draw(r, "nodes of the groups")
	return &machine{Ledger: build(small(slots), head, nodes...)}
}

func (m *machine) step(r *rapid.T) {
	job := JobID(0)
	if len(m.live) > 0 {
		job = rapid.SampledFrom(m.live).Draw(r, "job")
	}
	switch what := rapid.IntRange(0, 9).Draw(r, "what"); {
	case what < 3:
		m.place(r)
	case what < 4:
		m.force(r)
	case what < 5:
		m.cold(r)
	case what < 6 && job != 0:
		m.release(r, job)
	case what < 8 && job != 0:
		m.finish(r, job)
	case what < 9:
		m.head += rapid.SampledFrom([]int64{1, 1, 2, 3, 7, 40, 200}).Draw(r, "slide")
	default:
		m.regroup(r)
	}
}

func (m *machine) add(job JobID) {
	m.last = job
	m.live = append(m.live, job)
}

// place does what is found, which must be possible.
func (m *machine) place(r *rapid.T) {
	a := Request{Job: m.last + 1, Cycle: drawCycle(r, min(24, m.config.Slots), 3), Policy: rapid.SampledFrom([]Policy{Spread, Pack, Pack, Isolated}).Draw(r, "policy")}
	a.Ready = m.head + rapid.Int64Range(0, 9).Draw(r, "ready")
	f, err := m.Place(a)
	if s := f.Search; s.Shifts != s.ByBounds+s.ByIntervals+s.Tried || s.ByIntervals < 0 {
		r.Fatalf("shifts do not add up: %+v", s)
	}
	if err != nil {
		return
	}
	if err := m.Reserve(f.Fit); err != nil {
		r.Fatalf("what was found cannot be reserved: %v", err)
	}
	m.add(a.Job)
}

// force asks for something that may well not fit: then nothing changes.
func (m *machine) force(r *rapid.T) {
	c := drawCycle(r, min(24, m.config.Slots), 3)
	p := Fit{
		Job: m.last + 1, Group: GroupID(rapid.IntRange(1, 5).Draw(r, "group")), Cycle: c,
		Anchor: m.head + rapid.Int64Range(0, 90).Draw(r, "anchor"),
		Period: c.Period * rapid.Int64Range(1, 3).Draw(r, "cycles"),
	}
	_, before := m.Rows()
	if m.Reserve(p) == nil {
		m.add(p.Job)
		return
	}
	if _, after := m.Rows(); !slices.EqualFunc(before, after, equalRows) {
		r.Fatalf("a refusal changed %v to %v", before, after)
	}
}

func equalRows(a, b Reservation) bool {
	sameCycle := a.Cycle.Period == b.Cycle.Period && slices.Equal(a.Cycle.Segments, b.Cycle.Segments)
	a.Cycle, b.Cycle = Cycle{}, Cycle{}
	return sameCycle && a.Job == b.Job && a.Group == b.Group && a.Anchor == b.Anchor && a.Index == b.Index &&
		a.Dedicated == b.Dedicated && a.Began == b.Began && a.Waited == b.Waited
}

// cold starts a job that has a group for itself, or shares one that had.
func (m *machine) cold(r *rapid.T) {
	for _, job := range m.live {
		row, _ := m.Reservation(job)
		if row.Dedicated {
			c := drawCycle(r, min(24, m.config.Slots), m.find(row.Group).Nodes)
			if err := m.Share(job, c, m.head+rapid.Int64Range(0, 5).Draw(r, "anchor")); err != nil {
				r.Fatalf("%v", err)
			}
			return
		}
	}
	p, err := m.PlaceCold(m.last+1, rapid.Int64Range(1, 3).Draw(r, "nodes"), m.head)
	if err != nil {
		return
	}
	if err := m.Reserve(p); err != nil {
		r.Fatalf("%v", err)
	}
	m.add(p.Job)
}

func (m *machine) release(r *rapid.T, job JobID) {
	if err := m.Release(job); err != nil {
		r.Fatalf("%v", err)
	}
	m.live = slices.DeleteFunc(m.live, func(j JobID) bool { return j == job })
}

// finish ends a cycle early, in time or late: there is always a next one, and nobody
// else is pushed by more than the job is late.
func (m *machine) finish(r *rapid.T, job JobID) {
	g := m.jobs[job]
	row, _ := m.Reservation(job)
	planned := row.starts(g.Period, 1)
	ready := max(0, planned+rapid.Int64Range(-9, 20).Draw(r, "late"))
	if rapid.Bool().Draw(r, "now") {
		ready = m.head // as of a job that does many steps at once
	}
	if ready > m.end() {
		return
	}
	f, err := m.Finish(job, ready)
	switch {
	case err != nil:
		r.Fatalf("%v", err)
	case row.Dedicated:
		return
	case f.Start < ready || f.Start >= ready+g.Period:
		r.Fatalf("job %d was ready at %d, planned at %d, and starts at %d: period %d", job, ready, planned, f.Start, g.Period)
	case f.Late != ready-planned || f.Waits != f.Start-ready:
		r.Fatalf("%+v for ready %d, planned %d", f, ready, planned)
	case f.Late <= 0 && f.Start > planned:
		r.Fatalf("an early job is to start at %d, after %d", f.Start, planned)
	}
	for _, p := range f.Pushed {
		if p.By < 1 || p.By > f.Late || p.Job == job {
			r.Fatalf("%d slots late, job %d is pushed by %d", f.Late, p.Job, p.By)
		}
	}
}

// regroup adds a group or takes one away.
func (m *machine) regroup(r *rapid.T) {
	id := GroupID(rapid.IntRange(1, 5).Draw(r, "group"))
	row, members := m.Members(id)
	groups, reservations := m.Rows()
	if row.ID == 0 {
		groups = append(groups, Group{ID: id, Nodes: rapid.Int64Range(1, 3).Draw(r, "nodes")})
	} else {
		groups = slices.DeleteFunc(groups, func(g Group) bool { return g.ID == id })
	}
	l, err := Build(m.config, m.head, groups, reservations)
	switch {
	case (err == nil) != (len(members) == 0):
		r.Fatalf("group %d has %d jobs, and without it: %v", id, len(members), err)
	case err == nil:
		m.Ledger = l
	}
}

// TestLedgerIsASlotArray does random things and compares with slots worked out one by
// one, and with a ledger that is built of the rows.
func TestLedgerIsASlotArray(t *testing.T) {
	often(t, func(r *rapid.T) {
		m := newMachine(r)
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			m.step(r)
			check(r, m.Ledger)
		}
		for _, job := range slices.Clone(m.live) {
			m.release(r, job)
		}
		for _, g := range m.groups {
			if from, to := m.Window(); len(m.Reserved(g.ID, from, to)) > 0 || g.Period != 0 {
				r.Fatalf("group %d has reservations or a period of %d when all have left", g.ID, g.Period)
			}
		}
		check(r, m.Ledger)
	})
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name  string
		cycle Cycle
		says  string
	}{
		{"good", Cycle{10, []Segment{{0, 3, 1}, {3, 2, 1}, {8, 2, 4}}}, ""},
		{"whole", Cycle{100, []Segment{{0, 100, 1}}}, ""},
		{"no period", Cycle{0, []Segment{{0, 1, 1}}}, "must be at least 1"},
		{"too long", Cycle{101, []Segment{{0, 1, 1}}}, "the horizon has 100"},
		{"no segments", Cycle{10, nil}, "no segments"},
		{"many segments", Cycle{100, make([]Segment, segmentsMax+1)}, "at most 64"},
		{"before the cycle", Cycle{10, []Segment{{-1, 2, 1}}}, "before the cycle"},
		{"empty", Cycle{10, []Segment{{1, 0, 1}}}, "0 slots long"},
		{"no nodes", Cycle{10, []Segment{{1, 1, 0}}}, "needs 0 nodes"},
		{"overlap", Cycle{10, []Segment{{0, 4, 1}, {3, 1, 1}}}, "segment 1 starts at 3, and the one before ends at 4"},
		{"descending", Cycle{10, []Segment{{5, 1, 1}, {0, 1, 1}}}, "segments ascend"},
		{"out of the period", Cycle{10, []Segment{{8, 3, 1}}}, "ends behind the period"},
		{"overflowing", Cycle{10, []Segment{{1 << 62, 1 << 62, 1}}}, "ends behind the period"},
	} {
		err := c.cycle.Validate(100)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// full returns a ledger of groups with these many nodes, and with two jobs on the
// first, of 100 slots each.
func full(t *testing.T, nodes ...int64) *Ledger {
	t.Helper()
	c := Default()
	c.Slots = 1000
	l := build(c, 0, nodes...)
	for job := range JobID(2) {
		p := Fit{Job: job + 1, Group: 1, Cycle: Cycle{100, []Segment{{0, 30, 4}}}, Anchor: int64(job) * 40, Period: 100}
		if err := l.Reserve(p); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestReserveRefuses(t *testing.T) {
	good := Fit{Job: 3, Group: 1, Cycle: Cycle{100, []Segment{{0, 20, 4}}}, Anchor: 75, Period: 100}
	for _, c := range []struct {
		name   string
		change func(*Fit)
		says   string
	}{
		{"good", func(*Fit) {}, ""},
		{"unknown group", func(p *Fit) { p.Group = 2 }, "does not exist"},
		{"twice", func(p *Fit) { p.Job = 1 }, "on group 1 already"},
		{"nobody", func(p *Fit) { p.Job = 0 }, "no job"},
		{"dedicated", func(p *Fit) { p.Dedicated = true }, "has jobs"},
		{"wide", func(p *Fit) { p.Cycle = Cycle{100, []Segment{{0, 20, 5}}} }, "needs 5 nodes"},
		{"overlapping", func(p *Fit) { p.Anchor = 81 }, "does not fit"},
		{"overlapping the next period", func(p *Fit) { p.Anchor = 285 }, "does not fit"},
		{"short period", func(p *Fit) { p.Period = 99 }, "no cycle of job 3"},
		{"shorter than the others' cycles", func(p *Fit) { p.Period, p.Cycle.Period = 99, 99 }, "too short"},
		{"long period", func(p *Fit) { p.Period = 106 }, "stretch"},
		{"endless period", func(p *Fit) { p.Period = 1001 }, "no cycle"},
		{"no period", func(p *Fit) { p.Period = 0 }, "no cycle"},
		{"before time", func(p *Fit) { p.Anchor = -1 }, "slot -1"},
		{"beyond the horizon", func(p *Fit) { p.Anchor = 2001 }, "slot 2001"},
		{"a bad cycle", func(p *Fit) { p.Cycle.Period = 0 }, "at least 1"},
	} {
		l := full(t, 4)
		p := good
		c.change(&p)
		err := l.Reserve(p)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		check(t, l)
	}
}

// TestSlideToAnAnchor slides until a job begins whose cycles would end right before.
func TestSlideToAnAnchor(t *testing.T) {
	l := full(t, 4, 4)
	if err := l.Reserve(Fit{Job: 3, Group: 2, Cycle: Cycle{10, []Segment{{1, 2, 1}, {5, 5, 3}}}, Anchor: 1007, Period: 10}); err != nil {
		t.Fatal(err)
	}
	for range 25 {
		check(t, l)
		l.head++
	}
}

func TestBuildRefuses(t *testing.T) {
	groups, reservations := full(t, 4).Rows()
	for _, c := range []struct {
		name   string
		change func(g []Group, r []Reservation) ([]Group, []Reservation)
		says   string
	}{
		{"good", func(g []Group, r []Reservation) ([]Group, []Reservation) { return g, r }, ""},
		{"two at once", func(g []Group, r []Reservation) ([]Group, []Reservation) { r[1].Anchor = 29; return g, r }, "two jobs have group 1"},
		{"a job twice", func(g []Group, r []Reservation) ([]Group, []Reservation) { return g, append(r, r[0]) }, "twice"},
		{"a group twice", func(g []Group, r []Reservation) ([]Group, []Reservation) { return append(g, g[0]), r }, "there already"},
		{"no group", func(g []Group, r []Reservation) ([]Group, []Reservation) { return nil, r }, "does not exist"},
		{"no nodes", func(g []Group, r []Reservation) ([]Group, []Reservation) { g[0].Nodes = 0; return g, r }, "0 nodes"},
		{"a bad index", func(g []Group, r []Reservation) ([]Group, []Reservation) { r[0].Index = 1; return g, r }, "cycle 1 of 1"},
	} {
		g, r := c.change(slices.Clone(groups), slices.Clone(reservations))
		conf := Default()
		conf.Slots = 1000
		_, err := Build(conf, 0, g, r)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	if _, err := Build(Config{}, 0, nil, nil); err == nil {
		t.Error("a ledger without slots was made")
	}
	if _, err := Build(Default(), -1, nil, nil); err == nil {
		t.Error("a window before time was made")
	}
}

// TestFinish tries how a job is anchored again whose turn does not come as reserved.
// Job 1 has slots 0 to 30, job 2 has 40 to 70, of 100.
func TestFinish(t *testing.T) {
	for _, c := range []struct {
		name   string
		job    JobID
		ready  int64
		start  int64
		pushed []Push
	}{
		{"in time", 1, 100, 100, nil},
		{"early, and its slots are free", 1, 95, 95, nil},
		{"early, and it jumps into a gap", 2, 131, 131, nil},
		{"early, and the other is in front", 2, 128, 130, nil},
		{"early by more than a period", 2, 28, 30, nil},
		{"late within the gap", 1, 105, 105, nil},
		{"later than that, it would wait for longer than the other does", 1, 115, 115, []Push{{2, 5}}},
		{"so late that it had better wait itself", 1, 145, 170, nil},
		{"late, and nobody is behind", 2, 150, 150, nil},
		{"so late that it would meet the next", 2, 195, 195, []Push{{1, 25}}},
		{"later still, it waits", 2, 205, 230, nil},
		{"a period late", 2, 250, 250, nil},
	} {
		l := full(t, 4)
		l.head = 90
		f, err := l.Finish(c.job, c.ready)
		if err != nil || f.Start != c.start || !slices.Equal(f.Pushed, c.pushed) {
			t.Errorf("%s: %+v, %v, want %d and %v", c.name, f, err, c.start, c.pushed)
		}
		check(t, l)
	}
}

// TestFinishPushes has three jobs in a row, with gaps of 0, 2 and 8 behind them.
func TestFinishPushes(t *testing.T) {
	c := Default()
	c.Slots = 1000
	for _, x := range []struct {
		late   int64
		pushed []Push
	}{
		{0, nil},
		{1, []Push{{2, 1}}},
		{2, []Push{{2, 2}}},
		{3, []Push{{2, 3}, {3, 1}}},
		{5, []Push{{2, 5}, {3, 3}}},
	} {
		l := build(c, 0, 1)
		for job, at := range map[JobID]int64{1: 0, 2: 30, 3: 62} {
			if err := l.Reserve(Fit{Job: job, Group: 1, Cycle: Cycle{100, []Segment{{0, 30, 1}}}, Anchor: at, Period: 100}); err != nil {
				t.Fatal(err)
			}
		}
		l.head = 100
		f, err := l.Finish(1, 100+x.late)
		if err != nil || f.Start != 100+x.late || !slices.Equal(f.Pushed, x.pushed) {
			t.Errorf("late by %d: %+v, %v, want %v", x.late, f, err, x.pushed)
		}
		check(t, l)
	}
}

func TestCover(t *testing.T) {
	for _, c := range []struct{ slot, ns, want int64 }{
		{10, 0, 0}, {10, 1, 1}, {10, 10, 1}, {10, 11, 2}, {1, 7, 7}, {10, math.MaxInt64, math.MaxInt64/10 + 1},
	} {
		if got := Cover(c.slot, c.ns); got != c.want {
			t.Errorf("%d ns are %d slots of %d ns, want %d", c.ns, got, c.slot, c.want)
		}
	}
}

func TestProfile(t *testing.T) {
	const s = 1000
	for _, c := range []struct {
		name  string
		turns []Turn
		next  int64
		want  Cycle
		says  string
	}{
		{"outwards", []Turn{{5000, 7001, 2}, {9500, 9600, 1}}, 15_001, Cycle{11, []Segment{{0, 3, 2}, {4, 1, 1}}}, ""},
		{"touching", []Turn{{0, 1500, 2}, {1600, 3000, 4}}, 9000, Cycle{9, []Segment{{0, 3, 4}}}, ""},
		{"no rest", []Turn{{0, 1500, 2}}, 1500, Cycle{2, []Segment{{0, 2, 2}}}, ""},
		{"none", nil, 0, Cycle{}, "without turns"},
		{"overlapping", []Turn{{0, 1500, 2}, {1400, 3000, 4}}, 9000, Cycle{}, "turn 1"},
		{"backwards", []Turn{{100, 50, 2}}, 9000, Cycle{}, "turn 0"},
		{"next too early", []Turn{{0, 1500, 2}}, 1400, Cycle{}, "ready at 1400"},
	} {
		got, err := Profile(s, c.turns, c.next)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		} else if got.Period != c.want.Period || !slices.Equal(got.Segments, c.want.Segments) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if err == nil {
			if err := got.Validate(100); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	if _, err := Profile(0, []Turn{{0, 1, 1}}, 1); err == nil {
		t.Error("slots of no time were accepted")
	}
}
