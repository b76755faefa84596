package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/backoff"
	"rota/api/codec"
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
func Detail(err error) *rotav1.ErrorDetail { return codec.Detail(err) }

// transient reports whether the same call may succeed later, and after what
// delay the server wants to see it again (0: it did not say).
func transient(err error) (bool, time.Duration) {
	if detail := Detail(err); detail != nil {
		return detail.RetryDelay != nil, detail.RetryDelay.AsDuration()
	}
	if unusable(err) {
		return false, 0
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

// pacer paces the repetitions of one call.
type pacer struct{ own backoff.Backoff }

// wait pauses before the next try: for the server's delay if it gave one, else
// exponentially longer each time.
func (p *pacer) wait(ctx context.Context, delay time.Duration) error {
	p.own.Least, p.own.Most = backoffMin, backoffMax
	own := p.own.Next()
	if delay == 0 {
		return backoff.Sleep(ctx, own)
	}
	return backoff.Sleep(ctx, delay+rand.N(delay/2+1))
}

// triesKey is the key of an *int in a context, which counts tries.
type triesKey struct{}

// retrier repeats unary calls.
type retrier struct{ c *Client }

// WrapUnary repeats a call until it succeeds, fails for good, or RetryFor is over. A
// call that must not be carried out twice is repeated as long as it certainly was not
// carried out.
func (r *retrier) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		p, began := r.c.persist(), time.Now()
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
			if _, batch := ctx.Value(triesKey{}).(*int); batch {
				if _, refused := codec.Overloaded(err); refused {
					return nil, err // the batcher repeats it, with what else waits
				}
			}
			unsure = unsure || mayBeDone(req.Spec(), err)
			if unsure && !repeatable(req, time.Since(began) < r.c.clock.remembered) {
				return nil, unknownIf(true, p.telling(to.addr, err))
			}
			if err := p.again(ctx, to.addr, err); err != nil {
				return nil, unknownIf(unsure, err)
			}
		}
	}
}

// harmless begins the names of methods that may be repeated: they read, or do the same again.
var harmless = []string{"Get", "List", "Stat", "Read", "Write", "Make"}

// mayBeDone reports whether a call that ended with this error may have changed
// something that may not be done twice: no server refused it, and it is not harmless.
func mayBeDone(spec connect.Spec, err error) bool {
	_, method, _ := strings.Cut(strings.TrimPrefix(spec.Procedure, "/"), "/")
	if method != "WriteActionInput" && slices.ContainsFunc(harmless, func(verb string) bool { return strings.HasPrefix(method, verb) }) || method == "RenewTurn" {
		return false
	}
	if detail := Detail(err); detail != nil {
		return detail.Reason == "UNKNOWN_OUTCOME" || detail.Reason == "LEADER_UNREACHABLE"
	}
	lost, _ := transient(err)
	return lost && !NeverSent(err)
}

// NeverSent reports whether there was no connection that a call could have been sent on.
func NeverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
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

// once are calls that do another thing when they are made again: a second hand-over, a second token.
var once = []string{rotav1connect.OperatorServiceTransferLeadershipProcedure, rotav1connect.AccessServiceCreateTokenProcedure}

// repeatable reports whether doing the call twice is the same as once. A request ID
// without an expiry counts only while servers remember it by themselves.
func repeatable(req connect.AnyRequest, remembered bool) bool {
	known := func(id string, expires *timestamppb.Timestamp) bool {
		return id != "" && (remembered || expires != nil)
	}
	switch m := req.Any().(type) {
	case *rotav1.SubmitActionsRequest:
		return known(m.RequestId, m.ExpireTime)
	case *rotav1.OpenTrajectoryRequest:
		return known(m.RequestId, m.ExpireTime)
	case *rotav1.SubmitJobRequest:
		return known(m.RequestId, m.ExpireTime)
	case *rotav1.AcquireTurnRequest:
		return known(m.RequestId, m.ExpireTime)
	case *rotav1.CreateSnapshotRequest:
		return known(m.RequestId, m.ExpireTime)
	case *rotav1.RequestMigrationRequest:
		return known(m.RequestId, m.ExpireTime)
	case *rotav1.ReportGenerationsRequest:
		return known(m.RequestId, m.ExpireTime)
	case *rotav1.ReportRewardsRequest:
		return known(m.RequestId, m.ExpireTime)
	case *rotav1.CreateRolloutRequest:
		return known(m.RequestId, m.ExpireTime)
	case *rotav1.WriteActionInputRequest:
		return m.Offset != nil
	case *rotav1.SignalActionRequest:
		return m.RequestId != ""
	case *rotav1.BatchSubmitActionsRequest:
		for _, r := range m.Requests {
			if !known(r.RequestId, r.ExpireTime) {
				return false
			}
		}
	}
	return !slices.Contains(once, req.Spec().Procedure)
}
