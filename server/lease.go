package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/internal/failpoint"
	"rota/server/lease"
)

// leases gives up the nodes that the table of leases says are overdue, while
// this server leads.
type leases struct {
	table    *lease.Table
	proposer proposer
	logger   hclog.Logger
}

type proposer interface {
	VerifyLeader(ctx context.Context) error
	ProposeLocal(ctx context.Context, commands ...*logv1.Command) ([]*logv1.Result, error)
}

func newLeases(t *lease.Table, p proposer, logger hclog.Logger) *leases {
	return &leases{table: t, proposer: p, logger: logger}
}

// renew renews leases and says which nodes the cluster has given up. An error
// means that nothing may be assumed.
func (l *leases) renew(ctx context.Context, nodes []*peerv1.NodeLease) ([]bool, error) {
	fenced, err := l.table.Renew(func() error {
		err := l.proposer.VerifyLeader(ctx)
		failpoint.Hit(failpoint.RenewalVerified)
		return err
	}, nodes)
	if errors.Is(err, lease.ErrNotLeading) || errors.Is(err, lease.ErrExpiring) {
		return nil, fmt.Errorf("%w: %w", errNoLeader, err) // the agent asks again
	}
	return fenced, err
}

// lead watches over the leases until ctx is done, which is when leadership ends.
func (l *leases) lead(ctx context.Context) {
	l.table.Lead()
	defer l.table.Follow()
	for {
		if due := l.table.Overdue(); len(due) > 0 {
			l.expire(ctx, due)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(l.table.Patience()/8, time.Second)):
		}
	}
}

// expireBatch is how many nodes are given up in one entry: each may take many
// actions with it.
const expireBatch = 16

func (l *leases) expire(ctx context.Context, due []lease.Due) {
	for len(due) > 0 && ctx.Err() == nil {
		var commands []*logv1.Command
		for _, d := range due[:min(len(due), expireBatch)] {
			l.logger.Warn("a node's lease ended: giving it up", "node", d.Node, "silent", d.Silent)
			commands = append(commands, d.Command())
		}
		failpoint.Hit(failpoint.NodeOverdue)
		if _, err := l.proposer.ProposeLocal(ctx, commands...); err != nil {
			l.logger.Warn("could not commit that nodes are lost; trying again", "error", err)
			return
		}
		failpoint.Hit(failpoint.NodeExpired)
		due = due[len(commands):]
	}
}
