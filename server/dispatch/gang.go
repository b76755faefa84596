package dispatch

import (
	"cmp"
	"net"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// placeInGang says where an action stands in its gang, nil if it belongs to none. All members have
// their nodes: they are granted together. The host of a node that was removed since is empty.
func placeInGang(st *state.State, a *state.Action) *rotav1.GangPlace {
	if a.Gang == 0 {
		return nil
	}
	place := &rotav1.GangPlace{Rank: a.Rank(), Hosts: make([]string, a.GangSize)}
	st.GangMembers(a.Gang, func(m *state.Action) bool {
		if n := st.Node(m.Node); n != nil {
			place.Hosts[m.Rank()] = hostOf(n)
		}
		return true
	})
	return place
}

// hostOf is the host of the address by which a node's agent is reached, or else the node's name.
func hostOf(n *state.Node) string {
	host, _, err := net.SplitHostPort(n.Address)
	if err != nil {
		host = ""
	}
	return cmp.Or(host, n.Name)
}
