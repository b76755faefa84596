package server

import (
	"context"

	rotav1 "rota/api/gen/rota/v1"
	"rota/server/replica"
	"rota/server/rpc"
)

// cluster shows the replica to the operator's service.
type cluster struct{ *replica.Replica }

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

func (c cluster) TakeSnapshot(ctx context.Context) (index, sizeBytes uint64, err error) {
	if err := c.Replica.TakeSnapshot(ctx); err != nil {
		return 0, 0, err
	}
	return c.NewestSnapshot()
}
