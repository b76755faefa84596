package ledger

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// failer is what tests and properties have in common.
type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// often checks a property more often than usual: what it is to find is rare.
func often(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	for range 8 {
		rapid.Check(t, property)
	}
}

// build makes a ledger of groups 1, 2 and so on, with these many nodes.
func build(c Config, head int64, nodes ...int64) *Ledger {
	var groups []Group
	for i, n := range nodes {
		groups = append(groups, Group{ID: GroupID(i + 1), Nodes: n})
	}
	return must(Build(c, head, groups, nil))
}

// naive is a ledger as plain as can be: who has each group in each slot of the
// window, worked out from the rows slot by slot.
type naive struct {
	head int64
	has  map[GroupID][]JobID
}

// newNaive fails if any group is given to two jobs at once, now or in a later period.
func newNaive(t failer, c Config, head int64, groups []Group, reservations []Reservation) naive {
	t.Helper()
	n := naive{head, make(map[GroupID][]JobID)}
	far := head + 4*c.Slots
	for _, g := range groups {
		has := make([]JobID, far-head)
		for _, r := range reservations {
			if r.Group == g.ID {
				n.put(t, g, r, has)
			}
		}
		n.has[g.ID] = has[:c.Slots]
	}
	return n
}

// put marks what a job needs, cycle by cycle.
func (n *naive) put(t failer, g Group, r Reservation, has []JobID) {
	t.Helper()
	per := g.Period / r.Cycle.Period
	start := r.Anchor
	for k := r.Index; start < n.head+int64(len(has)); k++ {
		for _, s := range r.Cycle.Segments {
			if s.Nodes > g.Nodes {
				t.Fatalf("job %d needs %d nodes of group %d, which has %d", r.Job, s.Nodes, g.ID, g.Nodes)
			}
			for at := start + s.Offset; at < start+s.Offset+s.Length; at++ {
				i := at - n.head
				if i < 0 || i >= int64(len(has)) {
					continue
				}
				if has[i] != 0 {
					t.Fatalf("group %d is given to jobs %d and %d at slot %d", g.ID, has[i], r.Job, at)
				}
				has[i] = r.Job
			}
		}
		// The next cycle starts a whole number of cycles after the period's start.
		start += (k+1)*g.Period/per - k*g.Period/per
	}
}

// check compares a ledger with the naive one and with one that is built of its rows.
func check(t failer, l *Ledger) {
	t.Helper()
	groups, reservations := l.Rows()
	n := newNaive(t, l.config, l.head, groups, reservations)
	for id, has := range n.has {
		checkReserved(t, l, id, has)
	}
	same(t, l, rebuilt(t, l))
}

// checkReserved puts together what is reserved of each slot, from two halves of the
// window.
func checkReserved(t failer, l *Ledger, id GroupID, has []JobID) {
	t.Helper()
	from, to := l.Window()
	half := (from + to) / 2
	for _, part := range [][2]int64{{from, half}, {half, to}} {
		got := make([]JobID, len(has))
		for _, r := range l.Reserved(id, part[0], part[1]) {
			for at := max(r.Start, part[0]); at < min(r.End, part[1]); at++ {
				got[at-from] = r.Job
			}
		}
		if want := has[part[0]-from : part[1]-from]; !slices.Equal(got[part[0]-from:part[1]-from], want) {
			t.Fatalf("reserved of group %d from %d to %d is %v, want %v", id, part[0], part[1], got, want)
		}
	}
}

func rebuilt(t failer, l *Ledger) *Ledger {
	t.Helper()
	groups, reservations := l.Rows()
	slices.Reverse(groups)
	slices.Reverse(reservations)
	b, err := Build(l.config, l.head, groups, reservations)
	if err != nil {
		t.Fatalf("the rows do not make a ledger: %v", err)
	}
	return b
}

// same compares all that is derived.
func same(t failer, l, b *Ledger) {
	t.Helper()
	if l.total != b.total || len(l.groups) != len(b.groups) || len(l.jobs) != len(b.jobs) {
		t.Fatalf("%d groups with %d nodes and %d jobs, rebuilt %d with %d and %d",
			len(l.groups), l.total, len(l.jobs), len(b.groups), b.total, len(b.jobs))
	}
	for i, g := range l.groups {
		if g.Group != b.groups[i].Group || !slices.Equal(g.circle.busy, b.groups[i].circle.busy) {
			t.Fatalf("group %+v has %v, rebuilt %+v has %v", g.Group, g.circle.busy, b.groups[i].Group, b.groups[i].circle.busy)
		}
	}
}
