package lease

import (
	"errors"
	"sync"
	"time"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm/state"
)

var (
	// ErrNotLeading says that no leases are kept here: ask the leader.
	ErrNotLeading = errors.New("this server keeps no leases: it does not lead")
	// ErrExpiring says that the end of a node or turn is being committed and may or
	// may not come about. Who asked asks again and will know.
	ErrExpiring = errors.New("the node or turn is being given up: whether it was is not known yet")
)

// patienceMin is for settings that leave no time at all.
const patienceMin = 10 * time.Millisecond

// Table holds the leases of all nodes and turns while its server leads. Its methods
// may be called concurrently.
type Table struct {
	view func(func(*state.State))
	now  func() time.Time

	mu     sync.Mutex
	leases map[subject]held // of this leadership; nil while not leading
}

// subject is who has a lease: a node or a turn.
type subject struct {
	node string
	turn state.TurnID
}

type held struct {
	// number is the incarnation of a node, the token of a turn: another number is
	// another life, with a lease of its own.
	number  uint64
	renewed time.Time
	// stopped is when a turn that is asked to stop was seen first.
	stopped time.Time
	// expiring: the end is being committed. From then on no renewal may be
	// answered, whatever becomes of the proposal.
	expiring bool
}

// New returns the table of a server that does not lead. view gives a look at the
// newest state that was applied; of now only differences count.
func New(view func(func(*state.State)), now func() time.Time) *Table {
	return &Table{view: view, now: now}
}

// Lead begins a leadership: every node that is up and every live turn gets a whole
// lease, counted from when Overdue first sees it.
func (t *Table) Lead() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases = map[subject]held{}
}

// Follow ends it: no renewal is answered until the next one.
func (t *Table) Follow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases = nil
}

// Renew renews leases that were asked for before the call, and says which nodes
// the cluster has given up. verify returns nil if a majority confirms, in answer
// to messages sent after verify was called, that this server leads. An error,
// which may be verify's, means that nothing may be assumed.
func (t *Table) Renew(verify func() error, nodes []*peerv1.NodeLease) (fenced []bool, err error) {
	if err := verify(); err != nil {
		return nil, err
	}
	t.mu.Lock() // before the state is read, as in Overdue: no expiry in between
	defer t.mu.Unlock()
	if t.leases == nil {
		return nil, ErrNotLeading
	}
	fenced = make([]bool, len(nodes))
	t.view(func(s *state.State) {
		for i, n := range nodes {
			row := s.NodeByName(n.Name)
			fenced[i] = row == nil || row.State != state.NodeUp || row.Incarnation != n.Incarnation
		}
	})
	for i, n := range nodes {
		key := subject{node: n.Name}
		lease := t.leases[key]
		switch {
		case fenced[i]:
		case lease.expiring && lease.number == n.Incarnation:
			return nil, ErrExpiring
		default:
			t.leases[key] = held{number: n.Incarnation, renewed: t.now()}
		}
	}
	return fenced, nil
}

// Due is a node or a turn that has to be given up.
type Due struct {
	// Node is empty for a turn.
	Node        string
	Incarnation uint64
	Turn        state.TurnID
	Token       uint64
	// Silent is how long ago its last renewal was.
	Silent time.Duration
}

// Command gives the node or turn up once it is committed.
func (d Due) Command() *logv1.Command {
	if d.Turn != 0 {
		return &logv1.Command{Verb: &logv1.Command_EndTurn{
			EndTurn: &logv1.EndTurn{TurnId: uint64(d.Turn), Token: d.Token, Reason: logv1.TurnEnd_TURN_END_LOST},
		}}
	}
	return &logv1.Command{Verb: &logv1.Command_ExpireNode{
		ExpireNode: &logv1.ExpireNode{Name: d.Node, Incarnation: d.Incarnation},
	}}
}

// Overdue returns the nodes and turns whose lease ended, again and again until the
// state says that they are down or over, and lets none of them renew any more. One
// that is seen for the first time gets a whole lease.
func (t *Table) Overdue() (due []Due) {
	patience := t.Patience()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leases == nil {
		return nil
	}
	r := round{table: t, now: t.now(), patience: patience, live: make(map[subject]held, len(t.leases))}
	t.view(func(s *state.State) {
		s.Nodes(0, func(n *state.Node) bool {
			if n.State == state.NodeUp {
				if silent, over := r.look(subject{node: n.Name}, n.Incarnation, false); over {
					due = append(due, Due{Node: n.Name, Incarnation: n.Incarnation, Silent: silent})
				}
			}
			return true
		})
		s.LiveTurns(func(turn *state.Turn) bool {
			if silent, over := r.look(subject{turn: turn.ID}, turn.Token, turn.Stop); over {
				due = append(due, Due{Turn: turn.ID, Token: turn.Token, Silent: silent})
			}
			return true
		})
	})
	t.leases = r.live
	return due
}

// round is one look at all who live. The leases of the others are forgotten.
type round struct {
	table    *Table
	now      time.Time
	patience time.Duration
	live     map[subject]held
}

// look reports for how long a client was silent, and whether that is too long.
func (r *round) look(who subject, number uint64, stop bool) (silent time.Duration, over bool) {
	lease, known := r.table.leases[who]
	if !known || lease.number != number {
		lease = held{number: number, renewed: r.now}
	}
	silent = r.now.Sub(lease.renewed)
	if over = silent > r.patience; over {
		lease.expiring = true
	}
	r.live[who] = lease.seen(stop, r.now)
	return silent, over
}

// Patience is how long a node or a turn may be silent: lease + margin.
func (t *Table) Patience() (d time.Duration) {
	t.view(func(s *state.State) {
		d = time.Duration(s.Meta().Settings.LeaseNS + s.Meta().Settings.LeaseMarginNS)
	})
	return max(d, patienceMin)
}
