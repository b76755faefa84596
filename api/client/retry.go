package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// Bounds of the pause between two tries that the server gives no delay for.
const (
	backoffMin = 10 * time.Millisecond
	backoffMax = time.Second
)

// Detail returns what rota says about an error, nil if the error is not from a
// server of rota.
func Detail(err error) *rotav1.ErrorDetail {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return nil
	}
	for _, d := range ce.Details() {
		if v, err := d.Value(); err == nil {
			if detail, ok := v.(*rotav1.ErrorDetail); ok {
				return detail
			}
		}
	}
	return nil
}

// transient reports whether the same call may succeed later, and after what
// delay the server wants to see it again (0: it did not say).
func transient(err error) (bool, time.Duration) {
	if detail := Detail(err); detail != nil {
		return detail.RetryDelay != nil, detail.RetryDelay.AsDuration()
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeInternal,
		connect.CodeAborted, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		return true, 0
	}
	return false, 0
}

// elsewhere reports whether another server may do better: the one that was
// asked is unreachable, or has lost sight of the leader.
func elsewhere(err error) bool {
	return connect.CodeOf(err) != connect.CodeResourceExhausted
}

// backoff paces the repetitions of one call.
type backoff struct{ tries int }

// wait pauses before the next try: for the server's delay if it gave one, else
// exponentially longer each time. Between half and all of it, at random, so
// that callers who failed together do not come back together.
func (b *backoff) wait(ctx context.Context, delay time.Duration) error {
	if delay == 0 {
		delay = min(backoffMin<<min(b.tries, 10), backoffMax)
		delay = delay/2 + rand.N(delay/2)
	} else {
		delay += rand.N(delay/2 + 1)
	}
	b.tries++
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// triesKey is the key of an *int in a context, which counts tries.
type triesKey struct{}

// retrier repeats unary calls.
type retrier struct{ c *Client }

// WrapUnary repeats a call until it succeeds, fails for good, or RetryFor is
// over.
func (r *retrier) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if !repeatable(req) {
			return next(ctx, req)
		}
		var pause backoff
		giveUp := time.Now().Add(r.c.config.RetryFor)
		unsure := false // a try before this one may have been carried out
		for {
			if n, ok := ctx.Value(triesKey{}).(*int); ok {
				*n++
			}
			try, to := withAttempt(ctx)
			resp, err := next(try, req)
			if err == nil {
				return resp, nil
			}
			unsure = unsure || mayBeDone(req.Spec(), err)
			again, delay := transient(err)
			if ctx.Err() != nil || !again || time.Now().Add(delay).After(giveUp) {
				return nil, unknownIf(unsure, err)
			}
			if elsewhere(err) {
				r.c.servers.failed(to.addr)
			}
			if pause.wait(ctx, delay) != nil {
				return nil, unknownIf(unsure, err)
			}
		}
	}
}

// mayBeDone reports whether a call that ended with this error may have changed
// something: no server refused it, and it was no read.
func mayBeDone(spec connect.Spec, err error) bool {
	_, method, _ := strings.Cut(strings.TrimPrefix(spec.Procedure, "/"), "/")
	if strings.HasPrefix(method, "Get") || strings.HasPrefix(method, "List") || method == "RenewTurn" {
		return false
	}
	if detail := Detail(err); detail != nil {
		return detail.Reason == "UNKNOWN_OUTCOME"
	}
	lost, _ := transient(err)
	return lost && !errors.Is(err, syscall.ECONNREFUSED)
}

func unknownIf(unsure bool, err error) error {
	if !unsure || errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

// WrapStreamingClient leaves streams alone: who reads one knows where to go on.
func (r *retrier) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is for servers.
func (r *retrier) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// repeatable reports whether doing the call twice is the same as once.
func repeatable(req connect.AnyRequest) bool {
	switch m := req.Any().(type) {
	case *rotav1.SubmitActionsRequest:
		return m.RequestId != ""
	case *rotav1.OpenTrajectoryRequest:
		return m.RequestId != ""
	case *rotav1.SubmitJobRequest:
		return m.RequestId != ""
	case *rotav1.AcquireTurnRequest:
		return m.RequestId != ""
	case *rotav1.BatchSubmitActionsRequest:
		for _, r := range m.Requests {
			if r.RequestId == "" {
				return false
			}
		}
	}
	return req.Spec().Procedure != rotav1connect.OperatorServiceTransferLeadershipProcedure
}
