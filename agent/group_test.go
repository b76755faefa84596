package agent

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A part of an agent that hangs does not keep the others from ending well, nor what it was about from
// being told.
func TestAGroupLeavesBehindWhatHangs(t *testing.T) {
	hang, why := make(chan struct{}), errors.New("it failed")
	g := newGroup(t.Context())
	g.within = time.Millisecond
	g.Go(func(context.Context) error {
		<-hang
		return nil
	})
	g.Go(func(context.Context) error { return why })
	if err := g.Wait(); !errors.Is(err, why) || !errors.Is(err, errStuck) {
		t.Errorf("the group ended with: %v", err)
	}
	if inTime(time.Millisecond, func() { <-hang }) {
		t.Error("what hangs is said to be done")
	}
	close(hang)
	if !inTime(time.Minute, func() { <-hang }) {
		t.Error("what is done is said to hang")
	}
}
