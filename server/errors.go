package server

import (
	"errors"
	"time"

	"connectrpc.com/connect"

	logv1 "rota/api/gen/log/v1"
	"rota/server/dispatch"
	"rota/server/replica"
	"rota/server/rpc"
)

var errNoLeader = replica.ErrNoLeader

// refusal translates the errors of this server's parts for its clients; nil for
// those that it does not know.
func refusal(err error) *logv1.Refusal {
	var overloaded replica.ErrOverloaded
	switch {
	case errors.As(err, &overloaded):
		return rpc.Overloaded(overloaded.RetryAfter)
	case errors.Is(err, replica.ErrUnknownOutcome):
		return rpc.UnknownOutcome()
	case errors.Is(err, replica.ErrNoLeader), errors.Is(err, replica.ErrNotLeader):
		return rpc.NoLeader()
	case errors.Is(err, dispatch.ErrBehind):
		return rpc.Behind()
	case errors.Is(err, replica.ErrTooLarge):
		return &logv1.Refusal{Code: 3, Reason: "TOO_LARGE", Message: "the request does not fit into one log entry: split it"}
	case errors.Is(err, replica.ErrSnapshotLater):
		return &logv1.Refusal{Code: 9, Reason: "SNAPSHOT_LATER", Message: replica.ErrSnapshotLater.Error()}
	case errors.Is(err, replica.ErrUnknownPeer):
		return &logv1.Refusal{Code: 5, Reason: "PEER_NOT_FOUND", Message: "no such server is a member; see: rota operator raft list-peers"}
	}
	return memberRefusal(err)
}

// memberRefusals are for changes of members and transfers that were not carried out.
var memberRefusals = []struct {
	err    error
	code   connect.Code
	reason string
	retry  time.Duration
}{
	{replica.ErrAddressInUse, connect.CodeAlreadyExists, "ADDRESS_IN_USE", 0},
	{replica.ErrOtherAddress, connect.CodeFailedPrecondition, "OTHER_ADDRESS", 0},
	{replica.ErrNotJoined, connect.CodeFailedPrecondition, "NOT_JOINED", 0},
	{replica.ErrWrongServer, connect.CodeFailedPrecondition, "WRONG_SERVER", 0},
	{replica.ErrNoMajority, connect.CodeFailedPrecondition, "NO_MAJORITY_LEFT", 0},
	{replica.ErrNotVoter, connect.CodeFailedPrecondition, "NOT_A_VOTER", 0},
	{replica.ErrOnlyVoter, connect.CodeFailedPrecondition, "ONLY_VOTER", 0},
	// The server has waited already, so the client is not told to repeat these.
	{replica.ErrNotReady, connect.CodeUnavailable, "SERVER_NOT_READY", 0},
	{replica.ErrVoterAbsent, connect.CodeUnavailable, "VOTER_UNREACHABLE", 0},
	{replica.ErrTransferFailed, connect.CodeUnavailable, "TRANSFER_FAILED", 0},
	{replica.ErrChanging, connect.CodeUnavailable, "MEMBERS_CHANGING", 100 * time.Millisecond},
}

func memberRefusal(err error) *logv1.Refusal {
	for _, r := range memberRefusals {
		if errors.Is(err, r.err) {
			return &logv1.Refusal{Code: uint32(r.code), Reason: r.reason, Message: err.Error(), RetryNs: int64(r.retry)}
		}
	}
	return nil
}
