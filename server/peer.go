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
	"rota/api/pki"
	"rota/server/replica"
)

// peerBytesMax bounds what one server sends another: a full entry and more.
const peerBytesMax = 16 << 20

func peerOptions() []connect.HandlerOption {
	return []connect.HandlerOption{codec.ForHandler(), connect.WithReadMaxBytes(peerBytesMax)}
}

// peer answers other servers. Only a leader has answers.
type peer struct{ s *Server }

func (p peer) Propose(ctx context.Context, req *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	return p.s.replica.ServePropose(ctx, req)
}

func (p peer) ReadIndex(ctx context.Context, req *peerv1.ReadIndexRequest) (*peerv1.ReadIndexResponse, error) {
	return p.s.replica.ServeReadIndex(ctx, req)
}

func (p peer) RenewLeases(ctx context.Context, req *peerv1.RenewLeasesRequest) (*peerv1.RenewLeasesResponse, error) {
	fenced, err := p.s.leases.renew(ctx, req.Leases)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return &peerv1.RenewLeasesResponse{Fenced: fenced}, nil
}

// only turns away whoever has none of the roles, before anything is decoded.
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
