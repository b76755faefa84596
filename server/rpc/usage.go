package rpc

import (
	"context"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// GetTrajectoryUsage measures what the actions of a trajectory use now.
func (s *Server) GetTrajectoryUsage(ctx context.Context, req *rotav1.GetTrajectoryUsageRequest) (*rotav1.GetTrajectoryUsageResponse, error) {
	return onHome(ctx, s, req.TrajectoryId, req.AllowStale, req, s.Usage, rotav1connect.UsageServiceClient.GetTrajectoryUsage)
}
