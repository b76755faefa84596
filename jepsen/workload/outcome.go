package workload

import (
	"errors"
	"net"
	"slices"

	"connectrpc.com/connect"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// refusalCodes are those that a server gives for what it, or the replicated
// state, has looked at and refused. Nothing has happened then.
var refusalCodes = []connect.Code{
	connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists,
	connect.CodePermissionDenied, connect.CodeUnauthenticated, connect.CodeResourceExhausted,
	connect.CodeFailedPrecondition, connect.CodeOutOfRange,
}

// refusalReasons say that nothing was done although their code alone does not.
// What is not listed here, such as UNKNOWN_OUTCOME, TIMEOUT, CANCELED, INTERNAL
// and LEADER_UNREACHABLE, may have been done.
var refusalReasons = []string{
	"NO_LEADER", "NO_QUORUM", "NOT_A_MEMBER", "NOT_BOOTSTRAPPED", "NODE_TEARDOWN", "BEHIND", "COMMAND_FAILED",
	// This call is too late to have been accepted. Earlier ones with the same
	// request ID are calls of their own.
	"REQUEST_EXPIRED",
}

// stateCodes are those of refusals that depend on the replicated state. A server that cannot
// reach a leader, or is busy, gives others.
var stateCodes = []connect.Code{connect.CodeNotFound, connect.CodeAlreadyExists, connect.CodeFailedPrecondition}

// leaderless are the reasons of servers that know of no leader. Another one may.
var leaderless = []string{"NO_LEADER", "NO_QUORUM", "NOT_A_MEMBER"}

// judge says what the error of one call to one server means, and puts it in a
// word or two. An error of rota comes with a detail; one without is from the
// network.
func judge(err error) (outcome history.Outcome, reason string) {
	if err == nil {
		return history.OK, ""
	}
	detail := client.Detail(err)
	switch {
	case detail == nil && neverSent(err):
		return history.Fail, err.Error()
	case detail == nil:
		return history.Unknown, err.Error()
	case refused(err, detail):
		return history.Fail, detail.Reason
	}
	return history.Unknown, detail.Reason
}

func refused(err error, detail *rotav1.ErrorDetail) bool {
	return slices.Contains(refusalCodes, connect.CodeOf(err)) || slices.Contains(refusalReasons, detail.Reason)
}

// refusedByState reports whether a server looked at the replicated state and refused the call
// because of it.
func refusedByState(err error) bool {
	detail := client.Detail(err)
	return detail != nil && slices.Contains(stateCodes, connect.CodeOf(err)) && !slices.Contains(refusalReasons, detail.Reason)
}

// neverSent reports whether there was no connection that the call could have
// been sent on.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
