package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Groups with members: GPUs that turns and actions share. A GPU is in one of four states:
// free, held by an action, withheld for the turn that has its group, or gone with its node.

// withhold takes the members of a group from actions, since a turn has the group. Actions that
// have some of them must have ended.
func (x *execution) withhold(g *state.NodeGroup) {
	if len(g.Members.List) == 0 {
		return
	}
	h := ownMembers(g)
	for i := range h.Members.List {
		if m := &h.Members.List[i]; m.Lost == state.MemberThere && !m.Withheld {
			x.withholdOne(m)
		}
	}
	h.Members.GapUntil = 0
	x.s.PutNodeGroup(h)
}

// withholdOne takes one member from actions.
func (x *execution) withholdOne(m *state.Member) {
	n := *x.s.NodeByName(m.Node)
	set, _ := m.On(n.GPUs.Count)
	state.Assert(set&^n.GPUs.Free == 0, "GPUs %v of node %s are withheld for a turn, and only %v are free", set.Slice(), n.Name, n.GPUs.Free.Slice())
	n.GPUs.Free &^= set
	n.Withheld |= set
	x.s.PutNode(&n)
	m.Withheld = true
	x.budget--
}

// leaveToActions gives the members of a group back that no turn has any more.
func (x *execution) leaveToActions(g *state.NodeGroup) {
	if !slices.ContainsFunc(g.Members.List, func(m state.Member) bool { return m.Withheld }) {
		return
	}
	h := ownMembers(g)
	for i := range h.Members.List {
		m := &h.Members.List[i]
		if !m.Withheld {
			continue
		}
		n := *x.s.NodeByName(m.Node)
		set, _ := m.On(n.GPUs.Count)
		n.Withheld &^= set
		n.GPUs.Free |= set & n.InUse()
		x.s.PutNode(&n)
		x.nodeFreed(&n)
		m.Withheld = false
		if m.Lost != state.MemberThere { // a spare may take its place now
			x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))
		}
		x.budget--
	}
	x.s.PutNodeGroup(h)
}

// ownMembers returns a copy of a group's row with members that may be written to.
func ownMembers(g *state.NodeGroup) *state.NodeGroup {
	h := *g
	h.Members.List = slices.Clone(g.Members.List)
	return &h
}

// closeGap keeps actions from starting on the members of a group until it was looked at: it
// may be needed sooner than was known.
func (x *execution) closeGap(id state.GroupID) {
	if g := x.s.NodeGroup(id); g != nil && g.Members.GapUntil != 0 {
		h := *g
		h.Members.GapUntil = 0
		x.s.PutNodeGroup(&h)
	}
}

// reviewNode looks again at which members on a node their groups lack. With fresh, the node's
// row says nothing any more of what it withheld.
func (x *execution) reviewNode(name string, fresh bool) {
	if !x.s.AnyMembers() {
		return
	}
	var groups []*state.NodeGroup
	x.s.GroupsOn(name, func(g *state.NodeGroup) bool { groups = append(groups, g); return true })
	for _, g := range groups {
		x.reviewMembers(g, name, fresh)
		x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))
	}
	if n := x.s.NodeByName(name); n != nil && n.Usable() {
		x.offerSpares(n)
	}
}

// reviewMembers looks again at the members that a group has on a node.
func (x *execution) reviewMembers(g *state.NodeGroup, node string, fresh bool) {
	h := ownMembers(g)
	changed, news := false, false
	for i := range h.Members.List {
		m := &h.Members.List[i]
		if m.Node != node {
			continue
		}
		was := *m
		if fresh {
			m.Withheld = false
		}
		x.reviewMember(h, m)
		changed, news = changed || *m != was, news || m.Lost != was.Lost
	}
	if !changed {
		return
	}
	if news {
		h.Members.GapUntil = 0
	}
	x.s.PutNodeGroup(h)
	if t := x.s.Turn(h.Turn); t != nil && news {
		u := *t
		x.putTurn(&u) // its holder is told
	}
}

