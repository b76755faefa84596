package plan

import (
	"fmt"
	"slices"
	"testing"
)

// wide is a desired state in which actions have CPUs; nil for an action that is not in it.
func wide(index uint64, cpus ...CPUs) Desired {
	d := Desired{Incarnation: 7, Index: index}
	for i, list := range cpus {
		if list != nil {
			d.Assignments = append(d.Assignments, Assignment{Key: k(uint64(i + 1)), CPUs: list})
		}
	}
	return d
}

// orders are the starts and changes of CPUs that are due, in words.
func orders(n *node) (text []string) {
	n.settle()
	for _, s := range take[Start](n) {
		text = append(text, fmt.Sprint("start ", s.Key.Action, " ", s.CPUs))
	}
	for _, s := range take[Resize](n) {
		text = append(text, fmt.Sprint("resize ", s.Key.Action, " ", s.CPUs))
	}
	slices.Sort(text)
	return text
}

func expect(t *testing.T, n *node, want ...string) {
	t.Helper()
	if got := orders(n); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// twoRunning runs action 1 on CPUs 0 to 2 and action 2 on CPU 3.
func twoRunning(t *testing.T) *node {
	n := newNode()
	n.Desire(wide(101, CPUs{0, 1, 2}, CPUs{3}))
	expect(t, n, "start 1 [0 1 2]", "start 2 [3]")
	n.Started(n.link.connection, k(1), OK, "", n.now)
	n.Started(n.link.connection, k(2), OK, "", n.now)
	expect(t, n)
	return n
}

func TestShrinkBeforeGrow(t *testing.T) {
	n := twoRunning(t)
	n.Desire(wide(102, CPUs{0}, CPUs{2, 3}, CPUs{1}))
	expect(t, n, "resize 1 [0]")
	n.Resized(n.link.connection, k(1), true, n.now)
	expect(t, n, "resize 2 [2 3]", "start 3 [1]")
	n.Resized(n.link.connection, k(2), true, n.now)
	n.Started(n.link.connection, k(3), OK, "", n.now)
	expect(t, n)
}

// What is free already does not wait for what is not.
func TestGrowthInTwoSteps(t *testing.T) {
	n := twoRunning(t)
	n.Desire(wide(102, CPUs{0, 1}, CPUs{2, 3, 4}))
	expect(t, n, "resize 1 [0 1]", "resize 2 [3 4]")
	n.Resized(n.link.connection, k(1), true, n.now)
	expect(t, n) // one change of an attempt is under way at a time
	n.Resized(n.link.connection, k(2), true, n.now)
	expect(t, n, "resize 2 [2 3 4]")
}

// A newer desired state comes while a change is under way.
func TestAChangeIsOvertaken(t *testing.T) {
	n := twoRunning(t)
	n.Desire(wide(102, CPUs{0}, CPUs{3}, CPUs{1, 2}))
	expect(t, n, "resize 1 [0]")
	n.Desire(wide(103, CPUs{0, 1, 2}, CPUs{3}))
	expect(t, n)
	n.Resized(n.link.connection, k(1), true, n.now)
	expect(t, n, "resize 1 [0 1 2]")
}

// An error says nothing of what was done. So what was to be left is still held, as is what
// was to be had, until the same has been done for sure.
func TestAnUnansweredChange(t *testing.T) {
	n := twoRunning(t)
	n.Desire(wide(102, CPUs{0, 4}, CPUs{3}, CPUs{1, 2}))
	expect(t, n, "resize 1 [0 4]")
	n.Resized(n.link.connection, k(1), false, n.now)
	n.Desire(wide(103, CPUs{0}, CPUs{3, 4}, CPUs{1, 2}))
	expect(t, n) // 1 may run on each of 0, 1, 2 and 4
	n.now += resizeAgain
	expect(t, n, "resize 1 [0]")
	n.Resized(n.link.connection, k(1), true, n.now)
	expect(t, n, "resize 2 [3 4]", "start 3 [1 2]")
	n.Resized(n.link.connection, k(2), false, n.now)
	n.now += resizeAgain
	expect(t, n, "resize 2 [3 4]") // though it may have that
}

// The supervisor says what is so, and an answer over an earlier connection means nothing.
func TestChangesAfterANewConnection(t *testing.T) {
	n := twoRunning(t)
	n.Desire(wide(102, CPUs{0}, CPUs{3}, CPUs{1, 2}))
	expect(t, n, "resize 1 [0]")
	old := n.link.connection
	n.Disconnected()
	n.Connected([]Running{{Key: k(1), CPUs: CPUs{0, 1, 2}}, {Key: k(2), CPUs: CPUs{3}}}, nil, true, n.now)
	expect(t, n, "resize 1 [0]")
	n.Resized(old, k(1), true, n.now)
	expect(t, n)
	n.Resized(n.link.connection, k(1), true, n.now)
	expect(t, n, "start 3 [1 2]")
}

// Its CPUs are free when an attempt has ended, and not when it was told to.
func TestCPUsOfWhatEnds(t *testing.T) {
	n := twoRunning(t)
	n.Desire(wide(102, nil, CPUs{3}, CPUs{0, 1}))
	expect(t, n)
	if kills := take[Kill](n); len(kills) != 1 {
		t.Fatalf("kills %v", kills)
	}
	n.Exited(Exit{Key: k(1), Reason: ReasonCanceled})
	expect(t, n, "start 3 [0 1]")
}

// A supervisor that cannot change CPUs is not asked to, and nothing is given twice: also
// after a restart of the agent, to which it does not say who has which.
func TestWithoutResizing(t *testing.T) {
	n := newNode()
	n.Disconnected()
	n.Connected(nil, nil, false, n.now)
	n.settle()
	n.Desire(wide(101, CPUs{0, 1}))
	expect(t, n, "start 1 [0 1]")
	n.Started(n.link.connection, k(1), OK, "", n.now)
	n.Desire(wide(102, CPUs{0}, CPUs{1}))
	expect(t, n)
	n.Disconnected()
	n.Connected([]Running{{Key: k(1)}}, nil, false, n.now)
	n.Desire(wide(103, CPUs{0, 1}, CPUs{1}))
	expect(t, n)
	n.Exited(Exit{Key: k(1), Reason: ReasonExited})
	expect(t, n, "start 2 [1]")
}
