package runtime

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"rota/agent/plan"
	supervisorv1 "rota/api/gen/supervisor/v1"
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

// sent is the stream of a request that was sent.
type sent struct{ req proto.Message }

func (s sent) SendMsg(any) error { return nil }

func (s sent) RecvMsg(to any) error {
	proto.Merge(to.(proto.Message), s.req)
	return nil
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
	s.serving.Lock() // as while a start is journaled
	defer s.serving.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	done := make(chan error, 2)
	go func() {
		_, err := s.serveKill(t.Context(), sent{&supervisorv1.KillRequest{Session: 6, Key: wireKey(other.spec.Key), Reason: uint32(plan.ReasonCanceled)}})
		done <- err
		_, err = s.serveKill(t.Context(), sent{&supervisorv1.KillRequest{Session: 7, Key: wireKey(one.spec.Key), Reason: uint32(plan.ReasonCanceled)}})
		done <- err
	}()
	for _, current := range []bool{false, true} {
		select {
		case err := <-done:
			if (err == nil) != current {
				t.Errorf("a kill of the current agent, %v: %v", current, err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the kill waits")
		}
	}
	if o := one.ending.ordered(); o == nil || o.reason != plan.ReasonCanceled {
		t.Errorf("it was to be killed: %+v", o)
	}
	if o := other.ending.ordered(); o != nil {
		t.Errorf("another was killed: %+v", o)
	}
}