// reviewMember notes whether a group lacks a member. One that comes back while a turn has the
// group is the turn's.
func (x *execution) reviewMember(g *state.NodeGroup, m *state.Member) {
	x.budget--
	if m.Lost = x.lossOf(m); m.Lost == state.MemberThere && g.Taken() && !m.Withheld {
		x.withholdOne(m)
	}
}

// lossOf says why a group lacks a member. Actions that run on it from before keep it from the
// group only while it was not the group's.
func (x *execution) lossOf(m *state.Member) state.MemberLoss {
	n := x.s.NodeByName(m.Node)
	switch {
	case n == nil:
		return state.MemberGone
	case n.State != state.NodeUp:
		return state.MemberDown
	}
	set, whole := m.On(n.GPUs.Count)
	switch {
	case !whole:
		return state.MemberShort
	case n.Draining:
		return state.MemberDraining
	case set&n.OutOfUse() != 0:
		return state.MemberSick
	case m.Lost != state.MemberThere && n.UsedBesides(set) != 0:
		return state.MemberBusy
	}
	return state.MemberThere
}

// membersFreed looks at the groups that waited for an action to give a chunk back.
func (x *execution) membersFreed(n *state.Node, c state.Chunk) {
	if c.Units == 0 || !x.s.AnyMembers() {
		return
	}
	var back []state.GroupID
	x.s.MembersOn(n, func(g *state.NodeGroup, m *state.Member, set state.GPUSet) {
		if set&c.GPUs() != 0 && (m.Lost == state.MemberBusy || g.Members.Waits != state.NobodyWaits) {
			x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))
		}
		if set&c.GPUs() != 0 && m.Lost == state.MemberBusy {
			back = append(back, g.ID)
		}
	})
	for _, id := range back {
		x.closeGap(id) // with that member a turn that waits may have enough of them
	}
}

// reviewBusy looks again at the members of a group that actions kept from it.
func (x *execution) reviewBusy(g *state.NodeGroup) {
	var nodes orderedSet[string]
	for i := range g.Members.List {
		if m := &g.Members.List[i]; m.Lost == state.MemberBusy {
			nodes.add(m.Node)
		}
	}
	for _, node := range nodes.items {
		x.reviewMembers(x.s.NodeGroup(g.ID), node, false)
	}
}

// offerSpares has the groups looked at that lack members and could use one of some usable nodes instead.
// A turn that waits may have enough of them then.
func (x *execution) offerSpares(nodes ...*state.Node) {
	var lack []state.GroupID
	x.s.NodeGroups(func(g *state.NodeGroup) bool {
		if slices.ContainsFunc(nodes, g.Members.Selector.Matches) && g.Remaining() < g.Nodes {
			lack = append(lack, g.ID)
		}
		return true
	})
	for _, id := range lack {
		x.budget--
		x.closeGap(id)
		x.dirty.add(state.QueueOf(state.TurnQueue, id))
	}
}

// replaceLost has spares take the places of lost members of a group that nobody has.
func (x *execution) replaceLost(g *state.NodeGroup) {
	g = x.s.NodeGroup(g.ID)
	if len(g.Members.Selector.Labels) == 0 || g.Taken() || g.Remaining() == g.Nodes {
		return
	}
	h := ownMembers(g)
	var left, came []state.Member
	for i := range h.Members.List {
		m := &h.Members.List[i]
		if m.Lost == state.MemberThere || m.Lost == state.MemberBusy || m.Withheld || m.Units != h.Members.Selector.GPUs {
			continue
		}
		spare := x.spare(h)
		if spare == nil {
			break
		}
		left, came = append(left, *m), append(came, *spare)
		*m = *spare
		x.s.PutNodeGroup(h) // so that it is nobody's spare any more
		h = ownMembers(h)
	}
	if len(left) > 0 {
		x.closeGap(h.ID)
		x.offerMembers(left) // what is in use of those that were replaced
		x.reviewReservations(came)
	}
}

