package state

import "fmt"

// checkMembers: a group is as wide as its members are many, lacks exactly those that cannot
// be had, and while a turn has it, its members are withheld from actions. No GPU belongs to
// two groups.
func (s *State) checkMembers(g *NodeGroup) error {
	list := g.Members.List
	if len(list) == 0 {
		return checkNoMembers(g)
	}
	if g.Nodes != int64(len(list)) || len(list) > GroupMembersMax {
		return fmt.Errorf("group %s has %d members and counts %d nodes", g.Name, len(list), g.Nodes)
	}
	if (g.Members.Waits == NobodyWaits) != (g.Members.WaitsSince == 0) && s.meta.Now > 0 || g.Taken() && g.Members.GapUntil != 0 {
		return fmt.Errorf("group %s is held by turn %d, leaves a gap until %d, and %d waits since %d", g.Name, g.Turn, g.Members.GapUntil, g.Members.Waits, g.Members.WaitsSince)
	}
	for i := range list {
		if err := s.checkMember(g, &list[i]); err != nil {
			return fmt.Errorf("group %s, member %+v: %w", g.Name, list[i], err)
		}
	}
	return nil
}

func checkNoMembers(g *NodeGroup) error {
	m := &g.Members
	if m.GapUntil != 0 || m.NextAt != 0 || m.Waits != NobodyWaits || len(m.Selector.Labels) > 0 {
		return fmt.Errorf("group %s has no members, and what one with members has: %+v", g.Name, *m)
	}
	return nil
}

func (s *State) checkMember(g *NodeGroup, m *Member) error {
	n := s.NodeByName(m.Node)
	var set GPUSet
	whole := false
	if n != nil {
		set, whole = m.On(n.GPUs.Count)
	}
	there := n != nil && n.State == NodeUp && !n.Draining && whole && set&n.OutOfUse() == 0
	switch {
	case m.Lost == MemberThere && !there, m.Lost == MemberBusy && (!there || n.UsedBesides(set) == 0 && !s.HasWork() && g.Halted == ""):
		return fmt.Errorf("its node is not there, or nothing keeps it from the group")
	case m.Lost != MemberThere && m.Lost != MemberBusy && there:
		return fmt.Errorf("its node is there")
	case m.Withheld && (n == nil || n.State != NodeUp || set&^n.Withheld != 0):
		return fmt.Errorf("the row of its node does not say that it is withheld")
	case g.Taken() && m.Lost == MemberThere && !m.Withheld:
		return fmt.Errorf("turn %d has the group, and actions may have the member", g.Turn)
	}
	return nil
}

// checkWithheld: the GPUs that a node withholds are those of members that are, and no GPU
// belongs to two groups.
func (s *State) checkWithheld(n *Node) (err error) {
	claimed, withheld := GPUSet(0), GPUSet(0)
	s.MembersOn(n, func(g *NodeGroup, m *Member, set GPUSet) {
		if claimed&m.Claims() != 0 {
			err = fmt.Errorf("node %s: member %+v of group %s has GPUs of another member", n.Name, *m, g.Name)
		}
		claimed |= m.Claims()
		if m.Withheld {
			withheld |= set
		}
	})
	if err == nil && withheld != n.Withheld {
		err = fmt.Errorf("node %s: it withholds GPUs %v, turns have %v", n.Name, n.Withheld.Slice(), withheld.Slice())
	}
	return err
}
