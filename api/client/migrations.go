package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
)

// MigrationEnded reports whether a migration in this state has ended.
func MigrationEnded(s rotav1.MigrationState) bool {
	return s >= rotav1.MigrationState_MIGRATION_STATE_DONE
}

// RequestMigration queues a migration and returns its ID. A request without an ID is given one,
// so that it can be repeated.
func (c *Client) RequestMigration(ctx context.Context, req *rotav1.RequestMigrationRequest) (uint64, error) {
	req = proto.CloneOf(req)
	var resp *rotav1.RequestMigrationResponse
	err := c.identified(ctx, &req.RequestId, &req.ExpireTime, func() (err error) {
		resp, err = c.Migrations.RequestMigration(ctx, req)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("request migration: %w", err)
	}
	return resp.Id, nil
}

// WaitMigration returns a migration when it has ended. It asks again and again, at most ten
// times a second.
func (c *Client) WaitMigration(ctx context.Context, id uint64) (*rotav1.Migration, error) {
	pause := backoff.Backoff{Least: 100 * time.Millisecond, Most: time.Second}
	for {
		resp, err := c.Migrations.GetMigration(ctx, &rotav1.GetMigrationRequest{Id: id})
		if err != nil {
			return nil, fmt.Errorf("wait for migration %d: %w", id, err)
		}
		if MigrationEnded(resp.Migration.State) {
			return resp.Migration, nil
		}
		if err := backoff.Sleep(ctx, pause.Next()); err != nil {
			return nil, fmt.Errorf("wait for migration %d: %w", id, err)
		}
	}
}
