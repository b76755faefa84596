package model

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Trajectories of a group are spread over the values of a label of nodes.

// label returns the value of a label of a node, empty if it does not have it.
func (n *node) label(key string) string {
	for _, l := range n.Labels {
		if l.Key == key {
			return l.Value
		}
	}
	return ""
}

func (t *trajectory) spread() bool { return t.Spread.Group != "" }

// sameGroup: they are kept apart from each other.
func (t *trajectory) sameGroup(o *trajectory) bool {
	return t.spread() && t.Namespace == o.Namespace && t.Spread.Group == o.Spread.Group && t.Spread.Label == o.Spread.Label
}

// together is how many open trajectories of a group live where the nodes say the
// same of themselves as n does.
func (m *Model) together(t *trajectory, n *node) (count int) {
	if !t.spread() {
		return 0
	}
	key := t.Spread.Label
	for _, o := range m.trajectories {
		if o.State == state.TrajectoryOpen && o.sameGroup(t) && m.nodeByID[o.Node].label(key) == n.label(key) {
			count++
		}
	}
	return count
}

// relabel follows the labels of a node in the rows of what is open there.
func (m *Model) relabel(n *node) {
	for _, t := range n.hosted {
		if t.State == state.TrajectoryOpen && t.spread() && t.Spread.Domain != n.label(t.Spread.Label) {
			t.Spread.Domain = n.label(t.Spread.Label)
			m.touchTrajectory(t)
		}
	}
}

// asksToSpread says why a trajectory must not be spread as it asks.
func (m *Model) asksToSpread(v *verdict, ns state.NamespaceID, c *logv1.OpenTrajectory) {
	v.refuse(len(c.SpreadGroup) > nameBytesMax || len(c.SpreadLabel) > labelBytesMax, "INVALID")
	v.refuse((c.SpreadGroup == "") != (c.SpreadLabel == ""), "INVALID")
	labels, own := map[string]bool{}, map[string]bool{}
	for _, t := range m.trajectories {
		if t.spread() && !t.State.Ended() {
			labels[t.Spread.Label] = true
			if t.Namespace == ns {
				own[t.Spread.Label] = true
			}
		}
	}
	full := len(labels) >= spreadLabelsMax || m.takesTooMuch(spreadLabelsMax, len(labels), len(own))
	v.refuse(c.SpreadGroup != "" && !labels[c.SpreadLabel] && full, "TOO_MANY_SPREAD_LABELS")
}
