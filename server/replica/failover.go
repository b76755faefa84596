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
	address, id := r.raft.LeaderWithID()
	if address == "" || address == r.trans.address {
		return
	}
	for _, pause := range probePauses {
		if !r.sleep(pause) {
			return
		}
		if now, _ := r.raft.LeaderWithID(); now != address {
			return
		}
		if r.refused(string(address)) {
			r.succeed(id, address)
			return
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
	if !ok || !r.sleep(time.Duration(rank)*r.cfg.FailoverStagger) {
		return
	}
	now, _ := r.raft.LeaderWithID()
	if now != "" && now != address || r.raft.State() != raft.Follower || r.quarantine.active.Load() || r.guard.err() != nil {
		return
	}
	if !r.refused(string(address)) {
		return // it is back
	}
	r.logger.Info("the leader's process is gone: standing for election", "leader", address, "rank", rank)
	r.trans.inject(r.header())
}

// rank is this server's place among the voters that remain without the leader.
func (r *Replica) rank(leader raft.ServerID) (int, bool) {
	var ids []string
	for _, s := range r.servers() {
		if s.Suffrage == raft.Voter && s.ID != leader {
			ids = append(ids, string(s.ID))
		}
	}
	slices.SortFunc(ids, strings.Compare)
	i := slices.Index(ids, r.cfg.ServerID)
	return i, i >= 0
}

// sleep returns false if the replica closes first.
func (r *Replica) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-r.closed:
		return false
	}
}
