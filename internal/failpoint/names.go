package failpoint

import "slices"

// The windows of a server.
const (
	// LogAppended: entries are durable in the log; the high-water mark does not
	// know of them, nobody was told, and on a leader nothing was sent.
	LogAppended = "log-appended"
	// LogCut: the mark was lowered for a tail of the log that is still there.
	LogCut = "log-cut"
	// VoteSplit: raft has written the term of its vote and not yet for whom.
	VoteSplit = "vote-split"
	// VoteMarked: a vote is durable in the mark and not in the store.
	VoteMarked = "vote-marked"
	// VoteDurable: a vote is durable in both, and the candidate has no answer.
	VoteDurable = "vote-durable"
	// SnapshotWritten: all of a snapshot was written, and it is not a snapshot
	// yet: neither flushed nor renamed.
	SnapshotWritten = "snapshot-written"
	// SnapshotRenamed: the snapshot counts, and the log was not shortened, or on
	// a follower that got it from its leader: not restored.
	SnapshotRenamed = "snapshot-renamed"
	// QuarantineLifted: the mark says that the log is whole again, and this
	// server does not vote yet.
	QuarantineLifted = "quarantine-lifted"
	// ElectionWon: the leader's first entry is committed, and it takes no
	// proposals and keeps no leases yet.
	ElectionWon = "election-won"
	// EntryApplied: the leader has committed and applied an entry, the followers
	// do not know that, and its proposers have no answer.
	EntryApplied = "entry-applied"
	// EffectsDue: an entry changed the state, and no agent, no watcher and no
	// ticker on this server has heard of it.
	EffectsDue = "effects-due"
	// ForwardAnswered: the leader has committed what this follower forwarded, and
	// its clients have no answer.
	ForwardAnswered = "forward-answered"
	// ReadIndexTaken: a read knows how far it has to wait, and nobody has
	// confirmed that this server led then.
	ReadIndexTaken = "read-index-taken"
	// RenewalVerified: a majority has confirmed the leader for a renewal that is
	// not in its table of leases yet.
	RenewalVerified = "renewal-verified"
	// NodeOverdue: a node is to be given up, and that was not proposed yet.
	NodeOverdue = "node-overdue"
	// NodeExpired: that a node is lost is committed, and the leader has not looked
	// at its table of leases again.
	NodeExpired = "node-expired"
)

// The windows of an agent.
const (
	// NodeRegistered: the cluster has answered with an incarnation that is not in
	// the journal, and what ran before may not be dead yet.
	NodeRegistered = "node-registered"
	// IncarnationJournaled: it is in the journal, and the agent has no lease.
	IncarnationJournaled = "incarnation-journaled"
	// LeaseRenewed: the servers have renewed the lease, and the agent has not
	// moved its deadline.
	LeaseRenewed = "lease-renewed"
	// AttemptsJournaled: attempts are durable in the agent's journal, and the
	// supervisor has not heard of them.
	AttemptsJournaled = "attempts-journaled"
	// StartSending: the agent held a lease when it decided to start an attempt,
	// and may hold none when the supervisor gets it.
	StartSending = "start-sending"
	// StartAnswered: the supervisor has started an attempt, and the agent has not
	// noted that.
	StartAnswered = "start-answered"
	// ReportDue: attempts have ended, the agent knows and no server does.
	ReportDue = "report-due"
	// ReportAcked: the cluster has committed reports, and the agent has not noted
	// that.
	ReportAcked = "report-acked"
	// ReportJournaled: the agent's journal knows that, and the supervisor still
	// remembers the ends.
	ReportJournaled = "report-journaled"
)

// The windows of a supervisor.
const (
	// StartJournaled: an attempt is in the supervisor's journal, and has no
	// process.
	StartJournaled = "start-journaled"
	// AttemptForked: it has one, and the journal does not know which.
	AttemptForked = "attempt-forked"
	// AttemptDead: nothing of an attempt is alive, and the journal does not say
	// how it ended.
	AttemptDead = "attempt-dead"
	// EndJournaled: the journal does, and the agent was not told.
	EndJournaled = "end-journaled"
	// DeadlinePassed: the lease has ended and nothing was killed yet. To sleep
	// here breaks the promise of the lease: a process whose other threads go on
	// is no fault that rota survives. Kill or stop.
	DeadlinePassed = "deadline-passed"
	// LeftoversKilled: a supervisor has killed what its predecessor left, and the
	// journal does not say so.
	LeftoversKilled = "leftovers-killed"
)

// Names are all failpoints, in the order of this file.
func Names() []string { return slices.Concat(ServerNames(), AgentNames()) }

// ServerNames are the windows of servers.
func ServerNames() []string {
	return []string{
		LogAppended, LogCut, VoteSplit, VoteMarked, VoteDurable, SnapshotWritten, SnapshotRenamed,
		QuarantineLifted, ElectionWon, EntryApplied, EffectsDue, ForwardAnswered, ReadIndexTaken,
		RenewalVerified, NodeOverdue, NodeExpired,
	}
}

// AgentNames are the windows of agents and of their supervisors.
func AgentNames() []string {
	return []string{
		NodeRegistered, IncarnationJournaled, LeaseRenewed, AttemptsJournaled, StartSending, StartAnswered,
		ReportDue, ReportAcked, ReportJournaled,
		StartJournaled, AttemptForked, AttemptDead, EndJournaled, DeadlinePassed, LeftoversKilled,
	}
}
