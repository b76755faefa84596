package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
)

// SnapshotFailed says why a snapshot is of no use.
type SnapshotFailed struct{ Snapshot *rotav1.Snapshot }

func (e *SnapshotFailed) Error() string {
	s, why := e.Snapshot, e.Snapshot.GetMessage()
	switch s.GetState() {
	case rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING:
		why = "it was deleted"
	case rotav1.SnapshotState_SNAPSHOT_STATE_LOST:
		why += "; take another"
	}
	return fmt.Sprintf("snapshot %d of trajectory %d is of no use: %s", s.GetId(), s.GetTrajectoryId(), why)
}

// CreateSnapshot asks for a snapshot of the files of a trajectory, in which nothing may run. A request
// without an ID is given one, so that it can be repeated.
func (c *Client) CreateSnapshot(ctx context.Context, req *rotav1.CreateSnapshotRequest) (*rotav1.Snapshot, error) {
	req = proto.CloneOf(req)
	var resp *rotav1.CreateSnapshotResponse
	err := c.identified(ctx, &req.RequestId, &req.ExpireTime, func() (err error) {
		resp, err = c.Snapshots.CreateSnapshot(ctx, req)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	return resp.Snapshot, nil
}

// WaitSnapshot returns a snapshot when trajectories can begin with it. It asks again and again, at
// first after a millisecond and then at most ten times a second. Its error is a *SnapshotFailed if the
// snapshot could not be taken, was deleted or was lost.
func (c *Client) WaitSnapshot(ctx context.Context, id uint64) (*rotav1.Snapshot, error) {
	pause := backoff.Backoff{Least: time.Millisecond, Most: 100 * time.Millisecond}
	for {
		resp, err := c.Snapshots.GetSnapshot(ctx, &rotav1.GetSnapshotRequest{Id: id})
		if err != nil {
			return nil, fmt.Errorf("wait for snapshot %d: %w", id, err)
		}
		switch s := resp.Snapshot; s.GetState() {
		case rotav1.SnapshotState_SNAPSHOT_STATE_CREATING:
		case rotav1.SnapshotState_SNAPSHOT_STATE_READY:
			return s, nil
		default:
			return s, &SnapshotFailed{s}
		}
		if err := backoff.Sleep(ctx, pause.Next()); err != nil {
			return nil, fmt.Errorf("wait for snapshot %d: %w", id, err)
		}
	}
}
