package intake

import (
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// retryDelay is after what time a refused request is welcome. Most requests hold
// their share for the time of one commit.
const retryDelay = 100 * time.Millisecond

// refuse makes an error that clients of rota understand. A delay says that the
// same request may be sent again.
func refuse(code connect.Code, reason string, delay time.Duration, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	err := connect.NewError(code, errors.New(message))
	detail := &rotav1.ErrorDetail{Code: uint32(code), Reason: reason, Message: message}
	if delay > 0 {
		detail.RetryDelay = durationpb.New(delay)
	}
	if d, e := connect.NewErrorDetail(detail); e == nil {
		err.AddDetail(d)
	}
	return err
}

func tooLarge(max int) error {
	return refuse(connect.CodeResourceExhausted, "TOO_LARGE", 0,
		"the request has more than %d bytes, uncompressed, which is the limit: split it", max)
}

func tooCostly(cost, max int64) error {
	return refuse(connect.CodeResourceExhausted, "TOO_LARGE", 0,
		"the request would take more than %d MiB of memory when decoded (at least %d MiB), which is the limit: split it",
		max>>20, cost>>20)
}

func overloaded() error {
	return refuse(connect.CodeResourceExhausted, "OVERLOADED", retryDelay,
		"this process is decoding as many requests as its memory is meant for; nothing was done: try again after the delay")
}

// blamedDelay is after what time a sender that is to blame is welcome: then it may send
// something large again.
const blamedDelay = 5 * time.Second

func blamed(sender string) error {
	return refuse(connect.CodeResourceExhausted, "OVERLOADED", blamedDelay,
		"%q has sent many large requests that had to be refused, so its large requests are refused for a while; small ones are not", sender)
}

func malformed(what string) error {
	return refuse(connect.CodeInvalidArgument, "INVALID", 0, "the request cannot be decoded: %s", what)
}

func tooSlow(patience time.Duration) error {
	return refuse(connect.CodeDeadlineExceeded, "TOO_SLOW", 0,
		"the request took more than %v to arrive; nothing was done", patience)
}
