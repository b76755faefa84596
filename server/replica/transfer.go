package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/raft"
)

// TransferLeadership makes another voter the leader; an empty ID: the one whose log
// reaches furthest. On the leader only. It waits for the voter to be ready: one in
// quarantine would refuse, and the leader would decide nothing until raft gives up.
func (r *Replica) TransferLeadership(ctx context.Context, id string) error {
	return r.persist(ctx, func(ctx context.Context) error { return r.transfer(ctx, id) })
}

func (r *Replica) transfer(ctx context.Context, id string) error {
	if id == r.cfg.ServerID {
		return nil // the caller has made sure that it leads
	}
	to, err := r.successor(ctx, id)
	if err != nil {
		return err
	}
	err = r.await(ctx, func() error {
		err := r.raft.LeadershipTransferToServer(to.ID, to.Address).Error()
		if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
			r.wedge.reset() // this one is over: entries that the next one refuses are not refused without a break
		}
		return err
	})
	switch {
	case err == nil, errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost),
		errors.Is(err, raft.ErrLeadershipTransferInProgress), ctx.Err() != nil:
		return changeError("transfer leadership", err)
	}
	return fmt.Errorf("%w: %s did not take it (%w): try again", ErrTransferFailed, to.ID, err)
}

// successor returns the voter to hand over to, which is ready to lead.
func (r *Replica) successor(ctx context.Context, id string) (raft.Server, error) {
	voters := r.otherVoters()
	if id != "" {
		s, ok := r.members().find(id)
		if !ok {
			return s, ErrUnknownPeer
		}
		if s.Suffrage != raft.Voter {
			return s, fmt.Errorf("%w: %s cannot lead: use `rota operator raft add-voter %s %s` first", ErrNotVoter, id, id, s.Address)
		}
		voters = []raft.Server{s}
	}
	if len(voters) == 0 {
		return raft.Server{}, ErrOnlyVoter
	}
	var furthest encounter
	var reasons []string
	if id == "" { // the leader may be about to stop, and does not wait for a voter that is gone
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.ElectionTimeout/2)
		defer cancel()
	}
	for _, e := range r.meetAll(ctx, voters) {
		switch {
		case e.err != nil:
			reasons = append(reasons, strings.TrimPrefix(e.err.Error(), ErrNotReady.Error()+": "))
		case e.is.Quarantine != "":
			reasons = append(reasons, fmt.Sprintf("%s is in quarantine: %s", e.ID, e.is.Quarantine))
		case furthest.is == nil || e.is.LastIndex > furthest.is.LastIndex:
			furthest = e
		}
	}
	if furthest.is == nil {
		return raft.Server{}, fmt.Errorf("%w: %s", ErrNotReady, strings.Join(reasons, "; "))
	}
	return furthest.Server, nil
}
