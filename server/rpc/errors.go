package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
)

// failure is an error as clients are told of it.
type failure struct {
	code connect.Code
	// reason is a stable upper-case identifier, message a sentence that says
	// what to do.
	reason, message string
	// retry is the delay after which the same call is worth repeating; 0: it is
	// not.
	retry    time.Duration
	revision uint64
}

func (f *failure) Error() string { return f.message }

// errDraining ends streams of a server that shuts down.
var errDraining = &failure{
	code: connect.CodeUnavailable, reason: "DRAINING", retry: 10 * time.Millisecond,
	message: "this server is shutting down: go on at another one",
}

func failed(code connect.Code, reason, format string, args ...any) *failure {
	return &failure{code: code, reason: reason, message: fmt.Sprintf(format, args...)}
}

func notFound(reason, format string, args ...any) *failure {
	return failed(connect.CodeNotFound, reason, format, args...)
}

// unavailable is worth another try after the delay.
func unavailable(retry time.Duration, reason, format string, args ...any) *failure {
	f := failed(connect.CodeUnavailable, reason, format, args...)
	f.retry = retry
	return f
}

func refused(r *logv1.Refusal) *failure {
	return &failure{code: connect.Code(r.Code), reason: r.Reason, message: r.Message, retry: time.Duration(r.RetryNs)}
}

func (f *failure) detail() *rotav1.ErrorDetail {
	d := &rotav1.ErrorDetail{Reason: f.reason, Message: f.message, Code: uint32(f.code), Revision: f.revision}
	if f.retry > 0 {
		d.RetryDelay = durationpb.New(f.retry)
	}
	return d
}

// hasDetail reports whether an error is from a server of rota, not from the
// network on the way to it.
func hasDetail(err error) bool {
	var e *connect.Error
	return errors.As(err, &e) && len(e.Details()) > 0
}

func (f *failure) connectError() *connect.Error {
	e := connect.NewError(f.code, f)
	if d, err := connect.NewErrorDetail(f.detail()); err == nil {
		e.AddDetail(d)
	}
	if f.code == connect.CodeResourceExhausted && f.retry > 0 {
		// In whole seconds, for clients that do not read the detail.
		e.Meta().Set("Retry-After", strconv.FormatInt(int64((f.retry+time.Second-1)/time.Second), 10))
	}
	return e
}

// asFailure is the one place where errors become what clients are told.
func (s *Server) asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	if r := s.Refusal(err); r != nil {
		return s.explained(refused(r))
	}
	switch {
	case errors.Is(err, context.Canceled):
		return failed(connect.CodeCanceled, "CANCELED", "the call was canceled before it had an outcome")
	case errors.Is(err, context.DeadlineExceeded):
		return failed(connect.CodeDeadlineExceeded, "TIMEOUT",
			"the call's time was over before it had an outcome: repeat it with the same request_id to learn it")
	}
	return nil
}

// explained replaces the failure of a call without a leader by one that says why
// there is none, if that is known.
func (s *Server) explained(f *failure) *failure {
	if f.reason == "NO_LEADER" && !s.leaderKnown() {
		if why := s.whyNoLeader(); why != nil {
			return why
		}
	}
	return f
}

// connectError makes an error into what goes over the wire. One that nobody
// foresaw is logged, and the client is told where to look.
func (s *Server) connectError(procedure string, err error) *connect.Error {
	if f := s.asFailure(err); f != nil {
		return f.connectError()
	}
	var e *connect.Error
	if errors.As(err, &e) { // from another server or an agent, or of the connection
		return e
	}
	s.Logger.Error("unexpected error", "procedure", procedure, "error", err)
	return failed(connect.CodeInternal, "INTERNAL", "internal error: the log of server %s says more", s.ServerID).connectError()
}

// What Deps.Refusal answers for the errors of the packages around this one.

// NoLeader is for a call that nothing was done about, since no leader is known.
func NoLeader() *logv1.Refusal {
	return &logv1.Refusal{
		Code: uint32(connect.CodeUnavailable), Reason: "NO_LEADER", RetryNs: int64(50 * time.Millisecond),
		Message: "the cluster has no leader at the moment; nothing was done: try again",
	}
}

// UnknownOutcome is for a change that may or may not have been committed.
func UnknownOutcome() *logv1.Refusal {
	return &logv1.Refusal{
		Code: uint32(connect.CodeUnavailable), Reason: "UNKNOWN_OUTCOME", RetryNs: int64(50 * time.Millisecond),
		Message: "the leader changed before the outcome was known: repeat it with the same request_id",
	}
}

// Overloaded is for a call that was not accepted because too many are under
// way.
func Overloaded(retryAfter time.Duration) *logv1.Refusal {
	return &logv1.Refusal{
		Code: uint32(connect.CodeResourceExhausted), Reason: "OVERLOADED", RetryNs: max(int64(retryAfter), 1),
		Message: "the server has more under way than it can take; nothing was done: try again after the delay",
	}
}

// Behind is for a stream that this server cannot serve before it has caught up.
func Behind() *logv1.Refusal {
	return &logv1.Refusal{
		Code: uint32(connect.CodeUnavailable), Reason: "BEHIND", RetryNs: int64(50 * time.Millisecond),
		Message: "this server is behind what the caller has seen: try again, best at another server",
	}
}
