package e2b

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"rota/api/backoff"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
)

// persistFor is how long a call is repeated while the cluster has no leader or an agent restarts, and
// overloadFor the same while a server or an agent has no room for it. The SDKs of E2B do not repeat calls.
const (
	persistFor  = 5 * time.Second
	overloadFor = 30 * time.Second
)

// persistence paces the repetitions of one call.
type persistence struct {
	pause backoff.Backoff
	began time.Time
}

func persist() *persistence {
	return &persistence{backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}, time.Now()}
}

// again reports whether a call that ended with an error is to be made once more, and waits before.
func (p *persistence) again(ctx context.Context, err error) bool {
	delay := codec.Detail(err).GetRetryDelay()
	wait := persistFor
	switch {
	case delay == nil:
		return false
	case isOverload(err):
		wait = overloadFor
	case connect.CodeOf(err) != connect.CodeUnavailable:
		return false
	}
	pause := p.pause.Next()
	if isOverload(err) {
		pause = max(pause, delay.AsDuration())
	}
	return time.Since(p.began)+pause < wait && backoff.Sleep(ctx, pause) == nil
}

// isOverload reports whether a server or an agent had no room for a call, of which nothing was done.
func isOverload(err error) bool { return codec.Detail(err).GetReason() == "OVERLOADED" }

// persistent repeats unary calls of the API.
type persistent struct{}

// WrapUnary is around unary calls.
func (persistent) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		for p := persist(); ; {
			resp, err := next(ctx, req)
			if err == nil || !repeatable(req, err) || !p.again(ctx, err) {
				return resp, err
			}
		}
	}
}

// WrapStreamingClient is for streams, which their callers repeat.
func (persistent) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is for servers.
func (persistent) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// repeatable reports whether a call may be made again after an error: it does the same when it is
// made twice, or was not carried out.
func repeatable(req connect.AnyRequest, err error) bool {
	if isOverload(err) {
		return true
	}
	switch m := req.Any().(type) {
	case *rotav1.OpenTrajectoryRequest:
		return m.RequestId != ""
	case *rotav1.SignalActionRequest:
		return m.RequestId != ""
	case *rotav1.WriteActionInputRequest:
		return false // its caller knows for how long
	case *rotav1.MoveFileRequest, *rotav1.RemoveFileRequest:
		return codec.Detail(err).GetReason() == "NO_LEADER"
	}
	return true
}
