package dst

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// Groups with members: turns and actions use the same GPUs, one after the other.

// usedGPUs are GPUs of a node.
type usedGPUs struct {
	node string
	set  state.GPUSet
}

// changeMembers gives a group GPUs of nodes that there are: some of them, with others as
// spares now and then, or none any more.
func (c *client) changeMembers(i int, luck uint64) {
	d := sim.Draws(luck).Of(9, 0)
	if d.Chance(700_000) {
		return
	}
	set := &logv1.SetGroupMembers{Name: groupName(i), Nodes: d.Between(1, 6)}
	if d.Chance(300_000) {
		set.Selector = &logv1.MemberSelector{Labels: []*logv1.Label{{Key: "zone", Value: []string{"a", "b"}[d.N(2)]}}, Gpus: uint32(1) << d.Between(0, 2)}
	}
	if d.Chance(800_000) {
		set.Nodes, set.Members = 0, c.drawMembers(i, &d)
	}
	c.do(&logv1.Command{Verb: &logv1.Command_SetGroupMembers{SetGroupMembers: set}}, triesMax, ignore)
	if nodes := d.Between(4, 8); d.Chance(800_000) { // else actions of unknown duration wait for long
		none := &logv1.SetGroupMembers{Name: groupName(i), Nodes: nodes}
		c.w.undoAfter(d.Skewed(20*second, 3*minute), func() {
			c.do(&logv1.Command{Verb: &logv1.Command_SetGroupMembers{SetGroupMembers: none}}, triesMax, ignore)
		})
	}
}

// drawMembers draws GPUs of the nodes that are registered, mostly of those that belong to no
// other group.
func (c *client) drawMembers(i int, d *sim.Draw) (list []*logv1.GroupMember) {
	c.w.view(func(s *state.State) {
		own := s.NodeGroupByName(groupName(i))
		s.Nodes(0, func(n *state.Node) bool {
			if n.GPUs.Count == 0 || len(list) == 2 || n.GPUs.Count == 1 && d.Chance(800_000) || d.Chance(400_000) {
				return true
			}
			m := &logv1.GroupMember{Node: n.Name}
			if d.Chance(900_000) && n.GPUs.Count > 1 {
				m.Gpus = n.GPUs.Count / 2 &^ (n.GPUs.Count/2 - 1)
				m.Gpus = max(1, m.Gpus&-m.Gpus)
				m.FirstGpu = m.Gpus * uint32(d.N(int64(n.GPUs.Count/m.Gpus)))
			}
			free := true
			s.MembersOn(n, func(g *state.NodeGroup, _ *state.Member, _ state.GPUSet) { free = free && g == own })
			if free || d.Chance(100_000) {
				list = append(list, m)
			}
			return true
		})
	})
	return list
}

// freeMembers leaves all GPUs of groups to actions.
func (c *client) freeMembers() {
	c.w.view(func(s *state.State) {
		s.NodeGroups(func(g *state.NodeGroup) bool {
			if len(g.Members.List) > 0 {
				c.do(&logv1.Command{Verb: &logv1.Command_SetGroupMembers{SetGroupMembers: &logv1.SetGroupMembers{Name: g.Name, Nodes: g.Nodes}}}, 1, ignore)
			}
			return true
		})
	})
}

// gpusOfTurn are the GPUs that a turn has been given, none if it is over in truth.
func (w *World) gpusOfTurn(t state.Turn) (gpus []usedGPUs) {
	w.view(func(s *state.State) {
		g := s.NodeGroup(t.Group)
		if g == nil || g.Turn != t.ID {
			return
		}
		for i := range g.Members.List {
			if m := &g.Members.List[i]; m.Lost == state.MemberThere {
				gpus = append(gpus, usedGPUs{m.Node, m.Claims() & state.AllGPUs(s.NodeByName(m.Node).GPUs.Count)})
			}
		}
	})
	return gpus
}

// usesGPUs: a holder begins to use the GPUs of its group's members, which nobody else does.
func (w *witness) usesGPUs(h *hold) {
	if len(h.gpus) > 0 {
		w.shared++
	}
	for _, x := range h.gpus {
		if both := w.busyGPUs[x.node] & x.set; both != 0 {
			w.fail("actions use GPUs %v of %s when turn %d begins to", both.Slice(), x.node, h.turn)
		}
		if both := w.turnGPUs[x.node] & x.set; both != 0 {
			w.fail("another turn uses GPUs %v of %s when turn %d begins to", both.Slice(), x.node, h.turn)
		}
		w.turnGPUs[x.node] |= x.set
	}
}
