package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"connectrpc.com/connect"

	"rota/api/codec"
	peerv1 "rota/api/gen/peer/v1"
	"rota/api/gen/peer/v1/peerv1connect"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/intake"
	"rota/api/pki"
	"rota/server/replica"
)

const (
	// peerBytesMax bounds what one server sends another: a full entry and more.
	peerBytesMax = 9 << 20
	// peersDecodingMax bounds what requests of servers take in memory, all together,
	// while they are decoded.
	peersDecodingMax = 192 << 20
)

// peerHandler answers other servers, at the path that it returns.
func (s *Server) peerHandler() (string, http.Handler) {
	path, h := peerv1connect.NewPeerServiceHandler(peer{s},
		codec.ForHandler(), intake.ForHandler(), connect.WithReadMaxBytes(peerBytesMax))
	h = intake.Handler(h, intake.Limits{MessageBytes: peerBytesMax, Budget: s.peers})
	return path, s.only(h, pki.RoleServer)
}

// keyringBytesMax bounds a request about gossip keys.
const keyringBytesMax = 4 << 10

// keyringHandler changes this server's gossip keys for other servers, at the path that it
// returns.
func (s *Server) keyringHandler() (string, http.Handler) {
	path, h := rotav1connect.NewKeyringServiceHandler(keyring{s}, intake.ForHandler(), connect.WithReadMaxBytes(keyringBytesMax))
	h = intake.Handler(h, intake.Limits{MessageBytes: keyringBytesMax, Budget: s.peers})
	return path, s.only(h, pki.RoleServer)
}

// keyring is that of gossip, if there is any.
type keyring struct{ s *Server }

func (k keyring) ChangeKeyring(ctx context.Context, req *rotav1.ChangeKeyringRequest) (*rotav1.ChangeKeyringResponse, error) {
	if g := k.s.keyring.Load(); g != nil {
		return g.ChangeKeyring(ctx, req)
	}
	return &rotav1.ChangeKeyringResponse{}, nil
}

// peer answers other servers. Only a leader has answers, but to Describe.
type peer struct{ s *Server }

func (p peer) Propose(ctx context.Context, req *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	return p.s.replica.ServePropose(ctx, req)
}

func (p peer) ReadIndex(ctx context.Context, req *peerv1.ReadIndexRequest) (*peerv1.ReadIndexResponse, error) {
	return p.s.replica.ServeReadIndex(ctx, req)
}

func (p peer) Describe(ctx context.Context, req *peerv1.DescribeRequest) (*peerv1.DescribeResponse, error) {
	return p.s.replica.ServeDescribe(ctx, req)
}

func (p peer) RenewLeases(ctx context.Context, req *peerv1.RenewLeasesRequest) (*peerv1.RenewLeasesResponse, error) {
	resp := &peerv1.RenewLeasesResponse{}
	var err error
	if len(req.Leases) > 0 || len(req.Turns) == 0 {
		resp.Fenced, err = p.s.leases.renew(ctx, req.Leases)
	}
	if err == nil && len(req.Turns) > 0 {
		resp.Turns, err = p.s.leases.renewTurns(ctx, req.Turns)
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return resp, nil
}

// only turns away clients with none of the roles, before anything is decoded.
func (s *Server) only(next http.Handler, roles ...pki.Role) http.Handler {
	if !s.cfg.TLS.Enabled() {
		return next // the port is on loopback only
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if role, err := pki.PeerRole(r.TLS); err != nil || !slices.Contains(roles, role) {
			http.Error(w, fmt.Sprintf("the role of the certificate does not allow this: it is for %v only", roles), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onlyIfCertified is only for those with a certificate. Others pass: the handler asks them who they
// are.
func (s *Server) onlyIfCertified(next http.Handler, roles ...pki.Role) http.Handler {
	certified := s.only(next, roles...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.PeerCertificates) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		certified.ServeHTTP(w, r)
	})
}

// renew renews the lease of a node at the leader, wherever that is. During an
// election it waits: the agent has no better place to ask.
func (s *Server) renew(ctx context.Context, name string, incarnation uint64) (fenced bool, err error) {
	lease := []*peerv1.NodeLease{{Name: name, Incarnation: incarnation}}
	err = s.replica.AskLeader(ctx, func(ctx context.Context, addr string) error {
		if addr == "" {
			answer, err := s.leases.renew(ctx, lease)
			fenced = err == nil && answer[0]
			if errors.Is(err, replica.ErrNotLeader) {
				err = errNoLeader // since it was looked up; there will be another
			}
			return err
		}
		resp, err := s.dial.peer(addr).RenewLeases(ctx, &peerv1.RenewLeasesRequest{Leases: lease})
		if err == nil && len(resp.Fenced) != 1 {
			err = errors.New("the leader did not answer for the node")
		}
		fenced = err == nil && resp.Fenced[0]
		return err
	})
	if err != nil {
		s.logger.Debug("lease not renewed", "node", name, "error", err)
		return false, errNoLeader
	}
	return fenced, nil
}

// renewTurn renews the lease of a turn at the leader, wherever that is, and reports
// whether it was renewed.
func (s *Server) renewTurn(ctx context.Context, turn, token uint64) (renewed bool, err error) {
	lease := []*peerv1.TurnLease{{Id: turn, Token: token}}
	err = s.replica.AskLeader(ctx, func(ctx context.Context, addr string) error {
		if addr == "" {
			answer, err := s.leases.renewTurns(ctx, lease)
			renewed = err == nil && answer[0] == peerv1.TurnRenewal_TURN_RENEWAL_RENEWED
			if errors.Is(err, replica.ErrNotLeader) {
				err = errNoLeader // since it was looked up; there will be another
			}
			return err
		}
		resp, err := s.dial.peer(addr).RenewLeases(ctx, &peerv1.RenewLeasesRequest{Turns: lease})
		if err == nil && len(resp.Turns) != 1 {
			err = errors.New("the leader did not answer for the turn")
		}
		renewed = err == nil && resp.Turns[0] == peerv1.TurnRenewal_TURN_RENEWAL_RENEWED
		return err
	})
	if err != nil {
		s.logger.Debug("lease not renewed", "turn", turn, "error", err)
		return false, errNoLeader
	}
	return renewed, nil
}
