package replica

import (
	"context"
	"errors"
	"slices"
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

// behindMax are the entries that a server may still have to apply when it stands for election in its
// turn. A leader has far fewer on their way (Config.Pipeline).
const behindMax = 64

// succeed stands for election in this server's turn: followers are staggered, so that they do not
// split the vote. A server that was started a moment ago and still applies its log lets all others
// stand before it: a leader is of no use before it has applied its log.
func (r *Replica) succeed(id raft.ServerID, address raft.ServerAddress) {
	voters := r.voters()
	turn := turnAfter(voters, string(id), r.cfg.ServerID)
	if turn < 0 {
		return
	}
	if !r.waitReplaced(address, time.Duration(turn)*r.cfg.FailoverStagger) {
		return
	}
	if r.behind() { // a moment in which nobody else stands
		turn += len(voters)
		if !r.waitReplaced(address, time.Duration(len(voters))*r.cfg.FailoverStagger) {
			return
		}
	}
	if r.raft.State() != raft.Follower || r.quarantine.active.Load() || r.guard.err() != nil {
		return
	}
	if turn > 0 && !r.refused(string(address)) {
		return // it is back
	}
	r.logger.Info("the leader's process is gone: standing for election", "leader", address, "turn", turn)
	r.trans.inject(r.header())
}

func (r *Replica) behind() bool {
	return r.raft.LastIndex() > r.cfg.Machine.Applied()+behindMax
}

func (r *Replica) voters() (ids []string) {
	for _, s := range r.members().servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	return ids
}

// turnAfter is how many voters stand for election before one when a leader is gone, -1 if it does
// not vote. Those whose IDs come after the leader's are first: when leaders fail one after the other
// and come back, the one that came back last is the last to lead again.
func turnAfter(voters []string, leader, id string) int {
	others := slices.DeleteFunc(slices.Clone(voters), func(v string) bool { return v == leader })
	slices.Sort(others)
	i := slices.Index(others, id)
	if i < 0 {
		return -1
	}
	first, _ := slices.BinarySearch(others, leader)
	return (i - first + len(others)) % len(others)
}
