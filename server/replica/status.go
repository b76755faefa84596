package replica

import (
	"strconv"

	"github.com/hashicorp/raft"
)

// Status is what an operator wants to know of one replica.
type Status struct {
	ID, Address string
	// State is Follower, Candidate, Leader or Shutdown.
	State                   string
	LeaderID, LeaderAddress string
	Term                    uint64
	// Raft indexes. Commit is that of the newest committed entry with commands: entries
	// of raft's own, such as changes of members, are nothing to apply, so that Applied
	// equals Commit when nothing is missing.
	Commit, Applied, LastIndex, FirstIndex, SnapshotIndex uint64
	// Ready: leads, and its own no-op is applied.
	Ready bool
	// Quarantined: does not vote until it has caught up; Reason says why.
	Quarantined bool
	Reason      string
	// QueuedBytes waits to be proposed on this server or forwarded by it.
	QueuedBytes int
	// Failed is the fatal error, empty if there is none.
	Failed string
}

// Status returns the state of this replica.
func (r *Replica) Status() Status {
	id, address := r.Leader()
	first, _ := r.store.logs.FirstIndex()
	commit := r.raft.CommitIndex()
	if command, err := r.commandAt(commit); err == nil {
		commit = command
	}
	snap, _ := strconv.ParseUint(r.raft.Stats()["last_snapshot_index"], 10, 64)
	s := Status{
		ID: r.cfg.ServerID, Address: r.cfg.Address,
		State: r.raft.State().String(), LeaderID: id, LeaderAddress: address,
		Term: r.raft.CurrentTerm(), Commit: commit, Applied: r.cfg.Machine.Applied(),
		LastIndex: r.raft.LastIndex(), FirstIndex: first, SnapshotIndex: snap,
		Ready:       r.IsLeader() && r.raft.State() == raft.Leader,
		Quarantined: r.quarantine.active.Load(),
		QueuedBytes: r.local.queued() + r.remote.queued(),
	}
	if s.Quarantined {
		s.Reason = r.quarantine.reason
	}
	if err := r.guard.err(); err != nil {
		s.Failed = err.Error()
	}
	return s
}
