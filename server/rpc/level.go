package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm/state"
)

// RaiseLevel commits the barrier of a feature level. A server that does not know the
// level cannot apply the barrier and has to stop, for good as the barrier stays in the
// log. So the leader asks all of them first.
func (s *Server) RaiseLevel(ctx context.Context, req *rotav1.RaiseLevelRequest) (*rotav1.RaiseLevelResponse, error) {
	return onLeader(ctx, s, func() (*rotav1.RaiseLevelResponse, error) {
		level, err := s.levelToRaise(ctx, state.Level(req.Level))
		if err != nil {
			return nil, err
		}
		_, err = s.propose(ctx, &logv1.Command{Verb: &logv1.Command_RaiseLevel{
			RaiseLevel: &logv1.RaiseLevel{Level: uint32(level), Release: s.Version},
		}})
		return &rotav1.RaiseLevelResponse{Level: uint32(level)}, err
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.RaiseLevelResponse, error) {
		return c.RaiseLevel(ctx, req)
	})
}

// levelToRaise returns the level that was asked for, or for 0 the newest that all servers
// support. It is an error if a server, voter or not, does not answer or does not support
// the level.
func (s *Server) levelToRaise(ctx context.Context, asked state.Level) (state.Level, error) {
	peers, err := s.Cluster.Peers(ctx)
	if err != nil {
		return 0, err
	}
	common := s.LevelMax
	for _, p := range peers {
		known, err := s.levelOf(ctx, p)
		if err != nil {
			return 0, err
		}
		if asked > known {
			return 0, failed(connect.CodeFailedPrecondition, "LEVEL_UNSUPPORTED",
				"server %s supports feature levels up to %d, not %d: upgrade it first", p.Id, known, asked)
		}
		common = min(common, known)
	}
	if asked == 0 {
		return common, nil
	}
	return asked, nil
}

// levelOf asks a server for the newest feature level that it supports.
func (s *Server) levelOf(ctx context.Context, p *rotav1.Peer) (state.Level, error) {
	if p.Id == s.ServerID {
		return s.LevelMax, nil
	}
	status, err := s.Operator(p.Address).GetStatus(ctx, &rotav1.GetStatusRequest{})
	if err != nil {
		return 0, unavailable(time.Second, "SERVER_UNREACHABLE",
			"server %s at %s does not say which feature levels it supports: start it or remove it, then try again", p.Id, p.Address)
	}
	return state.Level(status.FeatureLevelMax), nil
}
