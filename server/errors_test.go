package server

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"rota/server/replica"
)

// A change of members that was not carried out says why; none is an internal error.
func TestEveryRefusedChangeOfMembersHasAReason(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   connect.Code
		reason string
	}{
		{replica.ErrUnknownPeer, connect.CodeNotFound, "PEER_NOT_FOUND"},
		{replica.ErrAddressInUse, connect.CodeAlreadyExists, "ADDRESS_IN_USE"},
		{replica.ErrOtherAddress, connect.CodeFailedPrecondition, "OTHER_ADDRESS"},
		{replica.ErrNotJoined, connect.CodeFailedPrecondition, "NOT_JOINED"},
		{replica.ErrWrongServer, connect.CodeFailedPrecondition, "WRONG_SERVER"},
		{replica.ErrNotReady, connect.CodeUnavailable, "SERVER_NOT_READY"},
		{replica.ErrVoterAbsent, connect.CodeUnavailable, "VOTER_UNREACHABLE"},
		{replica.ErrNoMajority, connect.CodeFailedPrecondition, "NO_MAJORITY_LEFT"},
		{replica.ErrNotVoter, connect.CodeFailedPrecondition, "NOT_A_VOTER"},
		{replica.ErrOnlyVoter, connect.CodeFailedPrecondition, "ONLY_VOTER"},
		{replica.ErrTransferFailed, connect.CodeUnavailable, "TRANSFER_FAILED"},
		{replica.ErrChanging, connect.CodeUnavailable, "MEMBERS_CHANGING"},
	} {
		r := refusal(fmt.Errorf("%w: server-4", c.err))
		if r == nil {
			t.Errorf("%v: an internal error", c.err)
			continue
		}
		if connect.Code(r.Code) != c.code || r.Reason != c.reason || r.Message == "" {
			t.Errorf("%v: %v %s %q, want %v %s", c.err, connect.Code(r.Code), r.Reason, r.Message, c.code, c.reason)
		}
	}
}
