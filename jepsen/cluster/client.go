package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// Addrs are the addresses of all servers' API, the standbys' excepted.
func (c *Cluster) Addrs() (addrs []string) {
	for _, m := range c.voters() {
		addrs = append(addrs, m.Addr)
	}
	return addrs
}

// TLS is the configuration of clients, for those who make their own.
func (c *Cluster) TLS() *tls.Config { return c.tls.Clone() }

// Client returns a new client that knows all servers.
func (c *Cluster) Client() (*client.Client, error) { return c.client(c.Addrs()...) }

// ClientTo returns a new client that knows only this server.
func (c *Cluster) ClientTo(m *Member) (*client.Client, error) { return c.client(m.Addr) }

func (c *Cluster) client(addrs ...string) (*client.Client, error) {
	return client.New(client.Config{Addrs: addrs, TLS: c.TLS()})
}

const (
	// askTimeout bounds one question to one server.
	askTimeout = time.Second
	// askPause is between two rounds of questions.
	askPause = 50 * time.Millisecond
)

// operator is the plain service of one server: nobody repeats its calls.
func (c *Cluster) operator(m *Member) rotav1connect.OperatorServiceClient {
	return rotav1connect.NewOperatorServiceClient(c.http, httpx.BaseURL(m.Addr, true))
}

// Status is what one server says about itself.
func (c *Cluster) Status(ctx context.Context, m *Member) (*rotav1.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return c.operator(m).GetStatus(ctx, &rotav1.GetStatusRequest{})
}

// TakeSnapshot asks a server for a snapshot of what it has.
func (c *Cluster) TakeSnapshot(ctx context.Context, m *Member) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := c.operator(m).TakeSnapshot(ctx, &rotav1.TakeSnapshotRequest{})
	return err
}

// ErrNoLeader: no server says that it leads.
var ErrNoLeader = errors.New("no server says that it leads")

// Leader waits until a server says that it leads. Of several, which is possible
// while one does not know yet that it was deposed, it is the one of the highest
// term.
func (c *Cluster) Leader(ctx context.Context) (leader *Member, err error) {
	err = until(ctx, func() error {
		leader, err = c.askLeader(ctx, nil)
		return err
	})
	return leader, err
}

// LeaderOtherThan waits until another server leads.
func (c *Cluster) LeaderOtherThan(ctx context.Context, old *Member) (leader *Member, err error) {
	err = until(ctx, func() error {
		leader, err = c.askLeader(ctx, old)
		return err
	})
	return leader, err
}

func (c *Cluster) askLeader(ctx context.Context, except *Member) (leader *Member, err error) {
	var term uint64
	for _, m := range c.Servers {
		if m == except || !m.Alive() {
			continue
		}
		status, err := c.Status(ctx, m)
		if err == nil && status.LeaderId == m.Name && status.Term >= term {
			leader, term = m, status.Term
		}
	}
	if leader == nil {
		return nil, ErrNoLeader
	}
	return leader, nil
}

// until repeats a check until it returns nil; the error is the last one.
func until(ctx context.Context, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(askPause):
		}
	}
}

// WaitHealthy returns once there is a leader whom all voters follow, with none
// of them in quarantine, and all agents run and their nodes are up.
func (c *Cluster) WaitHealthy(ctx context.Context) error {
	return until(ctx, func() error { return c.healthy(ctx) })
}

func (c *Cluster) healthy(ctx context.Context) error {
	leader, err := c.askLeader(ctx, nil)
	if err != nil {
		return err
	}
	voters, err := c.Voters(ctx, leader)
	if err != nil {
		return err
	}
	for _, m := range slices.Concat(voters, c.Agents, c.Generators, c.Gateways) {
		if !m.Alive() {
			return m.Ended()
		}
	}
	for _, m := range voters {
		status, err := c.Status(ctx, m)
		switch {
		case err != nil:
			return fmt.Errorf("%s does not answer: %w", m.Name, err)
		case status.Quarantined:
			return fmt.Errorf("%s is in quarantine", m.Name)
		case status.LeaderId != leader.Name:
			return fmt.Errorf("%s follows %q and not %q", m.Name, status.LeaderId, leader.Name)
		}
	}
	status, err := c.Status(ctx, leader)
	if err == nil && int(status.NodesUp) < len(c.Agents) {
		err = fmt.Errorf("%d of %d nodes are up", status.NodesUp, len(c.Agents))
	}
	return err
}

// Voters are the members that have a vote, as one server knows it.
func (c *Cluster) Voters(ctx context.Context, asked *Member) (voters []*Member, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	peers, err := c.operator(asked).ListPeers(ctx, &rotav1.ListPeersRequest{})
	if err != nil {
		return nil, err
	}
	for _, p := range peers.Peers {
		m := c.Member(p.Id)
		if m == nil {
			return nil, fmt.Errorf("%s counts %q, which is no server of ours", asked.Name, p.Id)
		}
		if p.Voter {
			voters = append(voters, m)
		}
	}
	return voters, nil
}
