package replica

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	peerv1 "rota/api/gen/peer/v1"
)

// askTimeout bounds one question to another server.
const askTimeout = 2 * time.Second

// ServeDescribe answers PeerService.Describe, on any server.
func (r *Replica) ServeDescribe(_ context.Context, req *peerv1.DescribeRequest) (*peerv1.DescribeResponse, error) {
	r.zones.learn(req.Zones)
	s := r.Status()
	return &peerv1.DescribeResponse{
		ServerId: s.ID, Address: s.Address, ClusterId: r.clusterID(), Quarantine: s.Reason,
		LastIndex: s.LastIndex, AppliedIndex: r.raft.AppliedIndex(), Zone: r.cfg.Zone,
	}, nil
}

func (r *Replica) clusterID() string {
	if r.cfg.ClusterID == nil {
		return ""
	}
	return r.cfg.ClusterID()
}

// meet asks the server at an address what it is. ErrNotReady: it does not answer.
// ErrWrongServer: it is not the server id of this cluster.
func (r *Replica) meet(ctx context.Context, id, address string) (*peerv1.DescribeResponse, error) {
	if r.cfg.PeerClient == nil {
		return nil, fmt.Errorf("%w: this server cannot ask others", ErrNotReady)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d, err := r.cfg.PeerClient(address).Describe(ctx, &peerv1.DescribeRequest{Zones: r.zones.known()})
	if err != nil {
		return nil, fmt.Errorf("%w: %s does not answer at %s (%w)", ErrNotReady, id, address, err)
	}
	own := cmp.Or(r.clusterID(), d.ClusterId)
	switch {
	case d.ServerId != id:
		return nil, fmt.Errorf("%w: %s is server %s, not %s", ErrWrongServer, address, d.ServerId, id)
	case d.Address != address:
		return nil, fmt.Errorf("%w: %s advertises %s, not %s: use that address", ErrWrongServer, id, d.Address, address)
	case d.ClusterId != "" && d.ClusterId != own:
		return nil, fmt.Errorf("%w: %s holds the data of cluster %s: start it with an empty data directory", ErrWrongServer, id, d.ClusterId)
	}
	return d, nil
}

// clusterTimeout bounds the question of which cluster a server is.
const clusterTimeout = time.Second

// ourCluster returns an error if the server at an address says that it is of another
// cluster. One that does not say is not refused: it may be new, or of a release that does
// not know the question.
func (r *Replica) ourCluster(address string) error {
	own := r.clusterID()
	if own == "" || r.cfg.PeerClient == nil {
		return nil
	}
	if d, err := r.describe(address); err == nil && d.ClusterId != "" && d.ClusterId != own {
		return fmt.Errorf("%w: %s is of cluster %s, and this server of %s", ErrWrongServer, address, d.ClusterId, own)
	}
	return nil
}

// describe asks a server what it is.
func (r *Replica) describe(address string) (*peerv1.DescribeResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	return r.cfg.PeerClient(address).Describe(ctx, &peerv1.DescribeRequest{})
}

// Sight is a member as the leader sees it.
type Sight struct {
	Peer
	// Applied is the newest entry that it has applied, Quarantine why it does not vote, Zone
	// the redundancy zone that it told last. Err is ErrNotReady if it does not answer, and ErrWrongServer if another one does.
	Applied    uint64
	Quarantine string
	Zone       string
	Err        error
}

// Survey asks all members what they are, at once.
func (r *Replica) Survey(ctx context.Context) ([]Sight, error) {
	peers, err := r.Peers(ctx)
	if err != nil {
		return nil, err
	}
	servers := make([]raft.Server, len(peers))
	for i, p := range peers {
		servers[i] = raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Address)}
	}
	seen := make([]Sight, len(peers))
	zones := map[string]string{r.cfg.ServerID: r.cfg.Zone}
	for i, e := range r.meetAll(ctx, servers) {
		seen[i] = Sight{Peer: peers[i], Applied: e.is.GetAppliedIndex(), Quarantine: e.is.GetQuarantine(), Err: e.err}
		switch {
		case peers[i].ID == r.cfg.ServerID: // it need not reach itself
			s := r.Status()
			seen[i].Applied, seen[i].Quarantine, seen[i].Err = s.Applied, s.Reason, nil
		case e.err == nil:
			zones[peers[i].ID] = e.is.Zone
		}
	}
	r.zones.learn(zones)
	known := r.zones.known()
	for i := range seen {
		seen[i].Zone = known[seen[i].ID]
	}
	return seen, nil
}

// encounter is what came of the question to one server.
type encounter struct {
	raft.Server
	is  *peerv1.DescribeResponse
	err error
}

// meetAll asks all servers at once.
func (r *Replica) meetAll(ctx context.Context, servers []raft.Server) []encounter {
	met := make([]encounter, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			met[i].Server = s
			met[i].is, met[i].err = r.meet(ctx, string(s.ID), string(s.Address))
		})
	}
	wg.Wait()
	return met
}
