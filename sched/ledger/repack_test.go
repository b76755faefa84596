package ledger

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// lasting returns a request whose transfers take so many slots.
func lasting(empty int, slots int64) RepackRequest {
	return RepackRequest{Empty: empty, MovesMax: 20, Policy: Pack, Transfer: func(JobID, GroupID, GroupID) int64 { return slots }}
}

func repacked(t failer, l *Ledger, w RepackRequest) Plan {
	t.Helper()
	groups, reservations := l.Rows()
	p, err := Repack(l.config, l.head, groups, reservations, w)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if p.Gain < p.Spent || len(p.Moves) > w.MovesMax {
		t.Fatalf("the plan %+v is not worth it", p)
	}
	return p
}

// spread has three groups with one job each, and the fourth without.
func spread(t *testing.T) *Ledger {
	t.Helper()
	l := with(4)
	for id := range GroupID(3) {
		reserve(t, l, JobID(id+1), id+1, model7B, int64(id)*9, 290)
	}
	return l
}

func TestRepackEmptiesGroups(t *testing.T) {
	for _, c := range []struct {
		name        string
		request     RepackRequest
		moves, free int
	}{
		{"one is empty already", lasting(1, 19), 0, 1},
		{"one more", lasting(2, 19), 1, 2},
		{"as many as can be", lasting(4, 19), 2, 3},
		{"transfers that take longer than the horizon", lasting(4, 28_801), 0, 1},
		{"transfers that cost more than a group is worth", lasting(4, 15_000), 0, 1},
		{"jobs that cannot be moved", lasting(4, -1), 0, 1},
		{"no moves", RepackRequest{Empty: 4, Transfer: lasting(0, 0).Transfer}, 0, 1},
	} {
		l := spread(t)
		p := repacked(t, l, c.request)
		for _, m := range p.Moves {
			if f, err := l.Apply(m); err != nil || f.Anchor < m.Transfer {
				t.Errorf("%s: %+v: %+v, %v", c.name, m, f, err)
			}
			check(t, l)
		}
		free := 0
		for _, g := range l.groups {
			if len(g.members) == 0 {
				free++
			}
		}
		if len(p.Moves) != c.moves || free != c.free {
			t.Errorf("%s: %+v leaves %d groups empty, want %d moves and %d", c.name, p, free, c.moves, c.free)
		}
	}
}

// TestRepackRelieves takes a job to where it is not stretched, if its transfer is
// worth that.
func TestRepackRelieves(t *testing.T) {
	l := with(2)
	reserve(t, l, 1, 1, model7B, 0, 290)
	reserve(t, l, 2, 1, model30B, 89, 290)
	reserve(t, l, 3, 2, model30B, 0, 285)
	// 1.75 % of 4 nodes for 28,800 slots are 2,020, and the transfer takes 8 nodes.
	for transfer, want := range map[int64]int{19: 1, 250: 1, 260: 0} {
		p := repacked(t, l, lasting(0, transfer))
		if len(p.Moves) != want {
			t.Errorf("a transfer of %d slots: %+v, want %d moves", transfer, p, want)
		}
	}
}

// TestApplyChecksWhatWasPlanned changes something between a plan and its moves.
func TestApplyChecksWhatWasPlanned(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(l *Ledger, m *Move)
		says   string
	}{
		{"nothing", func(*Ledger, *Move) {}, ""},
		{"time goes on", func(l *Ledger, _ *Move) { l.head = 500 }, ""},
		{"others go on", func(l *Ledger, m *Move) {
			g := l.find(m.To)
			must(l.Finish(g.members[0].Job, g.members[0].starts(290, 1)+7))
		}, ""},
		{"the job has left", func(l *Ledger, m *Move) { _ = l.Release(m.Job) }, "no longer on group"},
		{"the group is gone", func(l *Ledger, m *Move) {
			_ = l.Release(l.find(m.To).members[0].Job)
			groups, reservations := l.Rows()
			groups = slices.DeleteFunc(groups, func(g Group) bool { return g.ID == m.To })
			*l = *must(Build(l.config, l.head, groups, reservations))
		}, "no longer exists"},
		{"the group is empty", func(l *Ledger, m *Move) { _ = l.Release(l.find(m.To).members[0].Job) }, "period of group"},
		{"the group has another period", func(l *Ledger, m *Move) {
			_ = l.Reserve(Fit{Job: 9, Group: m.To, Cycle: Cycle{295, []Segment{{0, 9, 1}}}, Anchor: 150, Period: 295})
		}, "period of group"},
		{"the group has become full", func(l *Ledger, m *Move) {
			for job := range JobID(3) {
				f := must(l.Place(Request{Job: 20 + job, Cycle: model7B, Only: m.To}))
				_ = l.Reserve(f.Fit)
			}
		}, "would be held"},
		{"a transfer that never ends", func(_ *Ledger, m *Move) { m.Transfer = 28_801 }, "longer than the horizon"},
		{"a cost that was lower", func(_ *Ledger, m *Move) { m.CostMax = 0 }, "would cost"},
	} {
		l := spread(t)
		m := repacked(t, l, lasting(2, 19)).Moves[0]
		c.change(l, &m)
		_, before := l.Rows()
		_, err := l.Apply(m)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if _, after := l.Rows(); err != nil && !slices.EqualFunc(before, after, equalRows) {
			t.Errorf("%s: a refused move changed %v to %v", c.name, before, after)
		}
		check(t, l)
	}
}

// TestRepackAnything plans for random ledgers. Moves that are applied at once succeed,
// all of them.
func TestRepackAnything(t *testing.T) {
	moves := 0
	rapid.Check(t, func(r *rapid.T) {
		m := newMachine(r)
		for range rapid.IntRange(0, 25).Draw(r, "steps") {
			m.step(r)
		}
		p := repacked(r, m.Ledger, lasting(rapid.IntRange(0, 5).Draw(r, "empty"), rapid.Int64Range(0, 3).Draw(r, "transfer")))
		for _, move := range p.Moves {
			if _, err := m.Apply(move); err != nil {
				r.Fatalf("%+v: %v", move, err)
			}
			check(r, m.Ledger)
		}
		moves += len(p.Moves)
	})
	t.Logf("%d moves", moves)
}
