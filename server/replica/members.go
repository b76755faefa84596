package replica

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"rota/server/quorum"
)

// Peer is a member as the newest configuration has it.
type Peer struct {
	ID      string
	Address string
	Voter   bool
	Leader  bool
}

func (r *Replica) otherVoters() []raft.Server {
	return r.members().votersBut(raft.ServerID(r.cfg.ServerID))
}

// Peers lists the members that this server knows, not necessarily the newest.
func (r *Replica) Peers(context.Context) ([]Peer, error) {
	leader, _ := r.Leader()
	var peers []Peer
	for _, s := range r.members().servers {
		peers = append(peers, Peer{
			ID: string(s.ID), Address: string(s.Address),
			Voter: s.Suffrage == raft.Voter, Leader: string(s.ID) == leader,
		})
	}
	return peers, nil
}

// RemovePeer removes a server. On the leader only; a leader that removes itself
// steps down. It waits for a majority of the voters that would be left to answer, and
// refuses with ErrNoMajority: without one, nothing would be decided any more.
func (r *Replica) RemovePeer(ctx context.Context, id string) error {
	return r.persist(ctx, func(ctx context.Context) error {
		m, err := r.configuration(ctx)
		if err != nil {
			return err
		}
		s, ok := m.find(id)
		if !ok {
			return ErrUnknownPeer
		}
		if s.Suffrage == raft.Voter {
			if err := r.majorityWithout(ctx, m.members, s.ID); err != nil {
				return err
			}
		}
		return r.change(ctx, "remove peer", func(timeout time.Duration) raft.Future {
			return r.raft.RemoveServer(s.ID, m.index, timeout)
		})
	})
}

// ErrLeaderVotes says that the leader cannot give up its own vote.
var ErrLeaderVotes = errors.New("the leader keeps its vote: transfer the leadership first")

// DemotePeer takes the vote of a server, which stays a member. On the leader only. It waits
// for a majority of the voters that would be left to answer, and refuses with ErrNoMajority.
// A server without a vote is no error.
func (r *Replica) DemotePeer(ctx context.Context, id string) error {
	return r.persist(ctx, func(ctx context.Context) error {
		m, err := r.configuration(ctx)
		if err != nil {
			return err
		}
		s, ok := m.find(id)
		switch {
		case !ok:
			return ErrUnknownPeer
		case s.Suffrage != raft.Voter:
			return r.settled(ctx, m)
		case id == r.cfg.ServerID:
			return ErrLeaderVotes
		}
		if err := r.majorityWithout(ctx, m.members, s.ID); err != nil {
			return err
		}
		return r.change(ctx, "demote peer", func(timeout time.Duration) raft.Future {
			return r.raft.DemoteVoter(s.ID, m.index, timeout)
		})
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

// members are the servers of the newest configuration.
type members struct{ servers []raft.Server }

func (r *Replica) members() members {
	return members{r.raft.GetConfiguration().Configuration().Servers}
}

// configuration is what a change of members starts from. Raft refuses the change if its
// newest configuration is not the one at index any more.
type configuration struct {
	members
	index uint64
}

// configuration returns the newest configuration of this leader, once it is committed. The
// index is read first: if the members change between the two, raft refuses what follows.
func (r *Replica) configuration(ctx context.Context) (configuration, error) {
	index, err := r.configurationIndex(ctx)
	return configuration{r.members(), index}, err
}

// configurationIndex asks raft for the index of its newest configuration, and waits until
// that is committed. The future of GetConfiguration always says 0, so the index is in raft's
// refusal of a change that starts from another one.
func (r *Replica) configurationIndex(ctx context.Context) (index uint64, err error) {
	const other, nobody = math.MaxUint64, ""
	err = r.await(ctx, func() error { return r.raft.RemoveServer(nobody, other, changeTime(ctx)).Error() })
	switch {
	case err == nil:
		return 0, errors.New("raft removed a server that does not exist")
	case ctx.Err() != nil:
		return 0, fmt.Errorf("%w (%v)", ErrChanging, err)
	}
	refusal := fmt.Sprintf("configuration changed since %d (latest is %%d)", uint64(other))
	if _, no := fmt.Sscanf(err.Error(), refusal, &index); no != nil {
		return 0, changeError("read the members", err)
	}
	return index, nil
}

func (m members) find(id string) (raft.Server, bool) {
	i := slices.IndexFunc(m.servers, func(s raft.Server) bool { return string(s.ID) == id })
	if i < 0 {
		return raft.Server{}, false
	}
	return m.servers[i], true
}

// votersBut are all voters but one.
func (m members) votersBut(id raft.ServerID) (voters []raft.Server) {
	for _, s := range m.servers {
		if s.Suffrage == raft.Voter && s.ID != id {
			voters = append(voters, s)
		}
	}
	return voters
}

// voters are the members that count, as the server self sees them.
func (m members) voters(self string) (v quorum.Voters) {
	for _, s := range m.servers {
		switch {
		case s.Suffrage != raft.Voter:
		case string(s.ID) == self:
			v.Self = true
		default:
			v.Others = append(v.Others, string(s.ID))
		}
	}
	return v
}

// changeTimeout bounds how long raft may take to accept a change of members: it
// waits until the one before is committed.
const changeTimeout = 10 * time.Second

func (r *Replica) change(ctx context.Context, what string, fn func(time.Duration) raft.Future) error {
	if _, err := r.leading(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return changeError(what, r.await(ctx, func() error { return fn(changeTime(ctx)).Error() }))
}

// changeTime is how long raft may take to accept a change.
func changeTime(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(changeTimeout, max(time.Until(deadline), time.Millisecond))
	}
	return changeTimeout
}

// changeError says what raft's answer to a change of members means.
func changeError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return fmt.Errorf("%s: %w", what, ErrNotLeader)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", what, unknown(err))
	case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress),
		strings.Contains(err.Error(), "configuration changed since"): // raft has no value for it
		return fmt.Errorf("%w (%v)", ErrChanging, err)
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
