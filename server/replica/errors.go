package replica

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNoLeader says that nothing was sent: there is no leader, or it cannot
	// be reached. It is safe to try again.
	ErrNoLeader = errors.New("no leader is known or reachable: try again, or check that a majority of servers is up")
	// ErrNotLeader says that this server does not lead and nothing was proposed.
	ErrNotLeader = errors.New("this server is not the leader")
	// ErrUnknownOutcome says that commands may or may not have been committed.
	// Retry with the same request ID, or read what happened.
	ErrUnknownOutcome = errors.New("outcome unknown: the leader changed or did not answer; retry with the same request ID")
	// ErrShutdown says that this server is stopping; nothing was sent. It is an
	// ErrNoLeader.
	ErrShutdown = fmt.Errorf("this server is shutting down: %w", ErrNoLeader)
	// ErrTooLarge says that commands do not fit into one entry.
	ErrTooLarge = errors.New("proposal is too large for one log entry: split it")

	// ErrCorrupt is the reason of Config.Exit if stored bytes are not the ones
	// that were written.
	ErrCorrupt = errors.New("stored log is corrupt: replace this server's data directory and let it catch up")
	// ErrWriteFailed is the reason of Config.Exit if a write to disk failed.
	ErrWriteFailed = errors.New("write to disk failed")
	// ErrDiskHang is the reason of Config.Exit if a write does not end.
	ErrDiskHang = errors.New("disk does not answer")
	// ErrTransferWedged is the reason of Config.Exit if raft keeps refusing
	// because of a leadership transfer that is over.
	ErrTransferWedged = errors.New("leadership transfer does not end")
)

// Why a change of members or a transfer was not carried out. Nothing was changed.
var (
	// ErrUnknownPeer says that no member has the ID.
	ErrUnknownPeer = errors.New("no server with this ID is a member: list the peers")
	// ErrAddressInUse says that another member has the address.
	ErrAddressInUse = errors.New("another member has this address")
	// ErrOtherAddress says that the member has another address, which only MovePeer
	// changes.
	ErrOtherAddress = errors.New("the member has another address")
	// ErrNotJoined says that a server cannot vote before it was added without a vote.
	ErrNotJoined = errors.New("the server has not joined")
	// ErrWrongServer says that another server than the one that was named answers at
	// the address.
	ErrWrongServer = errors.New("another server answers at this address")
	// ErrNotReady says that a server does not answer, is in quarantine or has not
	// caught up.
	ErrNotReady = errors.New("the server is not ready")
	// ErrVoterAbsent says that a voter does not answer, or is in quarantine, while another is
	// to be added.
	ErrVoterAbsent = errors.New("a voter does not answer or is in quarantine")
	// ErrNoMajority says that too few of the remaining voters answer and vote.
	ErrNoMajority = errors.New("no majority of voters would be left")
	// ErrNotVoter says that a server without a vote cannot lead.
	ErrNotVoter = errors.New("the server has no vote")
	// ErrOnlyVoter says that there is nobody to hand over to.
	ErrOnlyVoter = errors.New("no other server has a vote")
	// ErrTransferFailed says that the other server did not take the leadership.
	ErrTransferFailed = errors.New("the leadership was not handed over")
	// ErrChanging says that another change of members or a transfer is under way.
	ErrChanging = errors.New("another change of members or a transfer of the leadership is under way")
)

// ErrOverloaded says that too much waits to be proposed and nothing was sent.
type ErrOverloaded struct {
	// RetryAfter is a hint.
	RetryAfter time.Duration
}

func (e ErrOverloaded) Error() string {
	return fmt.Sprintf("too many proposals are waiting: retry after %v", e.RetryAfter)
}

func unknown(err error) error { return fmt.Errorf("%w (%v)", ErrUnknownOutcome, err) }

func noLeader(err error) error { return fmt.Errorf("%w (%v)", ErrNoLeader, err) }
