package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"rota/agent/lease"
)

// clocked runs a test with a lease of 6 s and a margin of 1.5 s, on a clock
// that only moves when everybody waits.
func clocked(t *testing.T, test func(t *testing.T, l *lease.Lease)) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		l := lease.New(func() int64 { return 1 + int64(time.Since(begin)) })
		l.Begin(6*time.Second, 1500*time.Millisecond)
		test(t, l)
	})
}

func TestALeaseCountsFromWhenTheRenewalWasSent(t *testing.T) {
	clocked(t, func(t *testing.T, l *lease.Lease) {
		if l.Held() != 0 {
			t.Error("held before the first renewal")
		}
		sent := l.Now()
		time.Sleep(2 * time.Second) // the answer takes its time
		l.Extend(sent)
		if got, want := l.Held(), sent+int64(4500*time.Millisecond); got != want {
			t.Errorf("held until %d, want %d", got, want)
		}
		time.Sleep(2500*time.Millisecond - 1)
		if l.Held() == 0 {
			t.Error("not held 1 ns before its end")
		}
		time.Sleep(1 * time.Nanosecond)
		if l.Held() != 0 {
			t.Error("held at its end")
		}
	})
}

func TestALeaseThatHasEndedStaysSo(t *testing.T) {
	clocked(t, func(t *testing.T, l *lease.Lease) {
		l.Extend(l.Now())
		time.Sleep(4 * time.Second)
		sent := l.Now()
		time.Sleep(time.Second) // the renewal is answered too late
		l.Extend(sent)
		if l.Held() != 0 {
			t.Error("a late answer has revived the lease")
		}
		l.Begin(6*time.Second, time.Second)
		l.Extend(l.Now())
		if l.Held() == 0 {
			t.Error("not held after a new registration")
		}
	})
}

func TestAnAnswerToAnOlderRenewalTakesNothingAway(t *testing.T) {
	clocked(t, func(t *testing.T, l *lease.Lease) {
		older := l.Now()
		time.Sleep(time.Second)
		l.Extend(l.Now())
		deadline := l.Held()
		l.Extend(older)
		if l.Held() != deadline {
			t.Error("the deadline went back")
		}
	})
}
