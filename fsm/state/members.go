package state

// MemberLoss says why a group lacks a member.
type MemberLoss uint8

// Why a group lacks a member.
const (
	MemberThere MemberLoss = iota
	// MemberDown: the lease of its node has ended.
	MemberDown
	// MemberDraining: its node takes no new work.
	MemberDraining
	// MemberGone: its node is not registered.
	MemberGone
	// MemberShort: its node has fewer GPUs than it needs.
	MemberShort
	// MemberBusy: actions run on it from before it belonged to the group.
	MemberBusy
	// MemberSick: some of its GPUs are out of use.
	MemberSick
)

// GroupMembersMax bounds the members of a group.
const GroupMembersMax = 1024

// Member is a chunk of GPUs of a node that belongs to a group. Unlike the chunk of an action
// it may have up to 64 GPUs; Units of 0 are all that the node has.
type Member struct {
	Node string
	Chunk
	Lost MemberLoss
	// Withheld: the turn or the hooks of the group have its GPUs. The node's row says so too.
	Withheld bool
}

// On returns the member's GPUs on a node with that number of them, and whether it has them
// all.
func (r *Member) On(count uint32) (set GPUSet, ok bool) {
	if r.Units == 0 {
		return AllGPUs(count), count > 0
	}
	return r.GPUs(), r.First+r.Units <= count
}

// Claims returns the GPUs that the member may ever have, whatever node it is on.
func (r *Member) Claims() GPUSet {
	set, _ := r.On(GPUsPerNodeMax)
	return set
}

// Same reports whether both are the same GPUs of the same node.
func (r *Member) Same(o Member) bool { return r.Node == o.Node && r.Chunk == o.Chunk }

// Selector says which nodes are spares of a group: those with all of the labels. It is none
// without labels.
type Selector struct {
	Labels []Label
	// GPUs of each node; 0: all.
	GPUs uint32
}

// Matches reports whether a node has all of the labels.
func (r *Selector) Matches(n *Node) bool {
	for _, want := range r.Labels {
		if n.Label(want.Key) != want.Value {
			return false
		}
	}
	return len(r.Labels) > 0
}

// Members is what a group with members has more than one with a number of nodes.
type Members struct {
	List     []Member
	Selector Selector
	// GapUntil: actions may have members' GPUs if they end before this log time; 0: they
	// may not.
	GapUntil int64
	// NextAt is the log time at which the next reservation begins; 0: none.
	NextAt int64
	// Waits says whether a turn waits for nothing but actions on members to end, since
	// WaitsSince in log time.
	Waits      MemberWait
	WaitsSince int64
	// Overruns counts the actions that still ran on members when a reservation began. LateNS
	// is how long turns waited for actions after their reservation had begun, WaitedNS how
	// long in all.
	Overruns         uint64
	LateNS, WaitedNS int64
}

// MemberWait says what kind of turn waits for actions on members to end.
type MemberWait uint8

// A turn may be early, or due by what is reserved.
const (
	NobodyWaits MemberWait = iota
	EarlyWaits
	DueWaits
)

// Remaining returns how many members a group has that it does not lack; all nodes if it has
// only a number of them.
func (r *NodeGroup) Remaining() (n int64) {
	if len(r.Members.List) == 0 {
		return r.Nodes
	}
	for i := range r.Members.List {
		if r.Members.List[i].Lost == MemberThere {
			n++
		}
	}
	return n
}

// Taken reports whether a turn or hooks have the group.
func (r *NodeGroup) Taken() bool { return r.Turn != 0 || r.ContextSwitch != nil }

func (r *Members) code(c *codec) {
	trailingList(c, &r.List, func(c *codec, m *Member) {
		c.text(&m.Node)
		m.Chunk.code(c)
		number(c, &m.Lost)
		c.flag(&m.Withheld)
	})
	trailingList(c, &r.Selector.Labels, func(c *codec, l *Label) { l.code(c) })
	trailing(c, &r.Selector.GPUs, number)
	trailing(c, &r.GapUntil, signed)
	trailing(c, &r.NextAt, signed)
	trailing(c, &r.Waits, number)
	trailing(c, &r.WaitsSince, signed)
	trailing(c, &r.Overruns, number)
	trailing(c, &r.LateNS, signed)
	trailing(c, &r.WaitedNS, signed)
}

// memberNode finds the groups that have members on a node, which may not be there.
type memberNode struct {
	node  string
	group GroupID
}

func (a memberNode) less(b memberNode) bool {
	if a.node != b.node {
		return a.node < b.node
	}
	return a.group < b.group
}

func (s *State) indexMembers(old, now *NodeGroup) {
	if old != nil && now != nil && sameMemberNodes(old.Members.List, now.Members.List) {
		return
	}
	if old != nil {
		for i := range old.Members.List {
			db(s).index.memberNodes.Delete(memberNode{old.Members.List[i].Node, old.ID})
		}
	}
	if now != nil {
		for i := range now.Members.List {
			db(s).index.memberNodes.Set(memberNode{now.Members.List[i].Node, now.ID})
		}
	}
}

func sameMemberNodes(a, b []Member) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Node != b[i].Node {
			return false
		}
	}
	return true
}

// AnyMembers reports whether any group has members.
func (s *State) AnyMembers() bool { return db(s).index.memberNodes.Len() > 0 }

// GroupsOn visits the groups that have members on the node with a name.
func (s *State) GroupsOn(node string, fn func(*NodeGroup) bool) {
	if !s.AnyMembers() {
		return
	}
	db(s).index.memberNodes.Ascend(memberNode{node: node}, func(k memberNode) bool {
		return k.node == node && fn(db(s).nodeGroups.get(k.group))
	})
}

// MembersOn visits the members that groups have on a node, with the GPUs of each that the
// node has.
func (s *State) MembersOn(n *Node, fn func(g *NodeGroup, m *Member, set GPUSet)) {
	s.GroupsOn(n.Name, func(g *NodeGroup) bool {
		for i := range g.Members.List {
			if m := &g.Members.List[i]; m.Node == n.Name {
				set, _ := m.On(n.GPUs.Count)
				fn(g, m, set&AllGPUs(n.GPUs.Count))
			}
		}
		return true
	})
}

// GroupGPUs returns the GPUs of a node that belong to groups.
func (s *State) GroupGPUs(n *Node) (all GPUSet) {
	if s.AnyMembers() {
		s.MembersOn(n, func(_ *NodeGroup, _ *Member, set GPUSet) { all |= set })
	}
	return all
}

// UsedBesides returns those of some GPUs of a node that actions have and that are not out of use.
func (r *Node) UsedBesides(set GPUSet) GPUSet { return set & r.InUse() &^ r.GPUs.Free &^ r.Withheld }
