package fsm

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
)

// Codes of refusals: numbers of Connect codes.
const (
	codeInvalidArgument    = 3
	codeDeadlineExceeded   = 4
	codeNotFound           = 5
	codeAlreadyExists      = 6
	codePermissionDenied   = 7
	codeResourceExhausted  = 8
	codeFailedPrecondition = 9
	codeUnimplemented      = 12
	codeInternal           = 13
	codeUnavailable        = 14
	codeUnauthenticated    = 16
)

// refuse is the result of a command that is not carried out. The message says
// what is wrong and what to do.
func refuse(code uint32, reason, format string, args ...any) *logv1.Result {
	return &logv1.Result{Refusal: &logv1.Refusal{Code: code, Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

// retryAfter adds the delay in nanoseconds after which trying again makes sense.
func retryAfter(r *logv1.Result, ns int64) *logv1.Result {
	r.Refusal.RetryNs = ns
	return r
}
