package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"rota/api/backoff"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm/state"
)

// RaiseLevel commits the barrier of a feature level. A server that does not know the
// level cannot apply the barrier and has to stop, for good as the barrier stays in the
// log. So the leader asks all of them first, and adds none meanwhile.
func (s *Server) RaiseLevel(ctx context.Context, req *rotav1.RaiseLevelRequest) (*rotav1.RaiseLevelResponse, error) {
	return onLeader(ctx, s, func() (*rotav1.RaiseLevelResponse, error) {
		if err := hold(ctx, s.members.TryLock); err != nil {
			return nil, err
		}
		defer s.members.Unlock()
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

// holdPause is between two tries to get a lock.
const holdPause = 10 * time.Millisecond

// hold waits for a lock. Calls that add servers share s.members, and one that raises the level has it
// alone.
func hold(ctx context.Context, try func() bool) error {
	for !try() {
		if err := backoff.Sleep(ctx, holdPause); err != nil {
			return err
		}
	}
	return nil
}

// checkJoiner refuses a server that says that it does not know the active level: it would have to
// stop. One that does not answer is not refused here.
func (s *Server) checkJoiner(ctx context.Context, id, address string) error {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	status, err := s.Operator(address).GetStatus(ctx, &rotav1.GetStatusRequest{})
	if active := s.Machine.Level(); err == nil && state.Level(status.FeatureLevelMax) < active {
		return failed(connect.CodeFailedPrecondition, "LEVEL_UNSUPPORTED",
			"server %s supports feature levels up to %d, and level %d is active: upgrade it first", id, status.FeatureLevelMax, active)
	}
	return nil
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
	if err != nil || status.ServerId != p.Id {
		return 0, unavailable(time.Second, "SERVER_UNREACHABLE",
			"server %s at %s does not say which feature levels it supports: start it or remove it, then try again", p.Id, p.Address)
	}
	return state.Level(status.FeatureLevelMax), nil
}
