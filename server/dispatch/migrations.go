package dispatch

import (
	"fmt"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// transfer is the migration that runs at a node, with the node at its other end. Rows never
// change, so they can be read after the view.
type transfer struct {
	row      *state.Migration
	incoming bool
	peer     *state.Node
}

// transferAt returns the migration that runs at a node; its row is nil if none does.
func transferAt(st *state.State, n *state.Node) transfer {
	m := st.RunningMigration(n.ID)
	if m == nil {
		return transfer{}
	}
	if m.Target == n.ID {
		return transfer{m, true, st.Node(m.Source)}
	}
	return transfer{m, false, st.Node(m.Target)}
}

// desired makes a transfer into what the agent is told of it.
func (t transfer) desired() ([]*rotav1.DesiredMigration, error) {
	if t.row == nil {
		return nil, nil
	}
	selector := new(rotav1.MigrationSelector)
	if err := selector.UnmarshalVT(t.row.Selector); err != nil {
		return nil, fmt.Errorf("decode the selector of migration %d: %w", t.row.ID, err)
	}
	return []*rotav1.DesiredMigration{{
		MigrationId: uint64(t.row.ID), Incoming: t.incoming, Peer: t.peer.Name, PeerAddress: t.peer.Address, Selector: selector,
	}}, nil
}
