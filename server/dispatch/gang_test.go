package dispatch

import (
	"slices"
	"testing"

	"rota/fsm/state"
)

// TestAMemberIsToldTheHostsOfItsGang: all of them, by rank, whatever node it is on. A node that is
// gone leaves a gap, and the others keep their ranks.
func TestAMemberIsToldTheHostsOfItsGang(t *testing.T) {
	c := newCluster(t)
	c.change(func(st *state.State) {
		st.PutNode(&state.Node{ID: 2, Name: "n2", Pool: 1, Incarnation: 1, State: state.NodeUp, Address: "[fd00::2]:8701"})
		st.PutNode(&state.Node{ID: 3, Name: "n3", Pool: 1, Incarnation: 1, State: state.NodeUp, Address: "host3:8701"})
		for rank, node := range []state.NodeID{3, 2, 1, 2} {
			st.PutAction(&state.Action{ID: 11 + state.ActionID(rank), Gang: 11, GangSize: 4, Namespace: 1, Pool: 1, State: state.ActionRunning, Attempt: 1, Node: node})
		}
		st.PutAttempt(&state.Attempt{Node: 1, Action: 13, Number: 1, Incarnation: 5})
	})
	place := func() (rank uint32, hosts []string) {
		all := mustNext(t, c.changing()).Assignments
		if len(all) != 1 {
			t.Fatalf("%v", all)
		}
		return all[0].Gang.GetRank(), all[0].Gang.GetHosts()
	}
	if rank, hosts := place(); rank != 2 || !slices.Equal(hosts, []string{"host3", "fd00::2", nodeName, "fd00::2"}) {
		t.Errorf("rank %d, hosts %q", rank, hosts)
	}
	c.change(func(st *state.State) { st.DeleteAction(11) })
	if rank, hosts := place(); rank != 2 || !slices.Equal(hosts, []string{"", "fd00::2", nodeName, "fd00::2"}) {
		t.Errorf("after the first was forgotten: rank %d, hosts %q", rank, hosts)
	}
}
