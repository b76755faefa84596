package runtime

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/plan"
	"rota/internal/clock"
)

// A disk that hangs keeps the table locked, and a lease ends all the same: for what runs, and for
// what begins later.
func TestADeadlineDoesNotWaitForADisk(t *testing.T) {
	s := &supervisor{log: hclog.NewNullLogger(), attempts: map[plan.Key]*attempt{}, live: map[*attempt]struct{}{}, deadline: clock.Boottime()}
	running := newAttempt(&Spec{Key: plan.Key{Action: 1}})
	s.attempts[running.spec.Key] = running
	s.live[running] = struct{}{}
	s.mu.Lock() // as while the journal is written
	go s.deadlinePassed()
	select {
	case <-running.ending.killed:
	case <-time.After(time.Minute):
		t.Error("what runs was not killed at its deadline")
	}
	s.mu.Unlock()
	late := newAttempt(&Spec{Key: plan.Key{Action: 2}})
	s.enlist(late)
	if o := late.ending.ordered(); o == nil || o.reason != plan.ReasonNodeLost {
		t.Errorf("what began after the deadline: %+v", o)
	}
	r := &runner{sup: s, a: late, forking: make(chan struct{})}
	if err := r.enterCell("/bin/true"); err == nil {
		t.Error("an attempt that was killed is forked")
	}
}

// A disk that hangs keeps the table locked, and the agent can kill all the same.
func TestAKillDoesNotWaitForADisk(t *testing.T) {
	s := &supervisor{log: hclog.NewNullLogger(), attempts: map[plan.Key]*attempt{}, live: map[*attempt]struct{}{}}
	s.session.Store(&session{id: 7})
	one, other := newAttempt(&Spec{Key: plan.Key{Action: 1}}), newAttempt(&Spec{Key: plan.Key{Action: 2}})
	for _, a := range []*attempt{one, other} {
		s.attempts[a.spec.Key] = a
		s.enlist(a)
	}
	s.mu.Lock() // as while the journal is written
	defer s.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		done <- s.request(7, func() error { return s.killAttempt(plan.Key{Action: 1}, plan.ReasonCanceled) })
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the kill waits")
	}
	if o := one.ending.ordered(); o == nil || o.reason != plan.ReasonCanceled {
		t.Errorf("it was to be killed: %+v", o)
	}
	if o := other.ending.ordered(); o != nil {
		t.Errorf("another was killed: %+v", o)
	}
}
