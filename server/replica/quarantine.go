package replica

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rota/internal/failpoint"
)

const (
	lockTimeout = 5 * time.Second
	// never is a heartbeat time-out that does not come.
	never = 365 * 24 * time.Hour
	// quarantineCheck is how often a quarantined replica looks whether it has
	// caught up.
	quarantineCheck = 50 * time.Millisecond
)

// quarantine keeps a replica that may have lost acknowledged entries from
// voting and standing: its vote could elect a server that lacks them too.
type quarantine struct {
	active atomic.Bool
	reason string
	mark   markState
}

// gate sees every RPC before raft does; a non-nil result answers it. In
// quarantine nobody gets a vote, and nobody makes this server the leader.
func (r *Replica) gate(cmd any) any {
	if r.cfg.intercept != nil {
		if resp := r.cfg.intercept(cmd); resp != nil {
			return resp
		}
	}
	if a, ok := cmd.(*raft.AppendEntriesRequest); ok {
		r.bridgeSnapshot(a)
	}
	if !r.quarantine.active.Load() {
		return nil
	}
	return refusal(cmd, r.header())
}

// watchQuarantine ends the quarantine when the replica has caught up.
func (r *Replica) watchQuarantine() {
	tick := time.NewTicker(quarantineCheck)
	defer tick.Stop()
	for {
		select {
		case <-r.closed:
			return
		case <-tick.C:
			if r.caughtUp() {
				r.leaveQuarantine()
				return
			}
		}
	}
}

// caughtUp says whether this log has everything that it can have acknowledged:
// it holds an entry of the leader's own term that the leader said, since this
// process started, is committed. The leader was elected with all that was
// committed before its term; what this server acknowledged in the same term is
// known by the mark.
func (r *Replica) caughtUp() bool {
	seen := r.trans.seen.get()
	if seen.index == 0 || r.raft.CommitIndex() < seen.index {
		return false
	}
	mark := r.quarantine.mark
	if seen.term < mark.term || seen.term == mark.term && r.raft.LastIndex() < mark.index {
		return false
	}
	return r.termAt(seen.index) == seen.term
}

// termAt returns the term of an entry, 0 if it is not here.
func (r *Replica) termAt(index uint64) uint64 {
	var entry raft.Log
	if err := r.store.logs.GetLog(index, &entry); err == nil {
		return entry.Term
	}
	if snap, err := r.store.snaps.newest(); err == nil && snap.index == index {
		return snap.term
	}
	return 0
}

func (r *Replica) leaveQuarantine() {
	last := r.raft.LastIndex()
	if err := r.store.mark.release(last, r.termAt(last)); err != nil {
		return // fatal already
	}
	failpoint.Hit(failpoint.QuarantineLifted)
	rc := r.raft.ReloadableConfig()
	rc.HeartbeatTimeout, rc.ElectionTimeout = r.cfg.HeartbeatTimeout, r.cfg.ElectionTimeout
	if err := r.raft.ReloadConfig(rc); err != nil {
		r.guard.fatal(err)
		return
	}
	r.quarantine.active.Store(false)
	r.logger.Info("quarantine is over: this server has caught up and votes again", "index", r.raft.CommitIndex())
	r.changed.fire()
}
