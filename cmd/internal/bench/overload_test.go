package bench

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// Only a refusal that says when to try again is one for overload; everything else is a failure.
func TestOutcomesOfOverload(t *testing.T) {
	answer := func(code connect.Code, d *rotav1.ErrorDetail) error {
		err := connect.NewError(code, errors.New("of the test"))
		detail, e := connect.NewErrorDetail(d)
		if e != nil {
			t.Fatal(e)
		}
		err.AddDetail(detail)
		return err
	}
	retry := &rotav1.ErrorDetail{RetryDelay: durationpb.New(time.Second)}
	var c outcomes
	c.note(3*time.Millisecond, 10, nil)
	c.note(time.Millisecond, 0, answer(connect.CodeResourceExhausted, retry))
	c.note(time.Millisecond, 0, answer(connect.CodeResourceExhausted, &rotav1.ErrorDetail{}))
	c.note(time.Millisecond, 0, answer(connect.CodeUnavailable, retry))
	c.note(time.Millisecond, 0, errors.New("cut off"))
	if c.acceptedActions != 10 || len(c.accepted) != 1 || len(c.refusals) != 1 || c.delays[0] != time.Second || c.failed != 3 || c.firstError == nil {
		t.Errorf("outcomes are %+v", &c)
	}
}
