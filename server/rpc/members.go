package rpc

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// GetNodeGroup returns a group by its name.
func (s *Server) GetNodeGroup(ctx context.Context, req *rotav1.GetNodeGroupRequest) (*rotav1.GetNodeGroupResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	var group *rotav1.NodeGroup
	s.Machine.View(func(st *state.State) {
		if g := st.NodeGroupByName(req.Name); g != nil {
			group = groupMessage(st, g)
		}
	})
	if group == nil {
		return nil, notFound("NODE_GROUP_NOT_FOUND", "there is no node group %q: ListNodeGroups has their names", req.Name)
	}
	return &rotav1.GetNodeGroupResponse{Group: group}, nil
}

// SetNodeGroupMembers says anew what belongs to a group.
func (s *Server) SetNodeGroupMembers(ctx context.Context, req *rotav1.SetNodeGroupMembersRequest) (*rotav1.SetNodeGroupMembersResponse, error) {
	if err := firstOf(requireName("name", req.Name), checkMembers(req.Nodes, req.Members, req.Selector)).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_SetGroupMembers{SetGroupMembers: &logv1.SetGroupMembers{
		Name: req.Name, Nodes: int64(req.Nodes), Members: membersOf(req.Members), Selector: selectorOf(req.Selector),
	}}})
	if err != nil {
		return nil, err
	}
	resp := &rotav1.SetNodeGroupMembersResponse{}
	s.Machine.View(func(st *state.State) {
		if g := st.NodeGroupByName(req.Name); g != nil {
			resp.Group = groupMessage(st, g)
		}
	})
	return resp, nil
}

// checkMembers says what is wrong with what is to belong to a group.
func checkMembers(nodes uint32, members []*rotav1.GroupMember, selector *rotav1.MemberSelector) *violation {
	if len(members) == 0 {
		if v := checkNodes("nodes", nodes); v != nil {
			return v
		}
	}
	if len(members) > state.GroupMembersMax {
		return wrong("members", "there are %d, at most %d are allowed", len(members), state.GroupMembersMax)
	}
	for i, m := range members {
		if v := requireName(fmt.Sprintf("members[%d].node", i), m.GetNode()); v != nil {
			return v
		}
	}
	if selector != nil && len(selector.Labels) == 0 {
		return wrong("selector.labels", "must have at least one label")
	}
	return checkLabels(selector.GetLabels())
}

func membersOf(list []*rotav1.GroupMember) (out []*logv1.GroupMember) {
	for _, m := range list {
		out = append(out, &logv1.GroupMember{Node: m.GetNode(), FirstGpu: m.GetFirstGpu(), Gpus: m.GetGpus()})
	}
	return out
}

func selectorOf(m *rotav1.MemberSelector) *logv1.MemberSelector {
	if m == nil {
		return nil
	}
	out := &logv1.MemberSelector{Gpus: m.Gpus}
	for key, value := range m.Labels {
		out.Labels = append(out.Labels, &logv1.Label{Key: key, Value: value})
	}
	slices.SortFunc(out.Labels, func(a, b *logv1.Label) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// describeMembers fills in what a group with members has.
func describeMembers(st *state.State, m *rotav1.NodeGroup, g *state.NodeGroup) {
	row := &g.Members
	for i := range row.List {
		x := &row.List[i]
		m.Members = append(m.Members, &rotav1.GroupMember{Node: x.Node, FirstGpu: x.First, Gpus: x.Units, Lost: lossText(st, x)})
	}
	if len(row.Selector.Labels) > 0 {
		m.Selector = &rotav1.MemberSelector{Labels: make(map[string]string), Gpus: row.Selector.GPUs}
		for _, l := range row.Selector.Labels {
			m.Selector.Labels[l.Key] = l.Value
		}
	}
	m.Degraded, m.Overruns = degradedText(st, g), row.Overruns
	m.Late, m.Waited = duration(row.LateNS), duration(row.WaitedNS)
	if m.GapOpen = row.GapUntil > max(0, st.Meta().Now); m.GapOpen && row.GapUntil < math.MaxInt64 {
		m.GapUntil = wallOf(st).timestamp(row.GapUntil)
	}
}

// lossText says why a group lacks a member; empty if it does not.
func lossText(st *state.State, m *state.Member) string {
	if n := st.NodeByName(m.Node); n != nil && m.Lost == state.MemberSick {
		set, _ := m.On(n.GPUs.Count)
		return n.OutOfUseText(set)
	}
	return [...]string{
		state.MemberThere: "", state.MemberDown: "the node is down", state.MemberDraining: "the node is draining",
		state.MemberGone: "the node is not registered", state.MemberShort: "the node has fewer GPUs than that",
		state.MemberBusy: "actions that run there end first",
		state.MemberSick: "GPUs of it are out of use",
	}[m.Lost]
}

// degradedText says which members a group lacks and why; empty if it lacks none.
func degradedText(st *state.State, g *state.NodeGroup) string {
	var lost []string
	for i := range g.Members.List {
		if m := &g.Members.List[i]; m.Lost != state.MemberThere {
			lost = append(lost, memberText(m)+": "+lossText(st, m))
		}
	}
	if len(lost) == 0 {
		return ""
	}
	const shown = 4
	if more := len(lost) - shown; more > 0 {
		lost = append(lost[:shown], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d of %d members are there; %s", g.Remaining(), g.Nodes, strings.Join(lost, "; "))
}

// memberText says "node-1:0-3"; "node-1" if that is all of it.
func memberText(m *state.Member) string {
	switch m.Units {
	case 0:
		return m.Node
	case 1:
		return fmt.Sprintf("%s:%d", m.Node, m.First)
	}
	return fmt.Sprintf("%s:%d-%d", m.Node, m.First, m.First+m.Units-1)
}
