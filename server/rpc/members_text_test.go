package rpc

import (
	"testing"

	"rota/fsm/state"
)

// TestDegradedSaysWhatAndWhy names at most four members.
func TestDegradedSaysWhatAndWhy(t *testing.T) {
	g := &state.NodeGroup{Nodes: 3}
	g.Members.List = []state.Member{
		{Node: "n1", Chunk: state.Chunk{First: 4, Units: 4}, Lost: state.MemberDown}, {Node: "n2"}, {Node: "n3", Chunk: state.Chunk{First: 1, Units: 1}, Lost: state.MemberBusy},
	}
	if got, want := degradedText(state.New(), g), "1 of 3 members are there; n1:4-7: the node is down; n3:1: actions that run there end first"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	g.Members.List, g.Nodes = make([]state.Member, 9), 9
	for i := range g.Members.List {
		g.Members.List[i] = state.Member{Node: "n", Lost: state.MemberGone}
	}
	if got, want := degradedText(state.New(), g), "0 of 9 members are there; n: the node is not registered; n: the node is not registered; n: the node is not registered; n: the node is not registered; and 5 more"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got := degradedText(state.New(), &state.NodeGroup{Nodes: 3}); got != "" {
		t.Errorf("a group without members says %q", got)
	}
}
