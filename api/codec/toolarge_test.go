package codec

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

func TestTooLargeIsNotBackPressure(t *testing.T) {
	refusal := func(code connect.Code, reason string, retry time.Duration) error {
		e := connect.NewError(code, errors.New(reason))
		d, err := connect.NewErrorDetail(&rotav1.ErrorDetail{Reason: reason, RetryDelay: durationpb.New(retry)})
		if err != nil {
			t.Fatal(err)
		}
		e.AddDetail(d)
		return e
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"read limit":      {connect.NewError(connect.CodeResourceExhausted, errors.New("message size 5 is larger than configured max 4")), true},
		"entry limit":     {refusal(connect.CodeInvalidArgument, "TOO_LARGE", 0), true},
		"full queue":      {refusal(connect.CodeResourceExhausted, "QUEUE_FULL", time.Second), false},
		"too many quotas": {refusal(connect.CodeResourceExhausted, "TOO_MANY_QUOTAS", 0), false},
		"no connection":   {connect.NewError(connect.CodeUnavailable, errors.New("refused")), false},
		"another error":   {errors.New("x"), false},
		"none":            {nil, false},
	} {
		if got := TooLarge(c.err); got != c.want {
			t.Errorf("%s: TooLarge is %v", name, got)
		}
	}
}
