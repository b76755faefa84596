package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	peerv1 "rota/api/gen/peer/v1"
)

// Who votes decides whether the cluster decides anything, so the members change only in
// ways that leave it working:
//
//   - A server is added under the address at which it answers, first without a vote.
//   - It gets a vote when it has left quarantine and has caught up, and while all voters
//     answer: a further voter that does not work can take the majority away.
//   - A voter is removed while a majority of the others answers.
//   - The address of a member is changed by MovePeer only, to one at which it answers.

// admitPause is between two looks at the servers that a change needs.
const admitPause = 50 * time.Millisecond

// persist tries a change on the leader until servers are ready for it, or the time is
// over.
func (r *Replica) persist(ctx context.Context, try func(context.Context) error) error {
	if _, err := r.leading(ctx); err != nil {
		return err
	}
	deadline := time.Now().Add(r.cfg.AdmitWait)
	for {
		err := try(ctx)
		waits := errors.Is(err, ErrNotReady) || errors.Is(err, ErrVoterAbsent) || errors.Is(err, ErrNoMajority) || errors.Is(err, ErrChanging)
		if !waits || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-r.closed:
			return err
		case <-time.After(admitPause):
		}
	}
}

// AddPeer adds a server without a vote, or gives a member a vote. On the leader only.
// What is so already is no error.
func (r *Replica) AddPeer(ctx context.Context, id, address string, voter bool) error {
	target := r.raft.CommitIndex()
	return r.persist(ctx, func(ctx context.Context) error {
		m, err := r.configuration(ctx)
		if err != nil {
			return err
		}
		done, err := m.admits(id, address, voter)
		if err != nil {
			return err
		}
		if done {
			return r.settled(ctx, m)
		}
		is, err := r.meet(ctx, id, address)
		if err != nil {
			return err
		}
		if voter {
			if err := r.mayVote(ctx, m.members, is, target); err != nil {
				return err
			}
		}
		return r.put(ctx, "add peer", raft.ServerID(id), address, voter, m)
	})
}

// MovePeer changes the address of a member, which answers at the new one. On the
// leader only.
func (r *Replica) MovePeer(ctx context.Context, id, address string) error {
	return r.persist(ctx, func(ctx context.Context) error {
		m, err := r.configuration(ctx)
		if err != nil {
			return err
		}
		s, ok := m.find(id)
		if !ok {
			return ErrUnknownPeer
		}
		if string(s.Address) == address {
			return r.settled(ctx, m)
		}
		if err := m.free(id, address); err != nil {
			return err
		}
		if _, err := r.meet(ctx, id, address); err != nil {
			return err
		}
		return r.put(ctx, "move peer", s.ID, address, s.Suffrage == raft.Voter, m)
	})
}

// put writes a member into the configuration, unless that is another one by now.
func (r *Replica) put(ctx context.Context, what string, id raft.ServerID, address string, voter bool, m configuration) error {
	return r.change(ctx, what, func(timeout time.Duration) raft.Future {
		if voter {
			return r.raft.AddVoter(id, raft.ServerAddress(address), m.index, timeout)
		}
		return r.raft.AddNonvoter(id, raft.ServerAddress(address), m.index, timeout)
	})
}

// admits says whether a server may be added so, or is a member as it is asked for.
func (m members) admits(id, address string, voter bool) (done bool, err error) {
	if err := m.free(id, address); err != nil {
		return false, err
	}
	s, ok := m.find(id)
	switch {
	case ok && string(s.Address) != address:
		return false, fmt.Errorf("%w: %s is at %s: to change it, use `rota operator raft move-peer %s %s`", ErrOtherAddress, id, s.Address, id, address)
	case !ok && voter:
		return false, fmt.Errorf("%w: use `rota operator raft join %s %s` first", ErrNotJoined, id, address)
	}
	return ok && (!voter || s.Suffrage == raft.Voter), nil
}

// free refuses an address that another member has.
func (m members) free(id, address string) error {
	for _, s := range m.servers {
		if string(s.Address) == address && string(s.ID) != id {
			return fmt.Errorf("%w: %s is at %s", ErrAddressInUse, s.ID, address)
		}
	}
	return nil
}

// settled returns nil if this server leads, and the members are those of a committed
// configuration.
func (r *Replica) settled(ctx context.Context, m configuration) error {
	switch index, err := r.configurationIndex(ctx); {
	case err != nil:
		return err
	case index != m.index:
		return fmt.Errorf("%w: the members changed meanwhile", ErrChanging)
	}
	return r.VerifyLeader(ctx)
}

// mayVote refuses a vote to a server that could not use it well, or that could cost the
// cluster its majority. target is how far its log must reach.
func (r *Replica) mayVote(ctx context.Context, m members, is *peerv1.DescribeResponse, target uint64) error {
	switch {
	case is.Quarantine != "":
		return fmt.Errorf("%w: %s is in quarantine: %s", ErrNotReady, is.ServerId, is.Quarantine)
	case is.AppliedIndex < target:
		return fmt.Errorf("%w: %s has applied %d of %d entries: try again when it has caught up", ErrNotReady, is.ServerId, is.AppliedIndex, target)
	}
	if _, absent := r.present(ctx, m.votersBut(raft.ServerID(r.cfg.ServerID))); len(absent) > 0 {
		return fmt.Errorf("%w: bring %s back, wait for the end of its quarantine, or remove it first: a further voter raises the majority that the cluster needs", ErrVoterAbsent, strings.Join(absent, " and "))
	}
	return nil
}

// majorityWithout refuses to remove a voter if the others that answer are no majority
// of those that are left.
func (r *Replica) majorityWithout(ctx context.Context, m members, id raft.ServerID) error {
	voters := m.votersBut(id)
	present, absent := r.present(ctx, voters)
	if 2*present > len(voters) {
		return nil
	}
	if len(voters) == 0 {
		return fmt.Errorf("%w: %s is the only voter", ErrNoMajority, id)
	}
	return fmt.Errorf("%w: without %s, %d of %d voters answer and vote, and %s does not: bring it back, wait for the end of its quarantine, or remove it first",
		ErrNoMajority, id, present, len(voters), strings.Join(absent, " and "))
}

// present counts the servers that answer and vote, this one among them, and names the others.
func (r *Replica) present(ctx context.Context, servers []raft.Server) (present int, absent []string) {
	for _, e := range r.meetAll(ctx, servers) {
		switch {
		case string(e.ID) == r.cfg.ServerID:
			present++
		case e.err != nil:
			absent = append(absent, string(e.ID))
		case e.is.Quarantine != "":
			absent = append(absent, string(e.ID)+" (in quarantine)")
		default:
			present++
		}
	}
	return present, absent
}
