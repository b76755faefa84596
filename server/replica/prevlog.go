package replica

import (
	"errors"

	"github.com/hashicorp/raft"
)

// bridgeSnapshot lets a leader append behind a snapshot that this server holds
// although its log goes further.
//
// After InstallSnapshot the log has a hole that ends at the snapshot. If the
// answer to the append after it is lost, the leader asks again for the entry at
// the snapshot; raft looks only into its log, does not find it, and the leader
// steps back until it sends the same snapshot again, for ever (hashicorp/raft
// issue 697). The entry at a snapshot is committed, so if index and term are the
// snapshot's, the two logs agree up to there and raft need not look.
func (r *Replica) bridgeSnapshot(a *raft.AppendEntriesRequest) {
	prev := position{a.PrevLogEntry, a.PrevLogTerm}
	if prev.index == 0 || prev.index >= r.store.logs.last.Load() || r.raft.AppliedIndex() < prev.index {
		return
	}
	var entry raft.Log
	if err := r.store.logs.GetLog(prev.index, &entry); !errors.Is(err, raft.ErrLogNotFound) {
		return
	}
	list, err := r.store.snaps.List()
	if err != nil {
		return
	}
	for _, snap := range list {
		if prev == (position{snap.Index, snap.Term}) {
			a.PrevLogEntry, a.PrevLogTerm = 0, 0
			return
		}
	}
}
