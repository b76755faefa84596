package server

import (
	"context"
	"errors"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/server/replica"
	"rota/server/rpc"
)

// cluster shows the replica to the operator's service.
type cluster struct {
	*replica.Replica
	machine *fsm.Machine
}

func (c cluster) Status() rpc.Status {
	s := c.Replica.Status()
	return rpc.Status{Term: s.Term, Commit: s.Commit, Quarantined: s.Quarantined}
}

func (c cluster) Peers(ctx context.Context) ([]*rotav1.Peer, error) {
	peers, err := c.Replica.Peers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]*rotav1.Peer, len(peers))
	for i, p := range peers {
		out[i] = &rotav1.Peer{Id: p.ID, Address: p.Address, Voter: p.Voter, Leader: p.Leader}
	}
	return out, nil
}

// TakeSnapshot commits an entry first where raft wants one: it takes no snapshot that ends
// with a change of members, and on an idle cluster nothing else may follow for hours.
func (c cluster) TakeSnapshot(ctx context.Context) (index, sizeBytes uint64, err error) {
	err = c.Replica.TakeSnapshot(ctx)
	if errors.Is(err, replica.ErrSnapshotLater) {
		if err = c.commitNothing(ctx); err == nil {
			err = c.Replica.TakeSnapshot(ctx)
		}
	}
	if err != nil {
		return 0, 0, err
	}
	return c.NewestSnapshot()
}

// commitNothing returns when this server has applied an entry of its own that changes
// nothing.
func (c cluster) commitNothing(ctx context.Context) error {
	results, err := c.Propose(ctx, &logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
	if err != nil {
		return err
	}
	return c.machine.WaitApplied(ctx, results[0].Index)
}
