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

// naive is a ledger as plain as can be: who has each group in each slot of the
// window, worked out from the rows slot by slot.
type naive struct {
	head int64
	free []int64
	has  map[GroupID][]JobID
}

// newNaive fails if any group is given to two jobs at once, now or in a later period.
func newNaive(t failer, c Config, head int64, groups []Group, residents []Resident) naive {
	t.Helper()
	n := naive{head, make([]int64, c.Slots), make(map[GroupID][]JobID)}
	far := head + 4*c.Slots
	for _, g := range groups {
		for i := range n.free {
			n.free[i] += g.Nodes
		}
		has := make([]JobID, far-head)
		for _, r := range residents {
			if r.Group == g.ID {
				n.put(t, g, r, has)
			}
		}
		n.has[g.ID] = has[:c.Slots]
	}
	return n
}

// put marks what a job needs, cycle by cycle.
func (n *naive) put(t failer, g Group, r Resident, has []JobID) {
	t.Helper()
	per := g.Period / r.Cycle.Period
	start := r.Anchor
	for k := r.Index; start < n.head+int64(len(has)); k++ {
		for _, s := range r.Cycle.Segments {
			for at := start + s.Offset; at < start+s.Offset+s.Length; at++ {
				i := at - n.head
				if i < 0 || i >= int64(len(has)) {
					continue
				}
				if has[i] != 0 {
					t.Fatalf("group %d is given to jobs %d and %d at slot %d", g.ID, has[i], r.Job, at)
				}
				has[i] = r.Job
				if i < int64(len(n.free)) {
					if n.free[i] -= s.Nodes; n.free[i] < 0 {
						t.Fatalf("%d nodes are free at slot %d", n.free[i], at)
					}
				}
			}
		}
		// The next cycle starts a whole number of cycles after the period's start.
		start += (k+1)*g.Period/per - k*g.Period/per
	}
}

// check compares a ledger with the naive one and with one that is built of its rows.
func check(t failer, l *Ledger) {
	t.Helper()
	groups, residents := l.Rows()
	n := newNaive(t, l.config, l.ring.head, groups, residents)
	for i, free := range n.free {
		if at := n.head + int64(i); l.Free(at, at+1) != free {
			t.Fatalf("%d nodes are free at slot %d, want %d", l.Free(at, at+1), at, free)
		}
	}
	for id, has := range n.has {
		for i, want := range has {
			at := n.head + int64(i)
			job, until, _ := l.Holder(id, at)
			if job != want {
				t.Fatalf("group %d is job %d's at slot %d, want %d", id, job, at, want)
			}
			if next := until - n.head; want != 0 && next < int64(len(has)) && has[next] == want && has[next-1] != want {
				t.Fatalf("group %d is job %d's until %d, not longer", id, job, until)
			}
		}
	}
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
	groups, residents := l.Rows()
	slices.Reverse(groups)
	slices.Reverse(residents)
	b, err := Build(l.config, l.ring.head, groups, residents)
	if err != nil {
		t.Fatalf("the rows do not make a ledger: %v", err)
	}
	return b
}

// same compares all that is derived.
func same(t failer, l, b *Ledger) {
	t.Helper()
	b.window()
	l.window()
	if l.total != b.total || len(l.groups) != len(b.groups) || len(l.jobs) != len(b.jobs) {
		t.Fatalf("%d groups with %d nodes and %d jobs, rebuilt %d with %d and %d",
			len(l.groups), l.total, len(l.jobs), len(b.groups), b.total, len(b.jobs))
	}
	for i := range int(l.ring.n) {
		if l.ring.at(i) != b.ring.at(i) {
			t.Fatalf("index %d is %d, rebuilt %d", i, l.ring.at(i), b.ring.at(i))
		}
	}
	if l.ring.least[1] != b.ring.least[1] {
		t.Fatalf("the least of all is %d, rebuilt %d", l.ring.least[1], b.ring.least[1])
	}
	for i, g := range l.groups {
		if g.Group != b.groups[i].Group || !slices.Equal(g.circle.busy, b.groups[i].circle.busy) {
			t.Fatalf("group %+v has %v, rebuilt %+v has %v", g.Group, g.circle.busy, b.groups[i].Group, b.groups[i].circle.busy)
		}
	}
}

// TestTree compares the tree and the ring with an array, over random sequences of
// additions, slides and questions.
func TestTree(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.Int64Range(1, 40).Draw(r, "slots")
		rg := ring{newTree(make([]int32, n)), n, rapid.Int64Range(0, 100).Draw(r, "head")}
		array := make([]int32, n) // from the head on
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			from := rg.head + rapid.Int64Range(-5, 50).Draw(r, "from")
			to := from + rapid.Int64Range(-2, 50).Draw(r, "length")
			v := rapid.Int32Range(-3, 3).Draw(r, "v")
			inside := func(i int) bool { t := rg.head + int64(i); return from <= t && t < to }
			switch rapid.IntRange(0, 2).Draw(r, "what") {
			case 0:
				rg.add(from, to, v)
				for i := range array {
					if inside(i) {
						array[i] += v
					}
				}
			case 1:
				rg.head++
				rg.set(int((rg.end()-1)%n), v)
				array = append(array[1:], v)
			}
			least, first, last := int32(1<<30-1), int64(-1), int64(-1)
			for i, x := range array {
				if !inside(i) {
					continue
				}
				least = min(least, x)
				if x < v {
					last = rg.head + int64(i)
					if first < 0 {
						first = last
					}
				}
			}
			if got := rg.min(from, to); got != least {
				r.Fatalf("least from %d to %d is %d, want %d: %v", from, to, got, least, array)
			}
			if got, ok := rg.firstBelow(from, to, v); ok != (first >= 0) || ok && got != first {
				r.Fatalf("first below %d is %d, want %d: %v", v, got, first, array)
			}
			if got, ok := rg.lastBelow(from, to, v); ok != (last >= 0) || ok && got != last {
				r.Fatalf("last below %d is %d, want %d: %v", v, got, last, array)
			}
		}
	})
}
