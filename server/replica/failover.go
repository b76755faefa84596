package replica

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// After a connection ended, the leader's port is tried at once and then after
// these pauses: a dying process closes its connections and its listener one
// after the other.
var probePauses = []time.Duration{
	0, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
	20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
}

// probeTimeout bounds one try.
const probeTimeout = 300 * time.Millisecond

// peerGone is called when a connection that a peer had opened ends.
func (r *Replica) peerGone() {
	select {
	case r.suspect <- struct{}{}:
	default:
	}
}

// watchLeader replaces a leader whose process is gone. A leader keeps
// connections open to each follower; when one ends, the leader's port is tried.
// Only a refusal counts, because a living kernel sends it for a port that nobody
// listens on: a reset or a time-out may be the network's.
func (r *Replica) watchLeader() {
	for {
		select {
		case <-r.closed:
			return
		case <-r.suspect:
		}
		r.probeLeader()
	}
}

func (r *Replica) probeLeader() {
	// Another follower's candidacy has made raft forget the leader, perhaps.
	dead := r.lastLeader.Load()
	if dead == nil || dead.LeaderAddr == r.trans.address {
		return
	}
	for _, pause := range probePauses {
		if !r.waitReplaced(dead.LeaderAddr, pause) {
			return
		}
		if r.refused(string(dead.LeaderAddr)) {
			r.succeed(dead.LeaderID, dead.LeaderAddr)
			return
		}
	}
}

// waitReplaced waits, and returns false if somebody else leads or the replica
// closes before the time is over.
func (r *Replica) waitReplaced(dead raft.ServerAddress, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		changed := r.changed.wait()
		if now, _ := r.raft.LeaderWithID(); now != "" && now != dead {
			return false
		}
		select {
		case <-changed:
		case <-timer.C:
			return true
		case <-r.closed:
			return false
		}
	}
}

func (r *Replica) refused(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	return errors.Is(r.cfg.Probe(ctx, address), syscall.ECONNREFUSED)
}

// succeed stands for election in this server's turn: followers are staggered by
// rank, so that they do not split the vote.
func (r *Replica) succeed(id raft.ServerID, address raft.ServerAddress) {
	rank, ok := r.rank(id)
	if !ok || !r.waitReplaced(address, time.Duration(rank)*r.cfg.FailoverStagger) {
		return
	}
	if r.raft.State() != raft.Follower || r.quarantine.active.Load() || r.guard.err() != nil {
		return
	}
	if rank > 0 && !r.refused(string(address)) {
		return // it is back
	}
	r.logger.Info("the leader's process is gone: standing for election", "leader", address, "rank", rank)
	r.trans.inject(r.header())
}

// rank is this server's place among the voters that remain without the leader.
func (r *Replica) rank(leader raft.ServerID) (int, bool) {
	var ids []string
	for _, s := range r.members().servers {
		if s.Suffrage == raft.Voter && s.ID != leader {
			ids = append(ids, string(s.ID))
		}
	}
	slices.SortFunc(ids, strings.Compare)
	i := slices.Index(ids, r.cfg.ServerID)
	return i, i >= 0
}
