package agent

import (
	"context"
	"testing"

	"rota/agent/plan"
)

// What comes before an attempt is handed to the runtime ends when the attempt is abandoned, and no
// other with it.
func TestAnAbandonedStartIsBrokenOff(t *testing.T) {
	s := &steps{work: t.Context(), preparing: map[plan.Key]context.CancelFunc{}}
	a, b := plan.Key{Action: 1}, plan.Key{Action: 2}
	ctxA, doneA := s.prepare(a)
	ctxB, doneB := s.prepare(b)
	s.abandon(a)
	if ctxA.Err() == nil || ctxB.Err() != nil {
		t.Errorf("the contexts ended with %v and %v", ctxA.Err(), ctxB.Err())
	}
	doneA()
	doneB()
	if s.abandon(b); len(s.preparing) > 0 {
		t.Errorf("%d starts are still prepared", len(s.preparing))
	}
}