// spare returns a chunk of a node that a group's selector matches and that belongs to no
// group, nil if there is none. One that no action uses comes first.
func (x *execution) spare(g *state.NodeGroup) (spare *state.Member) {
	x.s.Nodes(0, func(n *state.Node) bool {
		x.budget--
		if !n.Usable() || !g.Members.Selector.Matches(n) {
			return true
		}
		for _, m := range chunksOf(n, g.Members.Selector.GPUs) {
			set, _ := m.On(n.GPUs.Count)
			if set&(x.s.GroupGPUs(n)|n.OutOfUse()) != 0 {
				continue
			}
			if n.UsedBesides(set) != 0 {
				m.Lost = state.MemberBusy
			}
			if spare == nil || m.Lost == state.MemberThere {
				spare = &m
			}
			if m.Lost == state.MemberThere {
				return false
			}
		}
		return true
	})
	return spare
}

// chunksOf returns the members of some GPUs that a node could be; 0: of all.
func chunksOf(n *state.Node, gpus uint32) (all []state.Member) {
	if gpus == 0 {
		if n.GPUs.Count > 0 {
			all = append(all, state.Member{Node: n.Name})
		}
		return all
	}
	for first := uint32(0); first+gpus <= n.GPUs.Count; first += gpus {
		all = append(all, state.Member{Node: n.Name, Chunk: state.Chunk{First: first, Units: gpus}})
	}
	return all
}

// settleGroup notes what a look at a group with members has found: how long actions may have
// the members, and who waits for actions.
func (x *execution) settleGroup(id state.GroupID, gapUntil, nextAt int64, waits state.MemberWait) {
	g := x.s.NodeGroup(id)
	if len(g.Members.List) == 0 {
		return
	}
	if !g.Taken() {
		x.leaveToActions(g)
		g = x.s.NodeGroup(id)
	}
	h := *g
	m := &h.Members
	waited := int64(0)
	if m.Waits != state.NobodyWaits {
		waited = x.now() - m.WaitsSince
	}
	m.WaitedNS += waited
	if m.Waits == state.DueWaits {
		m.LateNS += waited
	}
	m.GapUntil, m.NextAt, m.Waits, m.WaitsSince = gapUntil, nextAt, waits, 0
	if waits != state.NobodyWaits {
		m.WaitsSince = x.now()
	}
	x.s.PutNodeGroup(&h)
	if gapUntil > g.Members.GapUntil {
		x.offerGap(&h)
	}
}

// offerGap looks at the queues of the GPUs that actions may have now.
func (x *execution) offerGap(g *state.NodeGroup) {
	for i := range g.Members.List {
		if n := x.s.NodeByName(g.Members.List[i].Node); n != nil {
			x.offerGPUs(n)
		}
	}
}

// offerGPUs looks at the queues of the GPUs of a node.
func (x *execution) offerGPUs(n *state.Node) {
	if q := n.GPUQueue(); q != (state.Queue{}) && x.s.QueueLen(q) > 0 {
		x.dirty.add(q)
	}
	x.wakeGangs(n.Pool)
}

// offerGaps looks at the queues of all GPUs in open gaps: more is known of actions than was.
func (x *execution) offerGaps() {
	var open []*state.NodeGroup
	x.s.NodeGroups(func(g *state.NodeGroup) bool {
		if g.Members.GapUntil != 0 {
			open = append(open, g)
		}
		return true
	})
	for _, g := range open {
		x.offerGap(g)
	}
}

// offerMembers offers what are a group's members no more: to actions, and to groups as spares.
func (x *execution) offerMembers(left []state.Member) {
	var nodes []*state.Node
	for i := range left {
		if n := x.s.NodeByName(left[i].Node); n != nil {
			x.offerGPUs(n)
			if n.Usable() {
				nodes = append(nodes, n)
			}
		}
	}
	x.offerSpares(nodes...)
}

// reviewReservations looks again at who was to have the GPUs of new members.
func (x *execution) reviewReservations(came []state.Member) {
	for i := range came {
		if n := x.s.NodeByName(came[i].Node); n != nil {
			x.reviewReservation(n)
		}
	}
}

// countOverruns counts the actions that still run on members when a reservation begins.
func (x *execution) countOverruns(g *state.NodeGroup) *state.NodeGroup {
	if g.Members.NextAt == 0 || g.Members.NextAt > x.now() {
		return g
	}
	h := *g
	h.Members.NextAt = 0
	nodes := make(map[string]bool) // for look-up only
	for i := range h.Members.List {
		n := x.s.NodeByName(h.Members.List[i].Node)
		if n == nil || nodes[n.Name] {
			continue
		}
		nodes[n.Name] = true
		h.Members.Overruns += x.actionsOn(&h, n)
	}
	x.s.PutNodeGroup(&h)
	return &h
}

