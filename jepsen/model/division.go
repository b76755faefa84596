package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"rota/fsm/state"
)

// Cores that follow: on a node that can resize, an action that can use more than its fewest
// cores starts as soon as those are to be had, and the node's cores are divided among what
// runs there.

const (
	levelResizing = 3 // of features
	// A node is divided at most so often.
	divideEvery = 50_000_000
	// An attempt of which nothing is known counts as the others that are not older.
	unknownLeft = 10_000_000_000
)

// follow notes that an attempt starts whose cores may change, at a log time.
func (a *action) follow(n *node, at *state.Attempt, now int64) {
	a.follows, a.anchor, a.used, a.since = a.wouldFollow(n) || n.Resizes && n.ShareAfterNS > 0 && a.canShare(), at.Anchor, 0, now
}

// canFollow: it can use other numbers of cores, and nobody has said that they are to stay.
func (a *action) canFollow() bool { return !a.Fixed && a.CoresMin < a.CoresMax && a.GPUs() == nil }

// wouldFollow: on a node its cores would follow what the node can spare.
func (a *action) wouldFollow(n *node) bool { return n.Resizes && a.canFollow() }

// neverWaits: it starts where it fits. In a pool with nodes that do not resize it may wait
// for one of those.
func (a *action) neverWaits(n *node) bool {
	others := a.Trajectory == 0 && slices.ContainsFunc(n.pool.nodes, func(o *node) bool { return !o.Resizes && o.usable() })
	return a.wouldFollow(n) && !others
}

// available is how many cores of a node a new attempt can have: those that are free, and
// what attempts have beyond the fewest that they can do with.
func (n *node) available() int {
	if !n.Resizes {
		return n.Free.Len()
	}
	left := n.CoreCount() - sharedLeast(n.Sharing)
	for _, a := range n.running {
		if a.follows && !a.shares && a.ice == state.IceNone {
			left -= int(a.CoresMin)
		} else {
			left -= a.cores.Len()
		}
	}
	return left
}

// canResize: from now on the node can resize attempts, or no longer. Those that run then
// keep their cores.
func (n *node) canResize(now bool) {
	if n.Resizes && !now {
		for _, a := range n.running {
			a.follows = false
		}
		n.Spare = 0
	}
	if !n.Resizes && now {
		n.Spare += uint32(max(0, n.Shared.Len()-sharedLeast(n.Sharing)))
	}
	n.Resizes = now
}

// isWideWhereItFollows: as long as it can use what it gets. How much that is is judged by
// the division. One that keeps its cores takes none from others beyond the fewest.
func (a *action) isWideWhereItFollows(n *node, available, got int) error {
	if int(a.CoresMin) > available || a.atMost(got) != got || !a.canFollow() && got > available {
		return fmt.Errorf("action %d was granted %d cores on node %s with %d available, which it cannot use", a.ID, got, n.Name, available)
	}
	return nil
}

// meanWidth is the mean number of cores that the attempt of an action has had, or its GPUs.
func (a *action) meanWidth(now int64) uint32 {
	age := uint64(max(0, now-a.StartedAt))
	switch {
	case a.GPUs() != nil:
		return a.chunk.Units
	case age == 0 || a.cores.Len() == 0:
		return max(1, uint32(a.cores.Len()))
	}
	return max(1, uint32((a.usedUntil(now)+age/2)/age))
}

// judgeDivisions judges the cores of all attempts that may have got others, and takes them
// over.
func (m *Model) judgeDivisions() error {
	for _, id := range slices.Sorted(maps.Keys(m.nodeByID)) {
		n, row := m.nodeByID[id], m.s.Node(id)
		if n.Resizes && n.State == state.NodeUp && row != nil && row.Incarnation == n.Incarnation {
			if err := m.judgeDivision(n, row); err != nil {
				return fmt.Errorf("node %s: %w", n.Name, err)
			}
		}
	}
	return nil
}

func (m *Model) judgeDivision(n *node, row *state.Node) error {
	divided := row.DividedAt != n.DividedAt
	if divided && (row.DividedAt != m.now || n.DividedAt > 0 && m.now-n.DividedAt < divideEvery) {
		return fmt.Errorf("it was divided at %d, at %d before, and it is %d", row.DividedAt, n.DividedAt, m.now)
	}
	n.DividedAt = row.DividedAt
	if err := n.judgeShared(m, row, divided || m.now == 0); err != nil {
		return err
	}
	free, spare := n.Cores().Minus(n.Shared), uint32(n.Shared.Len()-sharedLeast(n.Sharing))
	for _, a := range n.running {
		at := m.s.Attempt(n.ID, a.ID)
		if at == nil {
			return fmt.Errorf("action %d runs there and has no attempt", a.ID)
		}
		if at.Cores.Minus(free) != (state.CoreSet{}) {
			return fmt.Errorf("action %d has cores %v, of which only %v are there and no other's", a.ID, at.Cores.Slice(), free.Slice())
		}
		if err := a.goesOnWith(at, divided || m.now == 0, m.now); err != nil { // a division at log time 0 leaves no trace
			return err
		}
		free = free.Minus(at.Cores)
		spare += a.spare()
	}
	if err := n.thawsFirst(row); err != nil {
		return err
	}
	if row.Free != free || row.Spare != spare {
		return fmt.Errorf("cores %v are free and %d to spare, must be %v and %d", row.Free.Slice(), row.Spare, free.Slice(), spare)
	}
	n.Free, n.Spare = free, spare
	if n.pool.halted || m.s.HasWork() {
		return nil
	}
	if err := cmp.Or(m.idleCores(n, row), m.sharesSoon(n, row)); err != nil {
		return err
	}
	if divided {
		return m.fairShares(n)
	}
	return nil
}

