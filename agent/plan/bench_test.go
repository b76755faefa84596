package plan

import "testing"

// BenchmarkChange starts one attempt and forgets another, on a node with 1,000.
func BenchmarkChange(b *testing.B) {
	const attempts = 1000
	n := newNode()
	d := whole(101)
	for id := range uint64(attempts) {
		d.Assignments = append(d.Assignments, Assignment{Key: k(id + 1)})
	}
	n.Desire(d)
	startAll(n)
	next, index := uint64(attempts), uint64(101)
	b.ReportAllocs()
	for b.Loop() {
		next++
		index++
		old := k(next - attempts)
		n.Exited(Exit{Key: old, Reason: ReasonExited})
		n.settle()
		take[Report](n)
		n.Reported([]Key{old}, index)
		n.ReportsDone()
		n.Desire(changes(index-1, index, []uint64{old.Action}, int(next)))
		startAll(n)
		n.done = nil
	}
	if got := len(n.table.byKey); got != attempts {
		b.Fatalf("%d attempts are known, want %d", got, attempts)
	}
}
