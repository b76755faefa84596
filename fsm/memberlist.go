package fsm

import (
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/ledger"
)

// chooseMembers puts what belongs to a group into its row, or says why that cannot be. What
// was a member before stays as it is. With a selector alone, spares become members.
func (x *execution) chooseMembers(h *state.NodeGroup, nodes int64, list []*logv1.GroupMember, selector *logv1.MemberSelector) *logv1.Result {
	before := h.Members.List
	h.Nodes, h.Members.List, h.Members.Selector = nodes, nil, state.Selector{}
	if r := setSelector(h, selector); r != nil {
		return r
	}
	if len(list) > state.GroupMembersMax || len(list) > 0 && nodes != 0 && nodes != int64(len(list)) {
		return refuse(codeInvalidArgument, "INVALID", "node group %q has %d members, at most %d are allowed, and as many nodes, not %d", h.Name, len(list), state.GroupMembersMax, nodes)
	}
	for _, c := range list {
		m := state.Member{Node: c.Node, Chunk: state.Chunk{First: c.FirstGpu, Units: c.Gpus}, Lost: state.MemberGone}
		if i := slices.IndexFunc(before, m.Same); i >= 0 {
			m = before[i]
		} else if r := x.mayJoin(h, &m); r != nil {
			return r
		}
		for i := range h.Members.List {
			if o := &h.Members.List[i]; o.Node == m.Node && o.Claims()&m.Claims() != 0 {
				return refuse(codeInvalidArgument, "INVALID", "%s and %s of node group %q have GPUs in common", describeMember(o), describeMember(&m), h.Name)
			}
		}
		h.Members.List = append(h.Members.List, m)
	}
	if len(list) > 0 {
		h.Nodes = int64(len(list))
		return nil
	}
	if len(h.Members.Selector.Labels) > 0 {
		return x.membersOfSelector(h, before)
	}
	return nil
}

// setSelector puts a selector into a group's row.
func setSelector(h *state.NodeGroup, c *logv1.MemberSelector) *logv1.Result {
	if c == nil {
		return nil
	}
	if len(c.Labels) == 0 || len(c.Labels) > labelsMax || c.Gpus != 0 && !chunkOfMember(0, c.Gpus) {
		return refuse(codeInvalidArgument, "INVALID", "a selector needs 1 to %d labels, and a number of GPUs that is a power of two up to %d, or 0 for all", labelsMax, state.GPUsPerNodeMax)
	}
	h.Members.Selector.GPUs = c.Gpus
	for _, l := range c.Labels {
		if l.Key == "" || len(l.Key)+len(l.Value) > labelBytesMax {
			return refuse(codeInvalidArgument, "INVALID", "label %.40q of the selector is empty or longer than %d bytes", l.Key, labelBytesMax)
		}
		h.Members.Selector.Labels = append(h.Members.Selector.Labels, state.Label{Key: l.Key, Value: l.Value})
	}
	return nil
}

// membersOfSelector makes spares the members of a group, as many as it has nodes.
func (x *execution) membersOfSelector(h *state.NodeGroup, before []state.Member) *logv1.Result {
	if h.Nodes < 1 || h.Nodes > state.GroupMembersMax {
		return refuse(codeInvalidArgument, "INVALID", "a node group with members has 1 to %d nodes, not %d", state.GroupMembersMax, h.Nodes)
	}
	wanted := &state.Member{Chunk: state.Chunk{Units: h.Members.Selector.GPUs}}
	x.s.Nodes(0, func(n *state.Node) bool {
		x.budget--
		if !n.Usable() || !h.Members.Selector.Matches(n) {
			return true
		}
		taken := n.OutOfUse()
		x.s.MembersOn(n, func(g *state.NodeGroup, _ *state.Member, set state.GPUSet) {
			if g.ID != h.ID {
				taken |= set
			}
		})
		for _, m := range chunksOf(n, wanted.Units) {
			set, _ := m.On(n.GPUs.Count)
			if set&taken != 0 || int64(len(h.Members.List)) == h.Nodes {
				continue
			}
			m.Lost = state.MemberGone
			if i := slices.IndexFunc(before, m.Same); i >= 0 {
				m = before[i]
			}
			h.Members.List = append(h.Members.List, m)
		}
		return int64(len(h.Members.List)) < h.Nodes
	})
	if found := int64(len(h.Members.List)); found < h.Nodes {
		return refuse(codeFailedPrecondition, "TOO_FEW_SPARES", "node group %q needs %d members, and the nodes that its selector matches have %d chunks that belong to no other group", h.Name, h.Nodes, found)
	}
	return nil
}

// mayJoin refuses a member that cannot be, or that belongs to another group.
func (x *execution) mayJoin(h *state.NodeGroup, m *state.Member) (r *logv1.Result) {
	if m.Node == "" || len(m.Node) > nameBytesMax || m.Units == 0 && m.First != 0 || m.Units != 0 && !chunkOfMember(m.First, m.Units) {
		return refuse(codeInvalidArgument, "INVALID", "member %s must name a node and be all of its GPUs, or 1 to %d of them, a power of two that divides the number of the first", describeMember(m), state.GPUsPerNodeMax)
	}
	n := x.s.NodeByName(m.Node)
	if n == nil {
		return refuse(codeNotFound, "NODE_NOT_FOUND", "node %q is not registered; see: rota node list", m.Node)
	}
	if _, whole := m.On(n.GPUs.Count); !whole {
		return refuse(codeInvalidArgument, "INVALID", "%s cannot be a member: the node has %d GPUs", describeMember(m), n.GPUs.Count)
	}
	x.s.MembersOn(n, func(g *state.NodeGroup, o *state.Member, _ state.GPUSet) {
		if g.ID != h.ID && o.Claims()&m.Claims() != 0 {
			r = refuse(codeFailedPrecondition, "GPUS_TAKEN", "%s cannot be a member of node group %q: %s belongs to node group %q", describeMember(m), h.Name, describeMember(o), g.Name)
		}
	})
	return r
}

func chunkOfMember(first, units uint32) bool {
	return units&(units-1) == 0 && units <= state.GPUsPerNodeMax && first%units == 0 && first < state.GPUsPerNodeMax
}

// describeMember says "GPUs 0-3 of node n1".
func describeMember(m *state.Member) string {
	switch m.Units {
	case 0:
		return fmt.Sprintf("node %s", m.Node)
	case 1:
		return fmt.Sprintf("GPU %d of node %s", m.First, m.Node)
	}
	return fmt.Sprintf("GPUs %d-%d of node %s", m.First, m.First+m.Units-1, m.Node)
}

// mayHaveNodes refuses a number of nodes that a group cannot have beside the others.
func (x *execution) mayHaveNodes(h *state.NodeGroup) *logv1.Result {
	others := int64(0)
	x.s.NodeGroups(func(g *state.NodeGroup) bool {
		if g.ID != h.ID {
			others += g.Nodes
		}
		return true
	})
	if h.Nodes < 1 || h.Nodes > ledger.NodesMax-others {
		return refuse(codeInvalidArgument, "INVALID", "a node group must have 1 to %d nodes, not %d", ledger.NodesMax-others, h.Nodes)
	}
	return nil
}
