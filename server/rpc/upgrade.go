package rpc

import (
	"context"
	"fmt"
	"sync"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm/state"
)

// GetUpgrade says which feature levels the servers support.
func (s *Server) GetUpgrade(ctx context.Context, req *rotav1.GetUpgradeRequest) (*rotav1.GetUpgradeResponse, error) {
	return onLeader(ctx, s, func() (*rotav1.GetUpgradeResponse, error) {
		peers, err := s.Cluster.Peers(ctx)
		if err != nil {
			return nil, err
		}
		resp := &rotav1.GetUpgradeResponse{Servers: s.releases(ctx, peers)}
		s.Machine.View(func(st *state.State) { resp.Level = uint32(st.Meta().Level) })
		resp.LevelCommon, resp.Blocked = commonLevel(resp.Level, resp.Servers)
		return resp, nil
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.GetUpgradeResponse, error) {
		return c.GetUpgrade(ctx, req)
	})
}

// releases asks each server for its build, all at once.
func (s *Server) releases(ctx context.Context, peers []*rotav1.Peer) []*rotav1.ServerRelease {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	servers := make([]*rotav1.ServerRelease, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		r := &rotav1.ServerRelease{Id: p.Id, Address: p.Address, Leader: p.Leader}
		servers[i] = r
		if p.Id == s.ServerID {
			r.Version, r.LevelMax = s.Version, uint32(s.LevelMax)
			continue
		}
		wg.Go(func() {
			status, err := s.Operator(p.Address).GetStatus(ctx, &rotav1.GetStatusRequest{})
			if err != nil {
				r.Error = fmt.Sprintf("does not answer at %s", p.Address)
				return
			}
			r.Version, r.LevelMax = status.Version, status.FeatureLevelMax
		})
	}
	wg.Wait()
	return servers
}

// commonLevel returns the newest level that all servers support, and what is in the way of
// a level above the active one.
func commonLevel(active uint32, servers []*rotav1.ServerRelease) (common uint32, blocked string) {
	newest := uint32(0)
	var silent []string
	for i, r := range servers {
		if r.Error != "" {
			silent = append(silent, r.Id)
			continue
		}
		if i == 0 || common > r.LevelMax || common == 0 {
			common = r.LevelMax
		}
		newest = max(newest, r.LevelMax)
	}
	if len(silent) > 0 {
		return 0, some(silent) + ": no answer; start the servers or remove them"
	}
	var old []string
	for _, r := range servers {
		if r.LevelMax == common && common < newest {
			old = append(old, r.Id)
		}
	}
	switch {
	case common > active:
		return common, ""
	case len(old) > 0:
		return common, fmt.Sprintf("%s: supports feature levels up to %d only; upgrade the server", some(old), common)
	}
	return common, "the newest feature level of this release is active already"
}

// GetAutopilot returns what the leader sees of the servers.
func (s *Server) GetAutopilot(ctx context.Context, req *rotav1.GetAutopilotRequest) (*rotav1.GetAutopilotResponse, error) {
	return onLeader(ctx, s, func() (*rotav1.GetAutopilotResponse, error) {
		if state := s.Autopilot(); state != nil {
			return state, nil
		}
		return nil, unavailable(contactTimeout, "NOT_LOOKED_YET", "the leader has just begun to lead and has not looked at the servers yet: try again")
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.GetAutopilotResponse, error) {
		return c.GetAutopilot(ctx, req)
	})
}
