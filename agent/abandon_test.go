package agent

import (
	"context"
	"testing"

	"rota/agent/plan"
)

// What comes before an attempt is handed to the runtime ends when the attempt is abandoned, and no
// other with it.
func TestAnAbandonedStartIsBrokenOff(t *testing.T) {
	s := &steps{work: t.Context(), preparing: map[plan.Key]context.CancelCauseFunc{}}
	a, b := plan.Key{Action: 1}, plan.Key{Action: 2}
	ctxA, doneA := s.prepare(a)
	ctxB, doneB := s.prepare(b)
	s.abandon(a)
	if ctxA.Err() == nil || ctxB.Err() != nil {
		t.Errorf("the contexts ended with %v and %v", ctxA.Err(), ctxB.Err())
	}
	doneB() // as the agent ends
	for ctx, want := range map[context.Context]plan.Answer{ctxA: plan.Impossible, ctxB: plan.Disarmed} {
		if answer, _ := answerOf(notReady(ctx, ctx.Err())); answer != want {
			t.Errorf("a start that ended with %v is answered with %v, want %v", context.Cause(ctx), answer, want)
		}
	}
	doneA()
	if s.abandon(b); len(s.preparing) > 0 {
		t.Errorf("%d starts are still prepared", len(s.preparing))
	}
}
