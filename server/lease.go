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

// leases gives up the nodes and turns that the table of leases says are overdue,
// while this server leads.
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

// renew renews leases of nodes and says which of them the cluster has given up. An
// error means that nothing may be assumed.
func (l *leases) renew(ctx context.Context, nodes []*peerv1.NodeLease) ([]bool, error) {
	fenced, err := l.table.Renew(func() error { return l.verify(ctx) }, nodes)
	return fenced, askAgain(err)
}

// renewTurns is renew for turns.
func (l *leases) renewTurns(ctx context.Context, turns []*peerv1.TurnLease) ([]peerv1.TurnRenewal, error) {
	answers, err := l.table.RenewTurns(func() error { return l.verify(ctx) }, turns)
	return answers, askAgain(err)
}

func (l *leases) verify(ctx context.Context) error {
	err := l.proposer.VerifyLeader(ctx)
	failpoint.Hit(failpoint.RenewalVerified)
	return err
}

// askAgain sends who asked back to whoever leads, where that may help.
func askAgain(err error) error {
	if errors.Is(err, lease.ErrNotLeading) || errors.Is(err, lease.ErrExpiring) {
		return fmt.Errorf("%w: %w", errNoLeader, err)
	}
	return err
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

// expireBatch is how many nodes and turns are given up in one entry: each node may
// take many actions with it.
const expireBatch = 16

func (l *leases) expire(ctx context.Context, due []lease.Due) {
	for len(due) > 0 && ctx.Err() == nil {
		var commands []*logv1.Command
		for _, d := range due[:min(len(due), expireBatch)] {
			l.logger.Warn("a lease ended: giving its holder up", "node", d.Node, "turn", d.Turn, "silent", d.Silent)
			commands = append(commands, d.Command())
		}
		failpoint.Hit(failpoint.NodeOverdue)
		if _, err := l.proposer.ProposeLocal(ctx, commands...); err != nil {
			l.logger.Warn("could not commit that nodes or turns are lost; trying again", "error", err)
			return
		}
		failpoint.Hit(failpoint.NodeExpired)
		due = due[len(commands):]
	}
}
