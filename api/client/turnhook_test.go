package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// settingUp returns a client of a turnServer with hooks. Their end changes the turn, some
// renewals after they began.
func settingUp(t *testing.T, end func(*rotav1.Turn)) (*Client, *turnServer) {
	c, s := holding(t)
	s.hooks = true
	if end == nil {
		return c, s
	}
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		for done := false; !done && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			s.set(func() {
				if done = s.known > 2; done {
					s.turn.Revision++
					end(s.turn)
				}
			})
		}
	}()
	return c, s
}

// TestATurnIsHeldWhenTheGroupIsReady, and not while hooks run.
func TestATurnIsHeldWhenTheGroupIsReady(t *testing.T) {
	c, s := settingUp(t, func(turn *rotav1.Turn) {
		turn.State, turn.ReadyTime = rotav1.TurnState_TURN_STATE_HELD, timestamppb.Now()
	})
	worked := false
	err := c.HoldTurn(t.Context(), someTurn, func(_ context.Context, turn *rotav1.Turn) error {
		worked = true
		if turn.State != rotav1.TurnState_TURN_STATE_HELD || turn.Token != 5 || turn.ReadyTime == nil {
			t.Errorf("works on %v, want it made ready", turn)
		}
		return nil
	})
	if err != nil || !worked {
		t.Fatal(worked, err)
	}
	if y := s.yielded; y.GetToken() != 5 || y.Failed {
		t.Errorf("yielded with %v", y)
	}
	if known := s.known; known > s.count()-2 {
		t.Errorf("%d of %d renewals say that it is set up, want none of those that wait", known, s.count())
	}
}

// TestAHookThatFailedIsNamed: the work never begins.
func TestAHookThatFailedIsNamed(t *testing.T) {
	const message = "wake hook of default/a/b: action 3 is FAILED (EXITED, exit code 1)"
	c, s := settingUp(t, func(turn *rotav1.Turn) {
		turn.State, turn.Message = rotav1.TurnState_TURN_STATE_CANCELED, message
	})
	err := c.HoldTurn(t.Context(), someTurn, func(context.Context, *rotav1.Turn) error {
		t.Error("works though a hook failed")
		return nil
	})
	if !errors.Is(err, ErrTurnSetUp) || errors.Is(err, ErrTurnLost) || !strings.Contains(err.Error(), message) {
		t.Errorf("ends with %v, want ErrTurnSetUp and the reason", err)
	}
	if s.yielded != nil {
		t.Errorf("it had ended, and was yielded with %v", s.yielded)
	}
}

// TestWhoStopsWaitingForHooksCancels: a turn that is set up has nothing to yield.
func TestWhoStopsWaitingForHooksCancels(t *testing.T) {
	c, s := settingUp(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), turnLease)
	defer cancel()
	err := c.HoldTurn(ctx, someTurn, func(context.Context, *rotav1.Turn) error { panic("not ready") })
	if y := s.yielded; !errors.Is(err, context.DeadlineExceeded) || y.GetToken() != 5 || !y.GetFailed() {
		t.Errorf("ends with %v, yielded %v, want it canceled with its token", err, y)
	}
}
