package runtime

import (
	"errors"
	"testing"

	"rota/agent/plan"
)

// slowBox freezes when it is told how that ended, as one does of which a process hangs in the kernel.
type slowBox struct {
	box
	began  chan struct{}
	ends   chan error
	thawed bool
}

func (b *slowBox) freeze(frozen bool) error {
	if !frozen {
		b.thawed = true
		return nil
	}
	b.began <- struct{}{}
	return <-b.ends
}

// slowFreeze has a supervisor freeze an attempt for session 1, and returns while it is at it.
func slowFreeze(t *testing.T) (s *supervisor, b *slowBox, result chan error) {
	t.Helper()
	k := plan.Key{Action: 1, Attempt: 1}
	b = &slowBox{began: make(chan struct{}), ends: make(chan error)}
	a := newAttempt(&Spec{Key: k})
	a.reach = &reach{box: b}
	s = &supervisor{attempts: map[plan.Key]*attempt{k: a}}
	s.session.Store(&session{id: 1})
	result = make(chan error)
	go func() { result <- s.freezeAttempt(1, k, true) }()
	<-b.began
	return s, b, result
}

func (s *supervisor) listsFrozen() bool {
	running, _ := s.list()
	return running[0].Frozen
}

// TestAFreezeHoldsUpNothing: while a freeze takes its time, other requests are served, the one that
// moves the deadline among them.
func TestAFreezeHoldsUpNothing(t *testing.T) {
	for _, failure := range []error{nil, errors.New("a process hangs in the kernel")} {
		s, b, result := slowFreeze(t)
		k := plan.Key{Action: 1, Attempt: 1}
		if err := s.request(1, func() error { return nil }); err != nil { // it would wait for ever
			t.Fatal(err)
		}
		for _, frozen := range []bool{true, false} {
			if err := s.freezeAttempt(1, k, frozen); err == nil {
				t.Errorf("what is being frozen was frozen or thawed: %v", frozen)
			}
		}
		if s.listsFrozen() {
			t.Error("it is frozen before it is")
		}
		b.ends <- failure
		if err := <-result; (err != nil) != (failure != nil) || s.listsFrozen() != (failure == nil) {
			t.Errorf("after %v: %v, frozen: %v", failure, err, s.listsFrozen())
		}
		if err := s.freezeAttempt(1, k, false); err != nil || s.listsFrozen() || b.thawed != (failure == nil) {
			t.Errorf("let go on: %v, frozen: %v, thawed: %v", err, s.listsFrozen(), b.thawed)
		}
	}
}

// TestAFreezeOfAnOldAgentIsUndone: its successor was told that the attempt runs.
func TestAFreezeOfAnOldAgentIsUndone(t *testing.T) {
	s, b, result := slowFreeze(t)
	s.mu.Lock()
	s.session.Store(&session{id: 2})
	s.mu.Unlock()
	b.ends <- nil
	if err := <-result; err == nil || !b.thawed || s.listsFrozen() {
		t.Errorf("%v, thawed: %v, frozen: %v", err, b.thawed, s.listsFrozen())
	}
}
