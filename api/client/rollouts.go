package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// batchPatience is how long one call waits for a batch. It is well below the time for which calls
// are repeated, so that a server that shuts down meanwhile costs nothing but another try.
const batchPatience = 10 * time.Second

// CreateRollout declares prompt groups. A request without an ID is given one, so that it can be
// repeated.
func (c *Client) CreateRollout(ctx context.Context, req *rotav1.CreateRolloutRequest) (*rotav1.Rollout, error) {
	req = proto.CloneOf(req)
	var resp *rotav1.CreateRolloutResponse
	err := c.identified(ctx, &req.RequestId, &req.ExpireTime, func() (err error) {
		resp, err = c.Rollouts.CreateRollout(ctx, req)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create rollout: %w", err)
	}
	return resp.Rollout, nil
}

// GetBatch returns the batch of a step of training. It waits until enough groups are complete, for
// req.Wait at most; nil is as long as ctx lasts. A trainer that was killed calls it again with the
// same step and gets the same batch.
func (c *Client) GetBatch(ctx context.Context, req *rotav1.GetBatchRequest) (*rotav1.GetBatchResponse, error) {
	over := time.Now().Add(req.Wait.AsDuration())
	for {
		try := proto.CloneOf(req)
		left := batchPatience
		if req.Wait != nil {
			left = min(left, max(0, time.Until(over)))
		}
		try.Wait = durationpb.New(left)
		resp, err := c.Rollouts.GetBatch(ctx, try)
		if err == nil {
			return resp, nil
		}
		if d := Detail(err); d == nil || d.Reason != "GROUPS_MISSING" || left < batchPatience {
			return nil, fmt.Errorf("get batch of step %d: %w", req.Step, err)
		}
	}
}
