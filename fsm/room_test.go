package fsm

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

func newStory(t rapid.TB) *story { return newStoryWith(t, 0) }

// acceptedOf counts how often a line is accepted, whose number takes the place of %d, until it is
// refused for a reason.
func (s *story) acceptedOf(t *testing.T, line, reason string) (n int) {
	t.Helper()
	for ; n < 1<<16; n++ {
		command := fmt.Sprintf(line, n)
		r := s.apply(t, parseCommand(t, command)...)[0].Refusal
		if r != nil && r.Reason != reason {
			t.Fatalf("%s: %v", command, r)
		}
		if r != nil {
			return n
		}
	}
	t.Fatalf("%s is never refused", line)
	return 0
}

// TestNoNamespaceFillsWhatAllShare: of what is bounded for the cluster, a namespace has no more than
// is left for the others, so that these find room.
func TestNoNamespaceFillsWhatAllShare(t *testing.T) {
	const requestsMax = 100
	for _, c := range []struct {
		name, line, reason string
		max                int
	}{
		{"labels", "open ns=%s group=g label=%s-%%d", "TOO_MANY_SPREAD_LABELS", state.SpreadLabelsMax},
		{"requests", "submit ns=%s req=%s-%%d", "TOO_MANY_REQUESTS", requestsMax},
		{"snapshots", "snapshot traj=1 name=%s-%s-%%d", "TOO_MANY_SNAPSHOTS", state.FileSnapshotsPerNodeMax},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStoryWith(t, requestsMax)
			s.lines(t, "register node=x numa=8 memory=1000", "open", "namespace name=a", "namespace name=b")
			if c.name == "snapshots" {
				if n := s.acceptedOf(t, fmt.Sprintf(c.line, "a", "a"), c.reason); n != c.max/2 {
					t.Errorf("a namespace has %d of %d on a node", n, c.max)
				}
				return
			}
			for i, ns := range []string{"a", "b", "default"} {
				if n, want := s.acceptedOf(t, fmt.Sprintf(c.line, ns, ns), c.reason), c.max>>(i+1); n < want || n > want+1 {
					t.Errorf("namespace %s has %d of %d, want %d", ns, n, c.max, want)
				}
			}
		})
	}
}

// TestANamespaceThatIsAloneMayHaveEverything: nothing is kept for others that there are not.
func TestANamespaceThatIsAloneMayHaveEverything(t *testing.T) {
	s := newStoryWith(t, 20)
	s.lines(t, "register node=x numa=8 memory=1000")
	if n := s.acceptedOf(t, "open group=g label=l-%d", "TOO_MANY_SPREAD_LABELS"); n != state.SpreadLabelsMax {
		t.Errorf("it spreads over %d of %d labels", n, state.SpreadLabelsMax)
	}
	if n := s.acceptedOf(t, "submit req=%d", "TOO_MANY_REQUESTS"); n != 20 {
		t.Errorf("it has %d of 20 request IDs", n)
	}
}

// TestClassesAndPoliciesLeaveRoom: a namespace names half of all classes and policies that may be, and
// others find room then.
func TestClassesAndPoliciesLeaveRoom(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=x numa=8 memory=1000", "namespace name=a", "namespace name=b")
	a := s.state.NamespaceByName("a").ID
	s.model = nil // it does not know of these
	for _, st := range []**state.State{&s.state, &s.twin} {
		next := (*st).Copy()
		m := *next.Meta()
		for range state.ClassesMax/2 - 1 {
			m.LastClass++
			next.PutClass(&state.Class{ID: m.LastClass, Namespace: a, Name: fmt.Sprint("class-", m.LastClass)})
		}
		for i := range state.PoliciesMax/2 - 1 {
			next.PutPolicy(&state.Policy{Name: fmt.Sprint("policy-", i), Namespace: a})
		}
		next.SetMeta(m)
		*st = next
	}
	if n := s.acceptedOf(t, "submit ns=a class=new-%d", "TOO_MANY_CLASSES"); n != 1 {
		t.Errorf("a namespace has %d classes of %d", s.state.ClassesOf(a), state.ClassesMax)
	}
	if n := s.acceptedOf(t, "rollout ns=a policy=new-%d", "TOO_MANY_POLICIES"); n != 1 {
		t.Errorf("a namespace has %d policies of %d", s.state.PoliciesOf(a), state.PoliciesMax)
	}
	s.lines(t, "submit ns=b class=first", "rollout ns=b policy=first")
	if s.state.ClassByName(s.state.NamespaceByName("b").ID, "first") == nil || s.state.Policy("first") == nil {
		t.Error("another namespace finds no room")
	}
}
