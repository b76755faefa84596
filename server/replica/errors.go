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
