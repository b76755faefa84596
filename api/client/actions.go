package client

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

// Get returns an action as it is now.
func (c *Client) Get(ctx context.Context, id uint64) (*rotav1.Action, error) {
	resp, err := c.Actions.GetAction(ctx, &rotav1.GetActionRequest{Id: id})
	if err != nil {
		return nil, fmt.Errorf("get action %d: %w", id, err)
	}
	return resp.Action, nil
}

// List returns the actions that a request asks for, page after page, in the
// order they were submitted. The request's page token says where to begin.
func (c *Client) List(ctx context.Context, req *rotav1.ListActionsRequest) iter.Seq2[*rotav1.Action, error] {
	return func(yield func(*rotav1.Action, error) bool) {
		page := proto.CloneOf(req)
		for {
			resp, err := c.Actions.ListActions(ctx, page)
			if err != nil {
				yield(nil, fmt.Errorf("list actions: %w", err))
				return
			}
			for _, a := range resp.Actions {
				if !yield(a, nil) {
					return
				}
			}
			if page.PageToken = resp.NextPageToken; page.PageToken == "" {
				return
			}
		}
	}
}

// Cancel ends actions that have not ended and returns how many those were.
func (c *Client) Cancel(ctx context.Context, ids ...uint64) (uint32, error) {
	resp, err := c.Actions.CancelActions(ctx, &rotav1.CancelActionsRequest{Ids: ids})
	if err != nil {
		return 0, fmt.Errorf("cancel actions: %w", err)
	}
	return resp.Canceled, nil
}

// OpenTrajectory opens a trajectory. A request without an ID is given one, so
// that it can be repeated.
func (c *Client) OpenTrajectory(ctx context.Context, req *rotav1.OpenTrajectoryRequest) (*rotav1.Trajectory, error) {
	req = proto.CloneOf(req)
	var resp *rotav1.OpenTrajectoryResponse
	err := c.identified(ctx, &req.RequestId, &req.ExpireTime, func() (err error) {
		resp, err = c.Trajectories.OpenTrajectory(ctx, req)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open trajectory: %w", err)
	}
	return resp.Trajectory, nil
}

// CloseTrajectory ends a trajectory and what it still has queued or running.
func (c *Client) CloseTrajectory(ctx context.Context, id uint64) (*rotav1.Trajectory, error) {
	resp, err := c.Trajectories.CloseTrajectory(ctx, &rotav1.CloseTrajectoryRequest{Id: id})
	if err != nil {
		return nil, fmt.Errorf("close trajectory %d: %w", id, err)
	}
	return resp.Trajectory, nil
}

// PauseTrajectory freezes what a trajectory runs, and returns before it is frozen. It reports false
// if the trajectory was paused already.
func (c *Client) PauseTrajectory(ctx context.Context, id uint64) (changed bool, err error) {
	resp, err := c.Trajectories.PauseTrajectory(ctx, &rotav1.PauseTrajectoryRequest{Id: id})
	if err != nil {
		return false, fmt.Errorf("pause trajectory %d: %w", id, err)
	}
	return resp.Changed, nil
}

// ResumeTrajectory lets a paused trajectory go on. It reports false if it was not paused.
func (c *Client) ResumeTrajectory(ctx context.Context, id uint64) (changed bool, err error) {
	resp, err := c.Trajectories.ResumeTrajectory(ctx, &rotav1.ResumeTrajectoryRequest{Id: id})
	if err != nil {
		return false, fmt.Errorf("resume trajectory %d: %w", id, err)
	}
	return resp.Changed, nil
}
