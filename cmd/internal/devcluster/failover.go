package devcluster

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"google.golang.org/protobuf/types/known/durationpb"
	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// Failover is what one kill of the leader cost.
type Failover struct {
	Killed *Process
	// Took is from just before the kill to the answer that says that a decision
	// asked for after it is committed.
	Took time.Duration
}

// probePause is between two tries to get a decision from one server.
const probePause = 2 * time.Millisecond

// KillLeader kills the leader with SIGKILL and measures how long the others take
// to commit a decision again. The decision is the placement of an empty
// trajectory, which ends by itself.
func (c *Cluster) KillLeader(ctx context.Context, api *client.Client) (Failover, error) {
	leader, err := c.Leader(ctx, api)
	if err != nil {
		return Failover{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	probes := make([]rotav1connect.TrajectoryServiceClient, 0, len(c.Servers))
	for _, p := range c.Servers {
		if p != leader {
			probe := rotav1connect.NewTrajectoryServiceClient(httpx.NewClient(nil), httpx.BaseURL(p.Addr, false))
			// Connect first: a connection is not part of a failover.
			_, _ = probe.ListTrajectories(ctx, &rotav1.ListTrajectoriesRequest{PageSize: 1, AllowStale: true})
			probes = append(probes, probe)
		}
	}
	committed := make(chan error, len(probes))
	began := time.Now()
	leader.Kill()
	for _, probe := range probes {
		go func() { committed <- decide(ctx, probe) }()
	}
	var first error
	for range probes {
		err := <-committed
		if err == nil {
			return Failover{Killed: leader, Took: time.Since(began)}, nil
		}
		first = errors.Join(first, err)
	}
	return Failover{}, first
}

// decide repeats a small submission until it is committed.
func decide(ctx context.Context, probe rotav1connect.TrajectoryServiceClient) error {
	for {
		_, err := probe.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{
			Name: "failover-probe", IdleTimeout: durationpb.New(time.Second),
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
		switch connect.CodeOf(err) {
		case connect.CodeInvalidArgument, connect.CodeUnimplemented, connect.CodePermissionDenied:
			return err // would never get better
		}
		if err := backoff.Sleep(ctx, probePause); err != nil {
			return err
		}
	}
}
