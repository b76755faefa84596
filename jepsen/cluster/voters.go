package cluster

import (
	"context"
	"fmt"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// caughtUp is how many entries a server without a vote may be behind when it
// gets one.
const caughtUp = 64

// AddVoter makes a server a voter as an operator would: first without a vote,
// until it has nearly everything.
func (c *Cluster) AddVoter(ctx context.Context, m *Member) error {
	return c.operate(func(api *client.Client) error {
		add := &rotav1.AddPeerRequest{Id: m.Name, Address: m.Advertised}
		if _, err := api.Operator.AddPeer(ctx, add); err != nil {
			return fmt.Errorf("add %s: %w", m.Name, err)
		}
		if err := until(ctx, func() error { return c.behind(ctx, m) }); err != nil {
			return err
		}
		add.Voter = true
		if _, err := api.Operator.AddPeer(ctx, add); err != nil {
			return fmt.Errorf("give %s a vote: %w", m.Name, err)
		}
		return nil
	})
}

// behind is an error as long as the server lags.
func (c *Cluster) behind(ctx context.Context, m *Member) error {
	leader, err := c.askLeader(ctx, nil)
	if err != nil {
		return err
	}
	of, err := c.Status(ctx, leader)
	if err != nil {
		return err
	}
	has, err := c.Status(ctx, m)
	if err == nil && has.AppliedIndex+caughtUp < of.CommitIndex {
		err = fmt.Errorf("%s has applied %d of %d", m.Name, has.AppliedIndex, of.CommitIndex)
	}
	return err
}

// Remove takes a server out of the cluster. Its process goes on.
func (c *Cluster) Remove(ctx context.Context, m *Member) error {
	return c.operate(func(api *client.Client) error {
		_, err := api.Operator.RemovePeer(ctx, &rotav1.RemovePeerRequest{Id: m.Name})
		return err
	})
}

// Transfer makes another voter the leader; nil: any.
func (c *Cluster) Transfer(ctx context.Context, to *Member) error {
	return c.operate(func(api *client.Client) error {
		req := &rotav1.TransferLeadershipRequest{}
		if to != nil {
			req.Id = to.Name
		}
		_, err := api.Operator.TransferLeadership(ctx, req)
		return err
	})
}

func (c *Cluster) operate(f func(*client.Client) error) error {
	api, err := c.Client()
	if err != nil {
		return err
	}
	defer api.Close()
	return f(api)
}
