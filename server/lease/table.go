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
	// ErrExpiring says that a node's end is being committed and may or may not
	// come about. The node asks again and will know.
	ErrExpiring = errors.New("the node is being given up: whether it was is not known yet")
)

// patienceMin is for settings that leave no time at all.
const patienceMin = 10 * time.Millisecond

// Table holds the leases of all nodes while its server leads. Its methods may be
// called concurrently.
type Table struct {
	view func(func(*state.State))
	now  func() time.Time

	mu    sync.Mutex
	nodes map[string]held // of this leadership; nil while not leading
}

type held struct {
	incarnation uint64
	renewed     time.Time
	// expiring: the node's end is being committed. From then on no renewal may be
	// answered, whatever becomes of the proposal.
	expiring bool
}

// New returns the table of a server that does not lead. view gives a look at the
// newest state that was applied; of now only differences count.
func New(view func(func(*state.State)), now func() time.Time) *Table {
	return &Table{view: view, now: now}
}

// Lead begins a leadership: every node that is up gets a whole lease, counted
// from when Overdue first sees it.
func (t *Table) Lead() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes = map[string]held{}
}

// Follow ends it: no renewal is answered until the next one.
func (t *Table) Follow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes = nil
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
	if t.nodes == nil {
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
		lease := t.nodes[n.Name]
		switch {
		case fenced[i]:
		case lease.expiring && lease.incarnation == n.Incarnation:
			return nil, ErrExpiring
		default:
			t.nodes[n.Name] = held{incarnation: n.Incarnation, renewed: t.now()}
		}
	}
	return fenced, nil
}

// Due is a node that has to be given up.
type Due struct {
	Node        string
	Incarnation uint64
	// Silent is how long ago its last renewal was.
	Silent time.Duration
}

// Command gives the node up once it is committed.
func (d Due) Command() *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_ExpireNode{
		ExpireNode: &logv1.ExpireNode{Name: d.Node, Incarnation: d.Incarnation},
	}}
}

// Overdue returns the nodes whose lease ended, again and again until the state
// says that they are down, and lets none of them renew any more. A node that is
// seen for the first time gets a whole lease.
func (t *Table) Overdue() (due []Due) {
	patience := t.Patience()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes == nil {
		return nil
	}
	now := t.now()
	t.view(func(s *state.State) {
		s.Nodes(0, func(n *state.Node) bool {
			lease, known := t.nodes[n.Name]
			silent := now.Sub(lease.renewed)
			switch {
			case n.State != state.NodeUp:
				delete(t.nodes, n.Name)
			case !known || lease.incarnation != n.Incarnation:
				t.nodes[n.Name] = held{incarnation: n.Incarnation, renewed: now}
			case silent > patience:
				lease.expiring = true
				t.nodes[n.Name] = lease
				due = append(due, Due{Node: n.Name, Incarnation: n.Incarnation, Silent: silent})
			}
			return true
		})
	})
	return due
}

// Patience is how long a node may be silent: lease + margin.
func (t *Table) Patience() (d time.Duration) {
	t.view(func(s *state.State) {
		d = time.Duration(s.Meta().Settings.LeaseNS + s.Meta().Settings.LeaseMarginNS)
	})
	return max(d, patienceMin)
}
