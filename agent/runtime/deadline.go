package runtime

import (
	"fmt"

	"rota/agent/plan"
	"rota/internal/clock"
	"rota/internal/failpoint"
)

// leaseEnded is why everything is killed at the deadline.
var leaseEnded = killOrder{plan.ReasonNodeLost, "killed because the node's lease ended"}

// setDeadline moves the time at which everything is killed. A later one than
// now also ends the state after such a kill.
func (s *supervisor) setDeadline(boottimeNS int64) error {
	if boottimeNS < 0 {
		return fmt.Errorf("deadline %d is negative", boottimeNS)
	}
	s.killing.Lock()
	defer s.killing.Unlock()
	s.deadline = boottimeNS
	if boottimeNS == 0 || boottimeNS > clock.Boottime() {
		s.expired = false
	}
	return s.alarm.set(boottimeNS)
}

// over reports whether the deadline has passed.
func (s *supervisor) over() bool {
	s.killing.Lock()
	defer s.killing.Unlock()
	return s.overLocked()
}

func (s *supervisor) overLocked() bool {
	return s.expired || s.deadline != 0 && clock.Boottime() >= s.deadline
}

// enlist adds an attempt that is about to begin. The deadline may have passed while it was
// journaled.
func (s *supervisor) enlist(a *attempt) {
	s.killing.Lock()
	defer s.killing.Unlock()
	s.live[a] = struct{}{}
	if s.overLocked() {
		a.ending.order(leaseEnded)
	}
}

// delist takes out an attempt of which nothing is alive.
func (s *supervisor) delist(a *attempt) {
	s.killing.Lock()
	defer s.killing.Unlock()
	delete(s.live, a)
}

// killAll orders the end of everything, and returns of how many attempts.
func (s *supervisor) killAll(o killOrder) int {
	s.killing.Lock()
	defer s.killing.Unlock()
	for a := range s.live {
		a.ending.order(o)
	}
	return len(s.live)
}

// deadlinePassed is called by the alarm, which may ring for a deadline that has
// been moved since. The log comes last: its disk may hang.
func (s *supervisor) deadlinePassed() {
	s.killing.Lock()
	due := s.deadline != 0 && clock.Boottime() >= s.deadline
	if due {
		s.expired = true
	}
	s.killing.Unlock()
	if due {
		failpoint.Hit(failpoint.DeadlinePassed)
		attempts := s.killAll(leaseEnded)
		s.log.Warn("lease ended: killing everything", "attempts", attempts)
	}
}