// goesOnWith judges the cores of one attempt and takes them over. Only a division gives it
// more.
func (a *action) goesOnWith(at *state.Attempt, divided bool, now int64) error {
	had, has := a.cores.Len(), at.Cores.Len()
	switch {
	case a.frozen() && at.Cores != a.cores:
		return fmt.Errorf("action %d is frozen with cores %v, and has %v", a.ID, a.cores.Slice(), at.Cores.Slice())
	case a.frozen():
		return nil
	case a.shares:
		if at.Cores != (state.CoreSet{}) || at.Anchor != 0 || (at.Least != 0) != a.follows {
			return fmt.Errorf("action %d shares cores, and has %v to itself", a.ID, at.Cores.Slice())
		}
		return nil
	case !a.follows && (at.Cores != a.cores || at.Least != 0):
		return fmt.Errorf("action %d keeps its cores %v, and has %v", a.ID, a.cores.Slice(), at.Cores.Slice())
	case !a.follows:
		return nil
	case at.Least != a.CoresMin || has < int(a.CoresMin) || a.atMost(has) != has:
		return fmt.Errorf("action %d has %d cores, which it cannot use", a.ID, has)
	case at.Anchor != a.anchor || !at.Cores.Has(int(a.anchor)):
		return fmt.Errorf("action %d has cores %v without %d, with which it began", a.ID, at.Cores.Slice(), a.anchor)
	case has > had && !divided:
		return fmt.Errorf("action %d has %d cores and had %d, and its node was not divided", a.ID, has, had)
	}
	if at.Cores != a.cores {
		a.used = a.usedUntil(now)
		a.cores, a.since = at.Cores, now
	}
	return nil
}

// idleCores: no core is free that an attempt could use, unless the node is to be divided
// soon. One with a curve may gain nothing by it, and one of a namespace with limits may have no more.
func (m *Model) idleCores(n *node, row *state.Node) error {
	if row.DivideAt > 0 && row.DivideAt <= n.DividedAt+divideEvery {
		return nil
	}
	for _, a := range n.running {
		if a.follows && !a.shares && a.ice == state.IceNone && a.CancelReason == 0 && !a.hasCurve() && !m.limited(a.Namespace) && a.atMost(a.cores.Len()+n.Free.Len()) > a.cores.Len() {
			return fmt.Errorf("action %d has %d cores and could use some of the %d that are free; it is to be divided at %d, and was at %d",
				a.ID, a.cores.Len(), n.Free.Len(), row.DivideAt, n.DividedAt)
		}
	}
	return nil
}

// fairShares: of two attempts that can use the same cores, the one that is to get fewer has
// one core more than the other at most, and neither has if equally little is known of both.
func (m *Model) fairShares(n *node) error {
	for _, a := range n.running {
		for _, b := range n.running {
			if a.cores.Len() > b.cores.Len()+1 && a.comparable(b) && (m.alike(a, b) || m.shorter(a, b) && m.last(a) || m.shorter(b, a) && !m.last(a)) {
				return fmt.Errorf("action %d has %d cores and action %d has %d, which is to get as many at least", a.ID, a.cores.Len(), b.ID, b.cores.Len())
			}
		}
	}
	return nil
}

// comparable: both can use the same cores, with equal gain as far as is known.
func (a *action) comparable(b *action) bool {
	for _, x := range []*action{a, b} {
		if !x.follows || x.shares || x.ice != state.IceNone || x.CancelReason != 0 || x.Needs != nil && (len(x.Needs.Cores) > 0 || x.profile().Points != nil) {
			return false
		}
	}
	p, q := a.profile(), b.profile()
	if p.Serial && p.SerialPPM == 0 { // each core brings as much as any other: all divisions are equal
		return false
	}
	return a.CoresMin == b.CoresMin && a.CoresMax == b.CoresMax && p.Serial == q.Serial && p.SerialPPM == q.SerialPPM
}

// profile is what the client has said of how long the action takes.
func (a *action) profile() state.Profile {
	if a.Needs == nil || a.Needs.Profile == nil {
		return state.Profile{}
	}
	return *a.Needs.Profile
}

// last: the last action of its step is to end soon, not the mean one.
func (m *Model) last(a *action) bool {
	t := m.trajectories[a.Trajectory]
	return t != nil && t.Objective == state.ObjectiveStep
}

// alike: of neither it is known how long it takes. Then both objectives are one.
func (m *Model) alike(a, b *action) bool {
	return !a.timed() && !b.timed() && max(m.now-a.StartedAt, m.now-b.StartedAt) <= unknownLeft
}

// shorter: what a has left is certainly less than what b has, in the words of their
// clients, whatever cores they have had. They have the same objective, and no class that
// knows better.
func (m *Model) shorter(a, b *action) bool {
	x, y := a.profile().SingleNS, b.profile().SingleNS
	if m.last(a) != m.last(b) || a.class != nil || b.class != nil || x == 0 || y == 0 {
		return false
	}
	work := func(z *action) int64 { return (m.now - z.StartedAt) * int64(z.CoresMax) }
	return work(a) <= x && x < y-work(b)
}
