package fsm

import (
	"fmt"
	"strings"

	"rota/fsm/state"
)

// resizes says which attempts that ran before have other cores now, and which cores nodes share.
func (s *story) resizes(were *state.State) string {
	var out strings.Builder
	s.state.Nodes(0, func(n *state.Node) bool {
		s.state.Attempts(n.ID, func(t *state.Attempt) bool {
			old := were.Attempt(n.ID, t.Action)
			switch {
			case old == nil || old.Number != t.Number || old.Cores == t.Cores:
			case t.Shares:
				fmt.Fprintf(&out, "   action %d goes on with shared cores, had %s\n", t.Action, coreList(old.Cores))
			default:
				fmt.Fprintf(&out, "   action %d goes on with cores %s, had %s\n", t.Action, coreList(t.Cores), coreList(old.Cores))
			}
			return true
		})
		if old := were.Node(n.ID); old != nil && (old.Shared != n.Shared || old.Sharing != n.Sharing) {
			fmt.Fprintf(&out, "   %d share cores %s of %s, %d shared %s\n", n.Sharing, coreList(n.Shared), n.Name, old.Sharing, coreList(old.Shared))
		}
		return true
	})
	return out.String()
}
