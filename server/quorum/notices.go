package quorum

// Notices says what one follower may be told of commits over one connection. Followers
// learn that an entry is committed from the next message of their leader. If no entry
// follows soon, the leader sends a notice.
type Notices struct {
	term uint64 // of the leader that sends
	last uint64 // newest entry that was sent
	told uint64 // newest commit index that was sent
}

// Sent notes a message of a leader in its term. The message ends with entry last and tells
// the commit index.
func (n *Notices) Sent(term, last, commit uint64) {
	n.term, n.last, n.told = term, last, max(n.told, commit)
}

// Next returns the commit index of a notice that entry commit, which was appended in a
// term, is committed; 0 if there is nothing to tell.
//
// An entry of the leader's own term makes the notice true for the log that this leader
// sends. The notice reaches no further than the newest entry that was sent: behind it, the
// follower may still have the entries of an earlier leader.
func (n *Notices) Next(commit, term uint64) uint64 {
	index := min(commit, n.last)
	if n.term != term || index <= n.told {
		return 0
	}
	return index
}
