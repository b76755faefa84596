package rpc_test

import (
	"testing"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// TestMembersOfAGroup says what is wrong with members, and shows what a group has.
func TestMembersOfAGroup(t *testing.T) {
	w := newWorld(t)
	w.nodeGroup("g", 2)
	for _, c := range []struct {
		name string
		req  *rotav1.SetNodeGroupMembersRequest
		code connect.Code
	}{
		{"no nodes at all", &rotav1.SetNodeGroupMembersRequest{Name: "g"}, connect.CodeInvalidArgument},
		{"a selector without labels", &rotav1.SetNodeGroupMembersRequest{Name: "g", Nodes: 1, Selector: &rotav1.MemberSelector{}}, connect.CodeInvalidArgument},
		{"a node that is not there", &rotav1.SetNodeGroupMembersRequest{Name: "g", Members: []*rotav1.GroupMember{{Node: "nobody"}}}, connect.CodeNotFound},
		{"a group that is not there", &rotav1.SetNodeGroupMembersRequest{Name: "x", Nodes: 1}, connect.CodeNotFound},
	} {
		if _, err := w.ledger().SetNodeGroupMembers(t.Context(), c.req); connect.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %v", c.name, err, c.code)
		}
	}
	if _, err := w.ledger().SetNodeGroupMembers(t.Context(), &rotav1.SetNodeGroupMembersRequest{Name: "g", Nodes: 3}); err != nil {
		t.Fatal(err)
	}
	got, err := w.ledger().GetNodeGroup(t.Context(), &rotav1.GetNodeGroupRequest{Name: "g"})
	if err != nil || got.Group.Nodes != 3 || len(got.Group.Members) != 0 {
		t.Errorf("group %v, %v", got, err)
	}
	if _, err := w.ledger().GetNodeGroup(t.Context(), &rotav1.GetNodeGroupRequest{Name: "x"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a group that does not exist: %v", err)
	}
}
