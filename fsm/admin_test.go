package fsm

import (
	"fmt"
	"testing"

	"rota/fsm/state"
)

// TestOneAgentCannotMakeManyPools: a node has one pool at a time.
func TestOneAgentCannotMakeManyPools(t *testing.T) {
	s := newStory(t)
	for i := range 3 * poolsMax {
		if r := s.apply(t, parseCommand(t, fmt.Sprintf("register node=n1 numa=1 pool=p%d", i))...); r[0].Refusal != nil {
			t.Fatal(r[0].Refusal)
		}
	}
	if n := s.state.PoolCount(); n != 2 {
		t.Errorf("there are %d pools, want the default one and the node's", n)
	}
}

// TestManyAgentsMakeAFewPools: beyond them, a node is refused, until one is deleted.
func TestManyAgentsMakeAFewPools(t *testing.T) {
	s := newStory(t)
	register := func(i int) string {
		r := s.apply(t, parseCommand(t, fmt.Sprintf("register node=n%d numa=1 pool=p%d", i, i))...)
		return r[0].GetRefusal().GetReason()
	}
	for i := range poolsMax - 1 { // one is the default
		if why := register(i); why != "" {
			t.Fatalf("pool %d: %s", i, why)
		}
	}
	if why := register(poolsMax); why != "TOO_MANY_POOLS" {
		t.Errorf("one more is answered %q", why)
	}
	if s.state.NodeByName(fmt.Sprintf("n%d", poolsMax)) != nil {
		t.Error("the refused node is registered")
	}
	for _, line := range []string{"expire node=n7 inc=8", "remove node=n7", "delete-pool name=p7"} {
		if r := s.apply(t, parseCommand(t, line)...); r[0].Refusal != nil || r[0].Count != 1 {
			t.Fatalf("%s: %v", line, r[0])
		}
	}
	if why := register(poolsMax); why != "" {
		t.Errorf("after one was deleted: %s", why)
	}
}

// TestDeletedNamespacesMakeRoom: the limit is of those that there are.
func TestDeletedNamespacesMakeRoom(t *testing.T) {
	s := newStory(t)
	for i := range 2 * namespacesMax {
		name := fmt.Sprintf("ns%d", i)
		for _, verb := range []string{"namespace", "delete-namespace"} {
			if r := s.apply(t, parseCommand(t, verb+" name="+name)...); r[0].Refusal != nil {
				t.Fatalf("%s %s: %v", verb, name, r[0].Refusal)
			}
		}
	}
	if n, last := s.state.NamespaceCount(), s.state.Meta().LastNamespace; n != 1 || last != state.NamespaceID(2*namespacesMax+1) {
		t.Errorf("%d namespaces, the last was %d", n, last)
	}
}
