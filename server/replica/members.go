package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// Peer is a member as the newest configuration has it.
type Peer struct {
	ID      string
	Address string
	Voter   bool
	Leader  bool
}

func (r *Replica) servers() []raft.Server {
	return r.raft.GetConfiguration().Configuration().Servers
}

func (r *Replica) otherVoters() []raft.Server {
	var voters []raft.Server
	for _, s := range r.servers() {
		if s.Suffrage == raft.Voter && s.ID != raft.ServerID(r.cfg.ServerID) {
			voters = append(voters, s)
		}
	}
	return voters
}

// quorumOfOthers is how many of n other voters make a majority together with
// this server, if it has a vote.
func (r *Replica) quorumOfOthers(n int) int {
	if s, ok := r.find(r.cfg.ServerID); ok && s.Suffrage == raft.Voter {
		return (n + 1) / 2
	}
	return n/2 + 1
}

func (r *Replica) voterAddress(id raft.ServerID) (raft.ServerAddress, bool) {
	for _, s := range r.otherVoters() {
		if s.ID == id {
			return s.Address, true
		}
	}
	return "", false
}

// Peers lists the members that this server knows, not necessarily the newest.
func (r *Replica) Peers(context.Context) ([]Peer, error) {
	leader, _ := r.Leader()
	var peers []Peer
	for _, s := range r.servers() {
		peers = append(peers, Peer{
			ID: string(s.ID), Address: string(s.Address),
			Voter: s.Suffrage == raft.Voter, Leader: string(s.ID) == leader,
		})
	}
	return peers, nil
}

// AddPeer adds a server, or changes its address, or promotes it to a voter. On
// the leader only. Add a server without a vote first and promote it when its
// Status.Applied is near the leader's.
func (r *Replica) AddPeer(ctx context.Context, id, address string, voter bool) error {
	return r.change(ctx, "add peer", func(timeout time.Duration) raft.Future {
		if voter {
			return r.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(address), 0, timeout)
		}
		return r.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(address), 0, timeout)
	})
}

// ErrUnknownPeer says that no member has the ID.
var ErrUnknownPeer = errors.New("no server with this ID is a member: list the peers")

// RemovePeer removes a server. On the leader only; a leader that removes itself
// steps down.
func (r *Replica) RemovePeer(ctx context.Context, id string) error {
	if _, ok := r.find(id); !ok {
		return ErrUnknownPeer
	}
	return r.change(ctx, "remove peer", func(timeout time.Duration) raft.Future {
		return r.raft.RemoveServer(raft.ServerID(id), 0, timeout)
	})
}

// TransferLeadership makes another voter the leader; an empty ID: the one that
// is furthest. On the leader only.
func (r *Replica) TransferLeadership(ctx context.Context, id string) error {
	if id == "" {
		return r.change(ctx, "transfer leadership", func(time.Duration) raft.Future { return r.raft.LeadershipTransfer() })
	}
	s, ok := r.find(id)
	if !ok || s.Suffrage != raft.Voter {
		return ErrUnknownPeer
	}
	return r.change(ctx, "transfer leadership", func(time.Duration) raft.Future {
		return r.raft.LeadershipTransferToServer(s.ID, s.Address)
	})
}

// ErrSnapshotLater says that the newest entry is a change of members, which a
// snapshot cannot end with.
var ErrSnapshotLater = errors.New("a snapshot cannot be taken right after a change of members: try again when something was committed since")

// TakeSnapshot takes a snapshot now, on this server.
func (r *Replica) TakeSnapshot(ctx context.Context) error {
	err := r.await(ctx, func() error { return r.raft.Snapshot().Error() })
	switch {
	case err == nil, errors.Is(err, raft.ErrNothingNewToSnapshot):
		return nil
	case strings.Contains(err.Error(), "wait until the configuration entry"): // raft has no value for it
		return ErrSnapshotLater
	}
	return fmt.Errorf("take snapshot: %w", err)
}

// NewestSnapshot returns the index of this server's newest snapshot and its size
// in bytes; zeros if it has none.
func (r *Replica) NewestSnapshot() (index, sizeBytes uint64, err error) {
	list, err := r.store.snaps.List()
	if err != nil || len(list) == 0 {
		return 0, 0, err
	}
	return list[0].Index, uint64(list[0].Size), nil
}

func (r *Replica) find(id string) (raft.Server, bool) {
	for _, s := range r.servers() {
		if string(s.ID) == id {
			return s, true
		}
	}
	return raft.Server{}, false
}

// changeTimeout bounds how long raft may take to accept a change of members: it
// waits until the one before is committed.
const changeTimeout = 10 * time.Second

func (r *Replica) change(ctx context.Context, what string, fn func(time.Duration) raft.Future) error {
	if _, err := r.leading(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	timeout := changeTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(deadline), time.Millisecond))
	}
	err := r.await(ctx, func() error { return fn(timeout).Error() })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return fmt.Errorf("%s: %w", what, ErrNotLeader)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", what, unknown(err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// await waits for a raft future no longer than ctx.
func (r *Replica) await(ctx context.Context, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
