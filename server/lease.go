package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/internal/failpoint"
	"rota/server/lease"
)

// leases answers renewals from the table of leases, while this server leads.
type leases struct {
	table    *lease.Table
	proposer proposer
	answers  *prometheus.CounterVec // by kind and answer
}

type proposer interface {
	VerifyLeader(ctx context.Context) error
	ProposeLocal(ctx context.Context, commands ...*logv1.Command) ([]*logv1.Result, error)
}

func newLeases(t *lease.Table, p proposer, answers *prometheus.CounterVec) *leases {
	return &leases{table: t, proposer: p, answers: answers}
}

// renew renews leases of nodes and says which of them the cluster has given up. An
// error means that nothing may be assumed.
func (l *leases) renew(ctx context.Context, nodes []*peerv1.NodeLease) ([]bool, error) {
	fenced, err := l.table.Renew(func() error { return l.verify(ctx) }, nodes)
	for _, refused := range fenced {
		l.answered("node", !refused)
	}
	return fenced, askAgain(err)
}

// renewTurns is renew for turns.
func (l *leases) renewTurns(ctx context.Context, turns []*peerv1.TurnLease) ([]peerv1.TurnRenewal, error) {
	answers, err := l.table.RenewTurns(func() error { return l.verify(ctx) }, turns)
	for _, answer := range answers {
		if answer != peerv1.TurnRenewal_TURN_RENEWAL_UNSPECIFIED {
			l.answered("turn", answer == peerv1.TurnRenewal_TURN_RENEWAL_RENEWED)
		}
	}
	return answers, askAgain(err)
}

func (l *leases) answered(kind string, renewed bool) {
	answer := "renewed"
	if !renewed {
		answer = "refused"
	}
	l.answers.WithLabelValues(kind, answer).Inc()
}

func (l *leases) verify(ctx context.Context) error {
	err := l.proposer.VerifyLeader(ctx)
	failpoint.Hit(failpoint.RenewalVerified)
	return err
}

// askAgain sends the caller back to the leader, where that may help.
func askAgain(err error) error {
	if errors.Is(err, lease.ErrNotLeading) || errors.Is(err, lease.ErrExpiring) {
		return fmt.Errorf("%w: %w", errNoLeader, err)
	}
	return err
}
