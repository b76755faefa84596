package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// ActivateScheduler commits the barrier of a version of the scheduler. A server
// that does not know the version cannot apply the barrier and has to stop, for
// good as the barrier stays in the log. So the leader asks all of them first.
func (s *Server) ActivateScheduler(ctx context.Context, req *rotav1.ActivateSchedulerRequest) (*rotav1.ActivateSchedulerResponse, error) {
	if req.Version == 0 {
		return nil, wrong("version", "is required").failure()
	}
	return onLeader(ctx, s, func() (*rotav1.ActivateSchedulerResponse, error) {
		if err := s.allSupport(ctx, req.Version); err != nil {
			return nil, err
		}
		_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ActivateScheduler{
			ActivateScheduler: &logv1.ActivateScheduler{Version: req.Version},
		}})
		return &rotav1.ActivateSchedulerResponse{}, err
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.ActivateSchedulerResponse, error) {
		return c.ActivateScheduler(ctx, req)
	})
}

// allSupport returns nil if every server, voter or not, answers and knows the
// version.
func (s *Server) allSupport(ctx context.Context, version uint32) error {
	peers, err := s.Cluster.Peers(ctx)
	if err != nil {
		return err
	}
	for _, p := range peers {
		known := s.SchedulerVersion
		if p.Id != s.ServerID {
			status, err := s.Operator(p.Address).GetStatus(ctx, &rotav1.GetStatusRequest{})
			if err != nil {
				return unavailable(time.Second, "SERVER_UNREACHABLE",
					"server %s at %s does not say which versions it supports: start it or remove it, then try again", p.Id, p.Address)
			}
			known = status.SchedulerVersionMax
		}
		if version > known {
			return failed(connect.CodeFailedPrecondition, "SCHEDULER_UNSUPPORTED",
				"server %s supports scheduler versions up to %d, not %d: upgrade it first", p.Id, known, version)
		}
	}
	return nil
}
