package server

import (
	"errors"

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
	return nil
}
