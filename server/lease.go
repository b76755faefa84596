package server

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm/state"
)

// leases are the leader's memory of which nodes are alive. They are not in the
// log: a renewal costs a round of messages to a majority, shared by all that
// arrive together, and no write.
//
// Three rules make it safe. A renewal counts only if the leader verified, after
// the renewal arrived, that it still leads, so one that was deposed cannot renew.
// The leader gives a node up only after lease + margin without a renewal, by its
// own clock; the agent stops earlier, at lease - margin counted from when it sent
// the renewal. A new leader knows nothing and so starts every count from zero.
type leases struct {
	machine  leaseState
	proposer leaseProposer
	logger   hclog.Logger
	now      func() time.Time

	mu    sync.Mutex
	nodes map[string]lease // of this leadership; nil while not leading
}

type lease struct {
	incarnation uint64
	renewed     time.Time
	// expiring: the node's end is being committed. From then on no renewal may be
	// answered, whatever becomes of the proposal.
	expiring bool
}

type leaseState interface{ View(func(*state.State)) }

type leaseProposer interface {
	VerifyLeader(ctx context.Context) error
	ProposeLocal(ctx context.Context, commands ...*logv1.Command) ([]*logv1.Result, error)
}

func newLeases(m leaseState, p leaseProposer, logger hclog.Logger) *leases {
	return &leases{machine: m, proposer: p, logger: logger, now: time.Now}
}

// renew renews leases and says which nodes the cluster has given up. An error
// means that nothing may be assumed.
func (l *leases) renew(ctx context.Context, nodes []*peerv1.NodeLease) ([]bool, error) {
	if err := l.proposer.VerifyLeader(ctx); err != nil {
		return nil, err
	}
	fenced := make([]bool, len(nodes))
	l.mu.Lock() // before the state is read, as in overdue: no expiry in between
	defer l.mu.Unlock()
	if l.nodes == nil {
		return nil, errNoLeader
	}
	l.machine.View(func(s *state.State) {
		for i, n := range nodes {
			row := s.NodeByName(n.Name)
			fenced[i] = row == nil || row.State != state.NodeUp || row.Incarnation != n.Incarnation
		}
	})
	for i, n := range nodes {
		held := l.nodes[n.Name]
		switch {
		case fenced[i]:
		case held.expiring && held.incarnation == n.Incarnation:
			return nil, errNoLeader // undecided: the agent asks again and will know
		default:
			l.nodes[n.Name] = lease{incarnation: n.Incarnation, renewed: l.now()}
		}
	}
	return fenced, nil
}

// lead watches over the leases until ctx is done, which is when leadership ends.
func (l *leases) lead(ctx context.Context) {
	l.mu.Lock()
	l.nodes = map[string]lease{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.nodes = nil
		l.mu.Unlock()
	}()
	for {
		patience := l.patience()
		if due := l.overdue(patience); len(due) > 0 {
			l.expire(ctx, due)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(patience/8, time.Second)):
		}
	}
}

// patience is lease + margin.
func (l *leases) patience() (d time.Duration) {
	l.machine.View(func(s *state.State) {
		d = time.Duration(s.Meta().Settings.LeaseNS + s.Meta().Settings.LeaseMarginNS)
	})
	return max(d, 10*time.Millisecond)
}

// overdue marks and returns the nodes whose lease ended. A node that is seen for
// the first time gets a whole one.
func (l *leases) overdue(patience time.Duration) []*logv1.Command {
	var due []*logv1.Command
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.machine.View(func(s *state.State) {
		s.Nodes(0, func(n *state.Node) bool {
			held, known := l.nodes[n.Name]
			switch {
			case n.State != state.NodeUp:
				delete(l.nodes, n.Name)
			case !known || held.incarnation != n.Incarnation:
				l.nodes[n.Name] = lease{incarnation: n.Incarnation, renewed: now}
			case now.Sub(held.renewed) > patience:
				held.expiring = true
				l.nodes[n.Name] = held
				due = append(due, &logv1.Command{Verb: &logv1.Command_ExpireNode{
					ExpireNode: &logv1.ExpireNode{Name: n.Name, Incarnation: n.Incarnation},
				}})
				l.logger.Warn("a node's lease ended: giving it up", "node", n.Name, "silent", now.Sub(held.renewed))
			}
			return true
		})
	})
	return due
}

// expireBatch is how many nodes are given up in one entry: each may take many
// actions with it.
const expireBatch = 16

func (l *leases) expire(ctx context.Context, due []*logv1.Command) {
	for len(due) > 0 && ctx.Err() == nil {
		n := min(len(due), expireBatch)
		if _, err := l.proposer.ProposeLocal(ctx, due[:n]...); err != nil {
			l.logger.Warn("could not commit that nodes are lost; trying again", "error", err)
			return
		}
		due = due[n:]
	}
}
