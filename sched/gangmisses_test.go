package sched

import (
	"testing"

	"rota/fsm/state"
)

// TestWhatAGangMissedSaysNothingOfReservedNodes: a gang for which nodes are reserved is sought, though
// one that asks for no more found no room: those nodes were kept from it.
func TestWhatAGangMissedSaysNothingOfReservedNodes(t *testing.T) {
	gang := func(id state.ActionID) *state.Action {
		return &state.Action{ID: id, Gang: id, GangSize: 2, CoresMin: 1, CoresMax: 1}
	}
	var m gangMisses
	m.add(gang(1))
	if other := gang(2); !m.covers(other) {
		t.Error("a gang alike is sought again")
	}
	reserved := gang(3)
	reserved.ReservedOn = 7
	if m.covers(reserved) {
		t.Error("a gang with nodes of its own is not sought")
	}
}
