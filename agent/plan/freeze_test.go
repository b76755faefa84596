package plan

import (
	"slices"
	"testing"
)

// paused is a desired state in which action 1 is frozen for a pause, and others have CPUs.
func paused(index uint64, pause uint32, cpus ...CPUs) Desired {
	d := wide(index, cpus...)
	d.Assignments[0].Freeze = pause
	return d
}

// freezes expects one order to freeze or to thaw action 1.
func freezes(t *testing.T, n *node, frozen bool) Freeze {
	t.Helper()
	n.settle()
	steps := take[Freeze](n)
	if len(steps) != 1 || steps[0].Key != k(1) || steps[0].Frozen != frozen {
		t.Fatalf("got %v, want one order to freeze: %v", steps, frozen)
	}
	return steps[0]
}

// TestAFrozenAttemptLeavesItsCPUs: it is reported, its CPUs go to another, and it goes on when it
// has CPUs again.
func TestAFrozenAttemptLeavesItsCPUs(t *testing.T) {
	n := twoRunning(t)
	n.Desire(paused(102, 1, CPUs{0, 1, 2}, CPUs{3}))
	f := freezes(t, n, true)
	n.Desire(paused(103, 1, CPUs{0, 1, 2}, CPUs{3}))
	n.settle()
	if got := take[ReportFrozen](n); len(got) > 0 {
		t.Fatalf("%v before it is frozen", got)
	}
	n.Froze(f.Connection, f.Key, false, false, n.now) // it is not known whether it is
	n.now += resizeAgain
	f = freezes(t, n, true)
	n.Froze(f.Connection, f.Key, true, true, n.now)
	n.settle()
	report := take[ReportFrozen](n)
	if len(report) != 1 || !slices.Equal(report[0].Attempts, []Frozen{{k(1), 1}}) {
		t.Fatalf("reported %v", report)
	}
	n.FrozenReported(report[0].Attempts, true)

	n.Desire(paused(104, 1, CPUs{}, CPUs{3}, CPUs{0, 1}))
	expect(t, n, "start 3 [0 1]")
	n.Started(n.link.connection, k(3), OK, "", n.now)
	n.Desire(wide(105, CPUs{1, 2}, CPUs{3}, CPUs{0}))
	expect(t, n, "resize 1 [2]", "resize 3 [0]")
	n.Resized(n.link.connection, k(1), true, n.now)
	if n.settle(); len(take[Freeze](n)) > 0 {
		t.Fatal("it goes on before another has left its CPUs")
	}
	n.Resized(n.link.connection, k(3), true, n.now)
	expect(t, n, "resize 1 [1 2]")
	n.Resized(n.link.connection, k(1), true, n.now)
	f = freezes(t, n, false)
	n.Froze(f.Connection, f.Key, false, true, n.now)
	expect(t, n)
}

// TestWhatIsFrozenIsLearned from the supervisor by an agent that did not freeze it.
func TestWhatIsFrozenIsLearned(t *testing.T) {
	n := twoRunning(t)
	n.Disconnected()
	n.Connected([]Running{{Key: k(1), CPUs: CPUs{0, 1, 2}, Frozen: true}, {Key: k(2), CPUs: CPUs{3}}}, nil, true, n.now)
	n.Desire(wide(102, CPUs{0, 1, 2}, CPUs{3}))
	expect(t, n, "resize 1 [0 1 2]")
	n.Resized(n.link.connection, k(1), true, n.now)
	freezes(t, n, false)
}

// TestWhatCannotBeFrozenIsTriedLessOften, so that the supervisor has time for others.
func TestWhatCannotBeFrozenIsTriedLessOften(t *testing.T) {
	n := twoRunning(t)
	n.Desire(paused(102, 1, CPUs{0, 1, 2}, CPUs{3}))
	for _, wait := range []int64{1, 2, 4, 8, 16, 32, 64, 64, 64} {
		f := freezes(t, n, true)
		n.Froze(f.Connection, f.Key, true, false, n.now)
		for again := n.now + wait*resizeAgain; n.now < again-1; {
			n.now = min(n.now+second, again-1)
			if n.settle(); len(take[Freeze](n)) > 0 {
				t.Fatalf("tried again before %d times the first pause", wait)
			}
		}
		n.now++
	}
	f := freezes(t, n, true)
	n.Froze(f.Connection, f.Key, true, true, n.now)
	n.settle()
	n.Desire(wide(103, CPUs{0, 1, 2}, CPUs{3}))
	expect(t, n, "resize 1 [0 1 2]")
	n.Resized(n.link.connection, k(1), true, n.now)
	f = freezes(t, n, false)
	n.Froze(f.Connection, f.Key, false, false, n.now)
	n.now += resizeAgain
	freezes(t, n, false)
}

// TestARestartedAgentThawsNothingUnasked: until it is told which are paused, what is frozen stays so.
func TestARestartedAgentThawsNothingUnasked(t *testing.T) {
	n := &node{Plan: New(7, []Accepted{{Key: k(1)}}), now: 1}
	n.Connected([]Running{{Key: k(1), CPUs: CPUs{0, 1, 2}, Frozen: true}}, nil, true, n.now)
	n.settle()
	if !n.Ready(n.now) {
		t.Fatal("it may not start anything")
	}
	if steps := take[Freeze](n); len(steps) > 0 {
		t.Errorf("%v, though no desired state has come", steps)
	}
	n.Desire(paused(102, 1, CPUs{0, 1, 2}, CPUs{3}))
	n.settle()
	if steps := take[Freeze](n); len(steps) > 0 {
		t.Errorf("%v, though it is paused", steps)
	}
}
