package plan

import "testing"

// newLease has 6 s and a margin of 1.5 s.
func newLease() (l Lease) {
	l.Begin(leaseNS, marginNS)
	return l
}

func TestALeaseCountsFromWhenTheRenewalWasSent(t *testing.T) {
	l := newLease()
	if l.Held(1) != 0 {
		t.Error("held before the first renewal")
	}
	const sent = 1
	l.Extend(sent, sent+2*second) // the answer takes its time
	const end = sent + 4500*millisecond
	if got := l.Held(sent + 2*second); got != end {
		t.Errorf("held until %d, want %d", got, end)
	}
	if l.Held(end-1) == 0 {
		t.Error("not held 1 ns before its end")
	}
	if l.Held(end) != 0 {
		t.Error("held at its end")
	}
}

func TestALeaseThatHasEndedStaysSo(t *testing.T) {
	l := newLease()
	l.Extend(1, 1)
	l.Extend(4*second, 5*second) // answered too late
	if l.Held(5*second) != 0 {
		t.Error("a late answer has revived the lease")
	}
	l.Begin(leaseNS, marginNS)
	l.Extend(5*second, 5*second)
	if l.Held(5*second) == 0 {
		t.Error("not held after a new registration")
	}
}

func TestAnAnswerToAnOlderRenewalTakesNothingAway(t *testing.T) {
	l := newLease()
	l.Extend(second, second)
	held := l.Held(second)
	if l.Extend(1, second); l.Held(second) != held {
		t.Error("the deadline went back")
	}
}

// TestTheEndOfALeaseIsNoticedAtOnce: Next asks to be called then, and no later.
func TestTheEndOfALeaseIsNoticedAtOnce(t *testing.T) {
	n := newNode()
	n.Desire(whole(101, 1))
	startAll(n)
	n.cut = true
	begin := n.now
	for !n.session.lease.Expired(n.now) {
		steps, again := n.Next(n.now)
		for _, s := range steps {
			n.do(s)
		}
		n.now = again
	}
	if got, want := n.now-begin, leaseNS-marginNS; got != want {
		t.Errorf("called %d ns after the last renewal, want %d", got, want)
	}
	n.settle()
	if kills := take[Kill](n); len(kills) != 1 {
		t.Errorf("kills %v", kills)
	}
}

func TestWithoutAFirstRenewalThereIsNothingToLose(t *testing.T) {
	n := &node{Plan: New(0, nil), now: 1, cut: true}
	n.Connected(nil, nil, true, n.now)
	n.settle()
	n.now += 3600 * second
	n.settle()
	if closed := take[Close](n); len(closed) != 0 {
		t.Errorf("the session ended: %v", closed)
	}
}
