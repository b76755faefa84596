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
