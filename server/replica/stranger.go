package replica

import (
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// A server that was given up when a majority was lost may come back with its old disk. With
// others like it, it elects a leader, whose term may be above that of the recovered
// cluster: Raft would follow it. Until it has applied its log it does not even know which
// cluster it is of, so it cannot be left to it to stay away. Raft itself refuses votes of
// who is no member; this refuses entries and snapshots of who is none, unless it says that
// it is of our cluster: a leader may be a member that this server has not heard of yet.

// strangers are servers that are no members here, by their addresses.
type strangers struct {
	mu sync.Mutex
	// ours are those that said that they are of this cluster; asked are those of whom the
	// answer is awaited, or was another one.
	ours, asked map[string]bool
}

// errStranger is what a stranger is answered.
type errStranger struct{ id, address string }

func (e errStranger) Error() string {
	return fmt.Sprintf("%s at %s is no member of this cluster", e.id, e.address)
}

// senderOf returns who sent an RPC that only leaders send; false for others.
func senderOf(cmd any) (raft.RPCHeader, bool) {
	switch req := cmd.(type) {
	case *raft.AppendEntriesRequest:
		return req.RPCHeader, true
	case *raft.InstallSnapshotRequest:
		return req.RPCHeader, true
	case *raft.TimeoutNowRequest:
		return req.RPCHeader, true
	}
	return raft.RPCHeader{}, false
}

// stranger returns an error for an RPC of a leader that is not of this cluster, as far as is
// known. It never waits: who is asked is refused until the answer is there, and tries again.
func (r *Replica) stranger(cmd any) error {
	sender, ok := senderOf(cmd)
	own := r.clusterID()
	if !ok || own == "" || r.cfg.PeerClient == nil || string(sender.ID) == r.cfg.ServerID {
		return nil
	}
	for _, s := range r.raft.GetConfiguration().Configuration().Servers {
		if string(s.ID) == string(sender.ID) {
			return nil
		}
	}
	id, address := string(sender.ID), string(sender.Addr)
	s := &r.strangers
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ours[address] {
		return nil
	}
	if !s.asked[address] {
		if s.asked == nil {
			s.asked, s.ours = map[string]bool{}, map[string]bool{}
		}
		s.asked[address] = true
		r.goFunc(func() { r.askStranger(id, address) })
	}
	return errStranger{id, address}
}

// askStranger asks a server for its cluster, and forgets the answer if it is not ours: it may
// not know yet.
func (r *Replica) askStranger(id, address string) {
	d, err := r.describe(address)
	s := &r.strangers
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asked, address)
	if err == nil && d.ServerId == id && d.ClusterId == r.clusterID() {
		s.ours[address] = true
		return
	}
	r.logger.Debug("a leader that is no member was refused", "id", id, "address", address, "cluster", d.GetClusterId(), "error", err)
}
