package agent

import (
	"context"
	"testing"

	"connectrpc.com/connect"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/api/share"
)

// TestCallsOfOneAttemptLeaveRoomForOthers: an attempt that does not read its input holds as many calls
// as it gets, and a call about another attempt is served.
func TestCallsOfOneAttemptLeaveRoomForOthers(t *testing.T) {
	s := &streamService{
		conn: func() runtime.Runtime { return new(link) }, incarnation: func() uint64 { return 1 },
		inputs: share.New[plan.Key](8),
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	results := make(chan error)
	call := func(action uint64) {
		results <- s.with(t.Context(), s.inputs, action, 1, func(context.Context, runtime.Streams, plan.Key) error {
			begun <- struct{}{}
			<-goOn
			return nil
		})
	}
	for range 3 { // of 8, 2 are for attempts without a call, and half of the rest is left free
		go call(1)
		<-begun
	}
	go call(1)
	if err := <-results; connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one call too many: %v", err)
	}
	go call(2)
	<-begun
	close(goOn)
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if err := s.with(t.Context(), s.inputs, 1, 1, func(context.Context, runtime.Streams, plan.Key) error { return nil }); err != nil {
		t.Errorf("after they ended: %v", err)
	}
}
