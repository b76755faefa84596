package model

import (
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Groups with members: a GPU is an action's or a turn's, never both. Which spare takes the
// place of a lost member, and until when a gap is open, the model takes over and judges.

const (
	membersMax   = 1024
	gapAttempts  = 20   // that a class has seen before it says how long an action takes
	gapPart      = 0.95 // of a class's attempts have ended by then
	gapTolerance = 0.99 // the state machine counts in integers
)

// gpusOf are the GPUs of a member on a node with so many, and whether it has them all.
func gpusOf(x *state.Member, count uint32) (set state.GPUSet, whole bool) {
	first, units := x.First, x.Units
	if units == 0 {
		units = count
	}
	for i := first; i < first+units && i < 64; i++ {
		if i < count {
			set |= 1 << i
		}
	}
	return set, count > 0 && first+units <= count
}

// clash: two members of the same node have GPUs in common, however many the node has.
func clash(x, y *state.Member) bool {
	a, _ := gpusOf(x, 64)
	b, _ := gpusOf(y, 64)
	return x.Node == y.Node && a&b != 0
}

// taken: a turn or hooks have the group.
func (g *nodeGroup) taken() bool { return g.turn != nil || g.ContextSwitch != nil }

func (g *nodeGroup) hasMembers() bool { return len(g.Members.List) > 0 }

// left is how many nodes of the group a turn can have.
func (g *nodeGroup) left() (n int64) {
	for i := range g.Members.List {
		if g.Members.List[i].Lost == state.MemberThere {
			n++
		}
	}
	if !g.hasMembers() {
		return g.Nodes
	}
	return n
}

// usedBy is an action that runs on some GPUs of a node, nil if none does.
func (n *node) usedBy(set state.GPUSet) *action {
	for _, a := range n.running {
		if a.chunk.GPUs()&set != 0 {
			return a
		}
	}
	return nil
}

// lossOf is why a member cannot be had.
func (m *Model) lossOf(x *state.Member) state.MemberLoss {
	n := m.nodes[x.Node]
	if n == nil {
		return state.MemberGone
	}
	set, whole := gpusOf(x, n.GPUs.Count)
	switch {
	case n.State != state.NodeUp:
		return state.MemberDown
	case !whole:
		return state.MemberShort
	case n.Draining:
		return state.MemberDraining
	case n.out()&set != 0:
		return state.MemberSick
	case x.Lost != state.MemberThere && n.usedBy(set) != nil:
		return state.MemberBusy
	}
	return state.MemberThere
}

// reviewNode judges that holders are told of members on a node that are lost or back.
func (m *Model) reviewNode(name string, fresh bool) error {
	for _, g := range m.groups {
		news := false
		for i := range g.Members.List {
			if x := &g.Members.List[i]; x.Node == name {
				news = m.reviewMember(g, x, fresh) || news
			}
		}
		if news && g.turn != nil {
			if err := m.tellTurn(g.turn); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Model) reviewMember(g *nodeGroup, x *state.Member, fresh bool) (news bool) {
	was := x.Lost
	x.Withheld = x.Withheld && !fresh
	x.Lost = m.lossOf(x)
	x.Withheld = x.Withheld || x.Lost == state.MemberThere && g.taken()
	return was != x.Lost
}

// reviewBusy: what actions kept from a group is the group's when they have ended.
func (m *Model) reviewBusy(g *nodeGroup) {
	for m.reviewBusyNode(g) {
	}
}

// reviewBusyNode is reviewBusy for the first node of which something is back: a holder is told of one
// node at a time.
func (m *Model) reviewBusyNode(g *nodeGroup) (news bool) {
	node := ""
	for i := range g.Members.List {
		if x := &g.Members.List[i]; x.Lost == state.MemberBusy && (node == "" || x.Node == node) && m.reviewMember(g, x, false) {
			node, news = x.Node, true
		}
	}
	return news
}

// takeMembers judges that no action has what a turn is given.
func (m *Model) takeMembers(g *nodeGroup, t *turn) error {
	if t.job.Nodes > g.left() {
		return fmt.Errorf("turn %d of a job of %d nodes was granted on group %s, which has %d left", t.ID, t.job.Nodes, g.Name, g.left())
	}
	for i := range g.Members.List {
		x := &g.Members.List[i]
		if x.Lost != state.MemberThere {
			continue
		}
		set, _ := gpusOf(x, m.nodes[x.Node].GPUs.Count)
		if a := m.nodes[x.Node].usedBy(set); a != nil {
			return fmt.Errorf("turn %d was granted on group %s, and action %d runs on its member %+v", t.ID, g.Name, a.ID, *x)
		}
		x.Withheld = true
	}
	return nil
}

// learnSpares takes over which nodes have taken the places of lost members.
func (m *Model) learnSpares(g *nodeGroup) error {
	row := m.s.NodeGroup(g.ID)
	if row == nil || len(row.Members.List) != len(g.Members.List) {
		return nil // which is then found to differ, or deleted later in this entry
	}
	for i := range g.Members.List {
		x, y := &g.Members.List[i], row.Members.List[i]
		if x.Same(y) {
			continue
		}
		n := m.nodes[y.Node]
		switch {
		case y.Lost == state.MemberBusy && !m.over: // actions may still start that it is busy with
			continue
		case g.taken() && (g.turn == nil || g.turn.GrantedAt < m.now) || x.Lost == state.MemberThere || x.Lost == state.MemberBusy:
			return fmt.Errorf("member %+v of group %s was replaced by %+v, and is not lost, or a turn has the group", *x, g.Name, y)
		case n == nil || !g.Members.Selector.Matches(&n.Node) || y.Units != g.Members.Selector.GPUs || x.Units != y.Units:
			return fmt.Errorf("member %+v of group %s was replaced by %+v, which is no spare", *x, g.Name, y)
		}
		there := y.Lost == state.MemberThere
		y.Withheld, y.Lost = false, state.MemberGone
		if y.Lost = m.lossOf(&y); y.Lost == state.MemberBusy && there && m.startedNow(n, &y) {
			y.Lost = state.MemberThere // the action started in the gap, a moment later
		}
		*x = y
	}
	return nil
}

// startedNow: the action that runs on a member started in this entry.
func (m *Model) startedNow(n *node, x *state.Member) bool {
	set, _ := gpusOf(x, n.GPUs.Count)
	a := n.usedBy(set)
	return a != nil && a.StartedAt == m.now
}

// mayHaveGPUs: no turn has them, and if they belong to a group the action ends in time.
func (m *Model) mayHaveGPUs(a *action, n *node, c state.Chunk) error {
	for _, g := range m.groups {
		if err := m.learnSpares(g); err != nil {
			return err
		}
		for i := range g.Members.List {
			x := &g.Members.List[i]
			set, _ := gpusOf(x, n.GPUs.Count)
			if x.Node != n.Name || set&c.GPUs() == 0 || x.Lost == state.MemberSick && m.replaced(g, i) {
				continue
			}
			if !g.taken() {
				m.reviewBusy(g)
			}
			if err := m.fitsGap(a, g, x, c.Units); err != nil {
				return fmt.Errorf("action %d was granted GPUs %v of node %s, which belong to group %s: %w", a.ID, c.GPUs().Slice(), n.Name, g.Name, err)
			}
		}
	}
	return nil
}

// replaced: another has taken the place of a member by the end of the entry, so that what is not
// sick of it may be any action's.
func (m *Model) replaced(g *nodeGroup, i int) bool {
	row := m.s.NodeGroup(g.ID)
	return row != nil && i < len(row.Members.List) && !g.Members.List[i].Same(row.Members.List[i])
}

// fitsGap: nobody has or wants the group, and the action ends before its next reservation.
func (m *Model) fitsGap(a *action, g *nodeGroup, x *state.Member, units uint32) error {
	least, known := a.takesAtMost(units)
	waits := 0
	if !m.unsure(g) {
		_, all := m.next(g)
		waits = len(all)
	}
	switch {
	case g.taken():
		return fmt.Errorf("turn %d has it, or hooks", g.Turn)
	case g.Halted != "" || g.Awake != 0 || x.Lost != state.MemberThere:
		return fmt.Errorf("it is halted, a deployment is awake on it, or it lacks the member")
	case waits > 0:
		return fmt.Errorf("%d turns wait for it", waits)
	case !known:
		return fmt.Errorf("it is not known how long the action takes")
	}
	slot := m.settings.LedgerSlotNS
	for _, j := range g.jobs {
		if j.reservation == nil {
			continue
		}
		if j.reservation.Dedicated {
			return fmt.Errorf("it is job %d's alone", j.ID)
		}
		for _, s := range j.spans(m.slot()) {
			from, until := s.from*slot, s.until*slot
			if from <= m.now && m.now < until || from > m.now && float64(m.now)+least > float64(from) {
				return fmt.Errorf("it is reserved for job %d from %d until %d, it is %d and the action takes %.0f ns", j.ID, from, until, m.now, least)
			}
		}
	}
	return nil
}

// takesAtMost is how long an action has some GPUs in 95 of 100 cases, at least; and whether
// that is known.
func (a *action) takesAtMost(units uint32) (ns float64, known bool) {
	if a.Needs.Profile != nil && a.Needs.Profile.SingleNS > 0 {
		known = true
		if a.hasCurve() {
			ns = float64(a.Needs.Profile.SingleNS) / a.speed(float64(units))
		}
	}
	if c := a.class; c != nil {
		if work, seen := c.workOf(gapPart); seen {
			known, ns = true, max(ns, work/a.speed(float64(units)))
		}
	}
	return ns*gapTolerance + float64(a.GPUs().SetUpNS), known
}

// workOf is how much work there is in a part of a class's attempts at most (Kaplan, Meier),
// by the least work of the bucket that it is in.
func (c *class) workOf(part float64) (work float64, known bool) {
	var least []int64
	ended, risk := uint64(0), 0.0
	for at, l := range c.lived {
		least, ended, risk = append(least, at), ended+l.ended, risk+float64(l.ended+l.cut)
	}
	if ended < gapAttempts*16 {
		return 0, false
	}
	slices.Sort(least)
	alive := 1.0
	for _, at := range least {
		l := c.lived[at]
		alive *= 1 - float64(l.ended)/risk
		risk -= float64(l.ended + l.cut)
		if alive <= 1-part+1e-9 {
			return float64(at), true
		}
	}
	return 0, false
}

// groupGPUs are the GPUs of a node that belong to groups, or do by the end of the entry, when
// spares have taken places.
func (m *Model) groupGPUs(n *node) (all state.GPUSet) {
	add := func(g *state.NodeGroup) {
		for i := range g.Members.List {
			if x := &g.Members.List[i]; x.Node == n.Name {
				set, _ := gpusOf(x, n.GPUs.Count)
				all |= set
			}
		}
	}
	for _, g := range m.groups {
		add(&g.NodeGroup)
		if row := m.s.NodeGroup(g.ID); row != nil {
			add(row)
		}
	}
	return all
}

// couldHave: a node has a chunk for an action that belongs to no group.
func (m *Model) couldHave(a *action, n *node) bool {
	d := a.GPUs()
	if d == nil {
		return true
	}
	return n.couldGive(d.Degrees[0], m.groupGPUs(n))
}

// waitsForActions: actions run on members that a turn would have.
func (m *Model) waitsForActions(g *nodeGroup) bool {
	for i := range g.Members.List {
		x := &g.Members.List[i]
		if n := m.nodes[x.Node]; x.Lost == state.MemberThere && n != nil {
			if set, _ := gpusOf(x, n.GPUs.Count); n.usedBy(set) != nil {
				return true
			}
		}
	}
	return false
}

// compareMembers compares what a group has with what it must have.
func (m *Model) compareMembers(g *nodeGroup) error {
	row := m.s.NodeGroup(g.ID)
	m.reviewBusy(g)
	m.over = true
	if err := m.learnSpares(g); err != nil {
		return err
	}
	settled := !m.s.HasWork() && g.Halted == ""
	if len(row.Members.List) != len(g.Members.List) {
		return fmt.Errorf("group %s has %d members, must have %d", g.Name, len(row.Members.List), len(g.Members.List))
	}
	for i := range g.Members.List {
		x, y := &g.Members.List[i], row.Members.List[i]
		if n := m.nodes[x.Node]; n != nil && (x.Withheld != y.Withheld || g.Members.GapUntil != row.Members.GapUntil) {
			m.touchPool(n.pool) // its queues were looked at
		}
		switch {
		case !g.taken() && settled:
			x.Withheld = false
		case !g.taken():
			x.Withheld = y.Withheld
		}
		if !settled && y.Lost == state.MemberBusy {
			y.Lost = x.Lost
		}
		if *x != y {
			return fmt.Errorf("group %s has member %+v, must be %+v", g.Name, y, *x)
		}
		if err := m.compareWithheld(x); err != nil {
			return err
		}
	}
	return m.judgeGap(g, &row.Members)
}

// compareWithheld: the row of a node withholds what turns have of it.
func (m *Model) compareWithheld(x *state.Member) error {
	row := m.s.NodeByName(x.Node)
	if row == nil {
		return nil
	}
	set, _ := gpusOf(x, row.GPUs.Count)
	want := state.GPUSet(0)
	if x.Withheld {
		want = set
	}
	if row.Withheld&set != want {
		return fmt.Errorf("node %s withholds GPUs %v of member %+v, must be %v", x.Node, (row.Withheld & set).Slice(), *x, want.Slice())
	}
	return nil
}

// judgeGap: what is counted only grows, and a gap is not open for longer than nobody has
// reserved the group.
func (m *Model) judgeGap(g *nodeGroup, row *state.Members) error {
	was := g.Members
	if row.Overruns < was.Overruns || row.LateNS < was.LateNS || row.WaitedNS < was.WaitedNS || row.LateNS > row.WaitedNS {
		return fmt.Errorf("group %s counts %d overruns and %d and %d ns, and counted %d, %d and %d", g.Name, row.Overruns, row.LateNS, row.WaitedNS, was.Overruns, was.LateNS, was.WaitedNS)
	}
	if row.GapUntil > m.now && g.taken() {
		return fmt.Errorf("group %s leaves a gap until %d, and turn %d has it", g.Name, row.GapUntil, g.Turn)
	}
	slot := m.settings.LedgerSlotNS
	for _, j := range g.jobs {
		if j.reservation == nil || row.GapUntil <= m.now {
			continue
		}
		for _, s := range j.spans(m.slot()) {
			if s.until*slot > m.now && s.from*slot < row.GapUntil || j.reservation.Dedicated {
				return fmt.Errorf("group %s leaves a gap until %d, and is reserved for job %d from %d until %d", g.Name, row.GapUntil, j.ID, s.from*slot, s.until*slot)
			}
		}
	}
	g.Members.GapUntil, g.Members.NextAt, g.Members.Waits, g.Members.WaitsSince = row.GapUntil, row.NextAt, row.Waits, row.WaitsSince
	g.Members.Overruns, g.Members.LateNS, g.Members.WaitedNS = row.Overruns, row.LateNS, row.WaitedNS
	return nil
}

// members is what a command makes the members of a group, and whether it may.
func (m *Model) members(v *verdict, g *nodeGroup, nodes int64, list []*logv1.GroupMember, selector *logv1.MemberSelector) (out state.Members, width int64) {
	if selector != nil {
		v.refuse(len(selector.Labels) == 0 || len(selector.Labels) > labelsMax || !soundUnits(0, selector.Gpus), "INVALID")
		out.Selector.GPUs = selector.Gpus
		for _, l := range selector.Labels {
			v.refuse(l.Key == "" || len(l.Key)+len(l.Value) > labelBytesMax, "INVALID")
			out.Selector.Labels = append(out.Selector.Labels, state.Label{Key: l.Key, Value: l.Value})
		}
	}
	v.refuse(len(list) > membersMax || len(list) > 0 && nodes != 0 && nodes != int64(len(list)), "INVALID")
	for _, c := range list {
		x := state.Member{Node: c.Node, Chunk: state.Chunk{First: c.FirstGpu, Units: c.Gpus}, Lost: state.MemberGone}
		if i := slices.IndexFunc(g.Members.List, x.Same); i >= 0 {
			x = g.Members.List[i]
		} else {
			m.mayJoin(v, g, &x)
		}
		v.refuse(slices.ContainsFunc(out.List, func(y state.Member) bool { return clash(&x, &y) }), "INVALID")
		out.List = append(out.List, x)
	}
	if len(list) > 0 {
		return out, int64(len(list))
	}
	if selector != nil {
		v.refuse(nodes < 1 || nodes > membersMax, "INVALID")
		out.List = m.spares(v, g, nodes, &out.Selector)
	}
	return out, nodes
}

// soundUnits: all, or an aligned power of two.
func soundUnits(first, units uint32) bool {
	return units == 0 && first == 0 || slices.Contains([]uint32{1, 2, 4, 8, 16, 32, 64}, units) && first%units == 0 && first < 64
}

// mayJoin says why something cannot become a member of a group.
func (m *Model) mayJoin(v *verdict, g *nodeGroup, x *state.Member) {
	n := m.nodes[x.Node]
	v.refuse(x.Node == "" || len(x.Node) > nameBytesMax || !soundUnits(x.First, x.Units), "INVALID")
	v.refuse(n == nil, "NODE_NOT_FOUND")
	if n != nil {
		_, whole := gpusOf(x, n.GPUs.Count)
		v.refuse(!whole, "INVALID")
	}
	for _, o := range m.groups {
		if o != g {
			v.refuse(slices.ContainsFunc(o.Members.List, func(y state.Member) bool { return clash(x, &y) }), "GPUS_TAKEN")
		}
	}
}

// spares are what a selector alone makes members: the first chunks of the oldest nodes.
func (m *Model) spares(v *verdict, g *nodeGroup, nodes int64, selector *state.Selector) (list []state.Member) {
	var ids []state.NodeID
	for id := range m.nodeByID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		n := m.nodeByID[id]
		units := selector.GPUs
		if units == 0 {
			units = n.GPUs.Count
		}
		for first := uint32(0); n.usable() && selector.Matches(&n.Node) && units > 0 && first+units <= n.GPUs.Count && int64(len(list)) < nodes; first += units {
			x := state.Member{Node: n.Name, Chunk: state.Chunk{First: first, Units: selector.GPUs}, Lost: state.MemberGone}
			if i := slices.IndexFunc(g.Members.List, x.Same); i >= 0 {
				x = g.Members.List[i]
			}
			if set, _ := gpusOf(&x, n.GPUs.Count); set&n.out() == 0 && !slices.ContainsFunc(m.groups, func(o *nodeGroup) bool {
				return o != g && slices.ContainsFunc(o.Members.List, func(y state.Member) bool { return clash(&x, &y) })
			}) {
				list = append(list, x)
			}
		}
	}
	v.refuse(int64(len(list)) < nodes, "TOO_FEW_SPARES")
	return list
}

// joinMembers makes a group one of other members.
func (m *Model) joinMembers(g *nodeGroup, with state.Members) {
	counted := g.Members
	with.Overruns, with.LateNS, with.WaitedNS = counted.Overruns, counted.LateNS, counted.WaitedNS
	g.Members = with
	for i := range g.Members.List {
		if x := &g.Members.List[i]; x.Lost != state.MemberThere {
			m.reviewMember(g, x, false)
		}
	}
}

func (m *Model) setGroupMembers(c *logv1.SetGroupMembers, got *logv1.Result) error {
	if m.level < levelResizing {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	g := m.nodeGroupNamed(c.Name)
	if g == nil {
		return refused(got, "NODE_GROUP_NOT_FOUND")
	}
	var v verdict
	with, nodes := m.members(&v, g, c.Nodes, c.Members, c.Selector)
	all := nodes
	for _, o := range m.groups {
		if o != g {
			all += o.Nodes
		}
	}
	v.refuse(nodes < 1 || nodes > groupNodesMax || all > groupNodesMax, "INVALID")
	for _, x := range g.Members.List {
		kept := slices.ContainsFunc(with.List, x.Same)
		v.refuse(!kept && g.taken(), "NODE_GROUP_IN_USE")
		v.tolerate(x.Withheld && !kept, "NODE_GROUP_IN_USE")
	}
	for _, j := range g.jobs {
		needs, alone := max(j.Nodes, j.width()), int64(0)
		if j.reservation != nil { // of one that has the group alone it is of all nodes
			for _, s := range j.reservation.Cycle.Segments {
				alone = max(alone, s.Nodes)
			}
		}
		v.refuse(needs > nodes || alone > nodes && !j.profiled, "NODE_GROUP_TOO_NARROW")
		v.tolerate(alone > nodes, "NODE_GROUP_TOO_NARROW") // it may share the group since this entry
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	g.Nodes = nodes
	m.joinMembers(g, with)
	if g.turn != nil {
		if err := m.tellTurn(g.turn); err != nil {
			return err
		}
	}
	m.onlyArrivals = false
	return result(got, &logv1.Result{Count: 1})
}