// actionsOn counts the actions that run on a group's members on a node.
func (x *execution) actionsOn(g *state.NodeGroup, n *state.Node) (count uint64) {
	own := state.GPUSet(0)
	for i := range g.Members.List {
		if m := &g.Members.List[i]; m.Node == n.Name {
			set, _ := m.On(n.GPUs.Count)
			own |= set
		}
	}
	if n.UsedBesides(own) == 0 {
		return 0
	}
	x.s.Attempts(n.ID, func(t *state.Attempt) bool {
		if x.budget--; t.Chunk.GPUs()&own != 0 {
			count++
		}
		return true
	})
	return count
}

// setGroupMembers says anew what belongs to a group, also to one that had only a number of
// nodes. What actions run on new members ends first.
func (x *execution) setGroupMembers(c *logv1.SetGroupMembers) *logv1.Result {
	g := x.s.NodeGroupByName(c.Name)
	if g == nil {
		return refuse(codeNotFound, "NODE_GROUP_NOT_FOUND", "node group %q does not exist; see: rota node-group list", c.Name)
	}
	h := *g
	if r := x.chooseMembers(&h, c.Nodes, c.Members, c.Selector); r != nil {
		return r
	}
	if r := x.mayHaveNodes(&h); r != nil {
		return r
	}
	if r := keepsWithheld(g, &h); r != nil {
		return r
	}
	if r := x.jobsStillFit(&h); r != nil {
		return r
	}
	x.joinMembers(&h)
	x.offerMembers(slices.DeleteFunc(slices.Clone(g.Members.List), func(m state.Member) bool { return slices.ContainsFunc(h.Members.List, m.Same) }))
	x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))
	if t := x.s.Turn(g.Turn); t != nil {
		u := *t
		x.putTurn(&u)
	}
	x.placeAgain()
	return &logv1.Result{Count: 1}
}

// joinMembers stores a group with other members. Those that come anew are looked at first.
func (x *execution) joinMembers(h *state.NodeGroup) {
	for i := range h.Members.List {
		if m := &h.Members.List[i]; m.Lost != state.MemberThere {
			x.reviewMember(h, m)
		}
	}
	h.Members.GapUntil, h.Members.NextAt = 0, 0
	if len(h.Members.List) == 0 {
		h.Members.Waits, h.Members.WaitsSince = state.NobodyWaits, 0
	}
	x.s.PutNodeGroup(h)
	x.reviewReservations(h.Members.List)
}

// keepsWithheld refuses to take from a group what its turn has. It may use a lost member
// still: the lease of the node's agent is not the turn's.
func keepsWithheld(g, h *state.NodeGroup) *logv1.Result {
	for i := range g.Members.List {
		m := &g.Members.List[i]
		if (m.Withheld || g.Taken()) && !slices.ContainsFunc(h.Members.List, m.Same) {
			return refuse(codeFailedPrecondition, "NODE_GROUP_IN_USE", "turn %d has %s of node group %q: it can leave the group when the turn has yielded; suspend the jobs of the group first", g.Turn, describeMember(m), g.Name)
		}
	}
	return nil
}

// jobsStillFit refuses to make a group narrower than its jobs need it.
func (x *execution) jobsStillFit(h *state.NodeGroup) (r *logv1.Result) {
	x.s.GroupJobs(h.ID, func(j *state.Job) bool {
		needs := j.Nodes
		if reservation := x.s.Reservation(j.ID); reservation != nil {
			for _, segment := range reservation.Cycle.Segments {
				needs = max(needs, segment.Nodes)
			}
		}
		if needs > h.Nodes {
			r = refuse(codeFailedPrecondition, "NODE_GROUP_TOO_NARROW", "job %q on node group %q needs %d nodes, and %d would be left: suspend, complete or move it first", j.Name, h.Name, needs, h.Nodes)
		}
		return r == nil
	})
	return r
}
