package rpc

import (
	"context"
	"net"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// forwardedHeader marks a call that another server has passed on. It is not
// passed on again: then the two disagree about who leads.
const forwardedHeader = "Rota-Forwarded"

// onLeader answers here if this server leads, else at the leader.
func onLeader[Resp any](ctx context.Context, s *Server,
	here func() (*Resp, error),
	there func(context.Context, rotav1connect.OperatorServiceClient) (*Resp, error),
) (*Resp, error) {
	id, addr := s.Replica.Leader()
	if id == s.ServerID {
		return here()
	}
	call, ok := connect.CallInfoForHandlerContext(ctx)
	if addr == "" || ok && call.RequestHeader().Get(forwardedHeader) != "" {
		return nil, s.explained(refused(NoLeader()))
	}
	out, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set(forwardedHeader, s.ServerID)
	if c := callerOf(ctx); c != nil && c.bearer != "" && !s.TLS { // with TLS this server's certificate speaks for the caller, who was checked
		info.RequestHeader().Set("Authorization", "Bearer "+c.bearer)
	}
	resp, err := there(out, s.Operator(addr))
	if err != nil && connect.CodeOf(err) == connect.CodeUnavailable && !hasDetail(err) {
		return nil, unavailable(100*time.Millisecond, "LEADER_UNREACHABLE",
			"the leader, %s at %s, cannot be reached from here, and may or may not have done it: look at ListPeers, then try again", id, addr)
	}
	return resp, err
}

// ListPeers returns the servers of the Raft group, as the leader has them, or as this
// server does.
func (s *Server) ListPeers(ctx context.Context, req *rotav1.ListPeersRequest) (*rotav1.ListPeersResponse, error) {
	if req.AllowStale {
		return s.listPeers(ctx, req)
	}
	return onLeader(ctx, s, func() (*rotav1.ListPeersResponse, error) {
		return s.listPeers(ctx, req)
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.ListPeersResponse, error) {
		return c.ListPeers(ctx, req)
	})
}

func (s *Server) listPeers(ctx context.Context, req *rotav1.ListPeersRequest) (*rotav1.ListPeersResponse, error) {
	peers, err := s.Cluster.Peers(ctx)
	if err == nil && req.Contact {
		s.contact(ctx, peers)
	}
	return &rotav1.ListPeersResponse{Peers: peers}, err
}

// checkPeer checks how a request names a server.
func checkPeer(id, address string) error {
	if err := requireName("id", id).err(); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return wrong("address", "must be host:port, is %q", address).failure()
	}
	return nil
}

// AddPeer adds a server, or makes it a voter.
func (s *Server) AddPeer(ctx context.Context, req *rotav1.AddPeerRequest) (*rotav1.AddPeerResponse, error) {
	if err := checkPeer(req.Id, req.Address); err != nil {
		return nil, err
	}
	return onLeader(ctx, s, func() (*rotav1.AddPeerResponse, error) {
		if err := hold(ctx, s.members.TryRLock); err != nil {
			return nil, err
		}
		defer s.members.RUnlock()
		if err := s.checkJoiner(ctx, req.Id, req.Address); err != nil {
			return nil, err
		}
		return &rotav1.AddPeerResponse{}, s.Cluster.AddPeer(ctx, req.Id, req.Address, req.Voter)
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.AddPeerResponse, error) {
		return c.AddPeer(ctx, req)
	})
}

// MovePeer changes the address of a member.
func (s *Server) MovePeer(ctx context.Context, req *rotav1.MovePeerRequest) (*rotav1.MovePeerResponse, error) {
	if err := checkPeer(req.Id, req.Address); err != nil {
		return nil, err
	}
	return onLeader(ctx, s, func() (*rotav1.MovePeerResponse, error) {
		return &rotav1.MovePeerResponse{}, s.Cluster.MovePeer(ctx, req.Id, req.Address)
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.MovePeerResponse, error) {
		return c.MovePeer(ctx, req)
	})
}

// RemovePeer takes a server out of the group.
func (s *Server) RemovePeer(ctx context.Context, req *rotav1.RemovePeerRequest) (*rotav1.RemovePeerResponse, error) {
	if err := requireName("id", req.Id).err(); err != nil {
		return nil, err
	}
	return onLeader(ctx, s, func() (*rotav1.RemovePeerResponse, error) {
		return &rotav1.RemovePeerResponse{}, s.Cluster.RemovePeer(ctx, req.Id)
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.RemovePeerResponse, error) {
		return c.RemovePeer(ctx, req)
	})
}

// TransferLeadership makes another server the leader.
func (s *Server) TransferLeadership(ctx context.Context, req *rotav1.TransferLeadershipRequest) (*rotav1.TransferLeadershipResponse, error) {
	if err := checkName("id", req.Id).err(); err != nil {
		return nil, err
	}
	return onLeader(ctx, s, func() (*rotav1.TransferLeadershipResponse, error) {
		if err := s.Cluster.TransferLeadership(ctx, req.Id); err != nil {
			return nil, err
		}
		id, _ := s.Replica.Leader()
		return &rotav1.TransferLeadershipResponse{LeaderId: id}, nil
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.TransferLeadershipResponse, error) {
		return c.TransferLeadership(ctx, req)
	})
}
