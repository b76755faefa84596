package replica

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	peerv1 "rota/api/gen/peer/v1"
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
	// mark is what this server can have acknowledged. On an empty disk it is lost, and
	// unknown until the leader has told how far its log reaches.
	mark    markState
	unknown bool
}

// gate sees every RPC before raft does; a non-nil result, or error, answers it. In
// quarantine nobody gets a vote, and nobody makes this server the leader.
func (r *Replica) gate(cmd any) any {
	if r.cfg.intercept != nil {
		if resp := r.cfg.intercept(cmd); resp != nil {
			return resp
		}
	}
	if err := r.stranger(cmd); err != nil {
		return err
	}
	if a, ok := cmd.(*raft.AppendEntriesRequest); ok {
		r.bridgeSnapshot(a)
	}
	if answer := r.answerQuestion(cmd); answer != nil {
		return answer
	}
	if !r.quarantine.active.Load() {
		return nil
	}
	return refusal(cmd, r.header())
}

// watchQuarantine ends the quarantine when the replica has caught up, or when it turns
// out that there is nothing to catch up with, because the cluster is new.
func (r *Replica) watchQuarantine() {
	isNew := make(chan bool, 1)
	if r.store.pristine && len(r.cfg.Bootstrap) > 0 {
		r.goFunc(func() { isNew <- r.inquire() })
	}
	tick := time.NewTicker(quarantineCheck)
	defer tick.Stop()
	for {
		select {
		case <-r.closed:
			return
		case ok := <-isNew:
			if !ok {
				continue
			}
			founded, err := r.found()
			if err != nil {
				r.guard.fatal(fmt.Errorf("found a new cluster: %w", err))
				return
			}
			if !founded {
				continue
			}
		case <-tick.C:
			if !r.caughtUp() {
				continue
			}
		}
		r.leaveQuarantine()
		return
	}
}

// learnMark replaces a mark that was lost with the disk. Whatever this server
// acknowledged to the leader of this term is in that leader's log by now, and what it
// acknowledged to earlier leaders was, when this one was elected, if it is committed.
func (r *Replica) learnMark() bool {
	client, address, err := r.leaderClient()
	if err != nil {
		return false
	}
	ctx, cancel := r.forwardContext(address, 0)
	defer cancel()
	resp, err := client.ReadIndex(ctx, &peerv1.ReadIndexRequest{})
	if err != nil || resp.Term == 0 {
		return false
	}
	r.quarantine.mark.index, r.quarantine.mark.term = resp.LastIndex, resp.Term
	r.quarantine.unknown = false
	return true
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
	if r.quarantine.unknown && !r.learnMark() {
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
