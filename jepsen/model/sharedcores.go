package model

import (
	"fmt"

	"rota/fsm/state"
)

// Shared cores: when others wait for cores, all attempts of a node that have run for long give up theirs, and
// share some until they end or are frozen.

const (
	// Eight of them have the share of one attempt that does not.
	sharersPerCore = 8
	// Where some may share cores and do not, their node is looked at again at the latest then.
	shareLooksAgain = 10_000_000_000
)

// sharedLeast is how many cores so many attempts share at least.
func sharedLeast(sharing uint32) int {
	least := int(sharing) / sharersPerCore
	if int(sharing)%sharersPerCore > 0 {
		least++
	}
	return least
}

// usedUntil is what the attempt of an action has had of cores until a log time, in core nanoseconds.
func (a *action) usedUntil(now int64) uint64 {
	passed := uint64(max(0, now-a.since))
	if a.shares {
		return a.used + passed/sharersPerCore
	}
	return a.used + passed*uint64(a.cores.Len())
}

// mayShare: an action of the node is old enough to share cores, and can do with one.
func (a *action) mayShare(n *node, now int64) bool {
	return n.Resizes && n.ShareAfterNS > 0 && now-a.StartedAt >= n.ShareAfterNS && a.follows && a.CoresMin == 1 &&
		!a.shares && a.pause == 0 && a.CancelReason == 0
}

// canShare: it can do with one core, and nobody has said that it is to keep that.
func (a *action) canShare() bool { return a.CoresMin == 1 && !a.Fixed && a.GPUs() == nil }

// sharesLess: an action shares no cores any more, as it has ended or is frozen. When none does, the cores
// are free.
func (n *node) sharesLess(a *action) {
	if !a.shares {
		return
	}
	a.shares = false
	n.Sharing--
	if n.Sharing == 0 {
		n.Free = n.Free.Union(n.Shared)
		n.Shared, n.SharedAnchor = state.CoreSet{}, 0
	}
	n.Spare = 0 // known again when the entry is over
	for _, b := range n.running {
		if b != a {
			n.Spare += b.spare()
		}
	}
	if n.Resizes {
		n.Spare += uint32(max(0, n.Shared.Len()-sharedLeast(n.Sharing)))
	}
}

// judgeShared judges who shares cores of a node now, and which, and takes both over.
func (n *node) judgeShared(m *Model, row *state.Node, divided bool) error {
	begin, before := 0, n.Sharing
	for _, a := range n.running {
		at := m.s.Attempt(n.ID, a.ID)
		switch {
		case at == nil || at.Shares == a.shares:
			continue
		case a.shares:
			return fmt.Errorf("action %d does not share cores any more", a.ID)
		case !divided || !a.mayShare(n, m.now):
			return fmt.Errorf("action %d began to share cores at the age of %d, and its node was divided: %v", a.ID, m.now-a.StartedAt, divided)
		}
		a.used = a.usedUntil(m.now)
		a.cores, a.since, a.shares, a.anchor = state.CoreSet{}, m.now, true, 0
		m.touchAction(a)
		n.Sharing++
		begin++
	}
	if begin > 0 {
		if err := n.judgeBegin(m, begin, before); err != nil {
			return err
		}
	}
	n.sharedFrom(row)
	if had := n.Shared; had != (state.CoreSet{}) && row.Shared != had && !divided && row.Shared.Minus(had) != (state.CoreSet{}) {
		return fmt.Errorf("cores %v are shared and %v were, and the node was not divided", row.Shared.Slice(), had.Slice())
	}
	n.Shared = row.Shared
	least := sharedLeast(n.Sharing)
	if row.Sharing != n.Sharing || n.Shared.Len() < least || (n.Sharing == 0) != (n.Shared.Len() == 0) || row.SharedAnchor != n.SharedAnchor ||
		n.Sharing > 0 && !n.Shared.Has(int(n.SharedAnchor)) || n.Shared.Minus(n.Cores()) != (state.CoreSet{}) {
		return fmt.Errorf("%d share cores %v with %d, must be %d and at least %d with %d", row.Sharing, row.Shared.Slice(), row.SharedAnchor, n.Sharing, least, n.SharedAnchor)
	}
	return nil
}

// sharedFrom: the core that stays shared is known when the first begin to share.
func (n *node) sharedFrom(row *state.Node) {
	if n.Shared == (state.CoreSet{}) && n.Sharing > 0 && row.Shared != (state.CoreSet{}) {
		n.SharedAnchor = row.Shared.First(1).Slice()[0]
	}
}

// judgeBegin: attempts begin to share all together, for others that wait, and only if that leaves more cores.
func (n *node) judgeBegin(m *Model, begin int, before uint32) error {
	for _, a := range n.running {
		if a.mayShare(n, m.now) {
			return fmt.Errorf("%d began to share cores, and action %d did not", begin, a.ID)
		}
	}
	switch {
	case begin <= sharedLeast(n.Sharing)-sharedLeast(before):
		return fmt.Errorf("%d began to share cores, and %d did before: that frees none", begin, before)
	case len(n.queue.waiting) == 0 && len(n.pool.queue.waiting) == 0:
		return fmt.Errorf("%d began to share cores, and nobody waits", begin)
	}
	return nil
}

// sharesSoon: as long as attempts could share cores and do not, their node is to be looked at again.
func (m *Model) sharesSoon(n *node, row *state.Node) error {
	if n.Thawing > 0 || row.Thawing > 0 {
		return nil
	}
	for _, a := range n.running {
		if a.mayShare(n, m.now) && (row.DivideAt == 0 || row.DivideAt > m.now+shareLooksAgain) {
			return fmt.Errorf("action %d may share cores, and its node is to be divided at %d", a.ID, row.DivideAt)
		}
	}
	return nil
}

// availableByNow is what a node had to give if those that began to share cores in this entry did so before
// anything started: a division that an entry left to the next one comes first.
func (m *Model) availableByNow(n *node) int {
	left, sharing := n.CoreCount(), uint32(0)
	for _, a := range n.running {
		at := m.s.Attempt(n.ID, a.ID)
		switch {
		case a.shares || at != nil && at.Shares:
			sharing++
		case a.follows && a.ice == state.IceNone:
			left -= int(a.CoresMin)
		default:
			left -= a.cores.Len()
		}
	}
	return left - sharedLeast(sharing)
}
