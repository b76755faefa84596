package ledger

import (
	"cmp"
	"slices"
)

// interval is a time at which a group is held, from start until end.
type interval struct {
	start, end int64
	member     int32
}

// circle is the interval set of a group. Its members share one period, so all that
// is to be known of the horizon is one turn of it: busy intervals, disjoint and
// ascending. The last may end behind the period, in the next turn.
type circle struct {
	period int64
	busy   []interval
}

// layOut puts the segments of all members on the circle. It is false if two of them
// want the group at once.
func (c *circle) layOut(period int64, members []Reservation) bool {
	c.period, c.busy = period, c.busy[:0]
	for i := range members {
		r := &members[i]
		n := cycles(period, r.Cycle.Period)
		base := r.Anchor - begins(period, r.Index, n)
		for k := range n {
			for _, s := range r.Cycle.Segments {
				start := mod(base+begins(period, k, n)+s.Offset, period)
				c.busy = append(c.busy, interval{start, start + s.Length, int32(i)})
			}
		}
	}
	slices.SortFunc(c.busy, func(a, b interval) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		return cmp.Compare(a.member, b.member)
	})
	return c.disjoint()
}

func (c *circle) disjoint() bool {
	for i := range c.busy {
		if c.gap(i) < 0 {
			return false
		}
	}
	return true
}

// gap returns how long the group is free behind interval i.
func (c *circle) gap(i int) int64 {
	if i+1 < len(c.busy) {
		return c.busy[i+1].start - c.busy[i].end
	}
	return c.busy[0].start + c.period - c.busy[i].end
}

// after returns the index of the first interval that starts behind a point of the
// circle.
func (c *circle) after(x int64) int {
	lo, hi := 0, len(c.busy)
	for lo < hi {
		if mid := (lo + hi) / 2; c.busy[mid].start > x {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// neighbours returns the intervals around a point: the last that starts at it or
// before, and the first behind, as seen from it. There must be one.
func (c *circle) neighbours(x int64) (before, behind interval) {
	i := c.after(x)
	if i > 0 {
		before = c.busy[i-1]
	} else {
		before = c.busy[len(c.busy)-1]
		before.start -= c.period
		before.end -= c.period
	}
	if i < len(c.busy) {
		return before, c.busy[i]
	}
	behind = c.busy[0]
	behind.start += c.period
	behind.end += c.period
	return before, behind
}

// blocked returns by how much something that starts at slot t and is so long has to
// start later to be clear of what is in its way; 0 if nothing is. No start between
// is better: it would still meet the same interval.
func (c *circle) blocked(t, length int64) int64 {
	if len(c.busy) == 0 {
		return 0
	}
	x := mod(t, c.period)
	before, behind := c.neighbours(x)
	switch {
	case behind.start < x+length:
		return behind.end - x
	case before.end > x:
		return before.end - x
	}
	return 0
}

// earliest returns the least shift from one to another, both included, with which a
// job whose cycle of this index would start at slot t fits for good (equation 2), and
// how many shifts were tried. Shifts between those tried all meet what the one before
// them met.
func (c *circle) earliest(cycle Cycle, index, t, from, to int64) (shift int64, tried int64, ok bool) {
	for shift = from; shift <= to; {
		tried++
		wait := c.wait(cycle, index, t+shift)
		if wait == 0 {
			return shift, tried, true
		}
		shift += wait
	}
	return shift, tried, false
}

// wait returns the most that any segment has to wait for the group, of a job whose
// cycle of this index starts at slot t.
func (c *circle) wait(cycle Cycle, index, t int64) (slots int64) {
	n := cycles(c.period, cycle.Period)
	base := t - begins(c.period, index, n)
	for k := range n {
		start := base + begins(c.period, k, n)
		for _, s := range cycle.Segments {
			slots = max(slots, c.blocked(start+s.Offset, s.Length))
		}
	}
	return slots
}

// held returns for how many slots of a period the group is held.
func (c *circle) held() (slots int64) {
	for i := range c.busy {
		slots += c.busy[i].end - c.busy[i].start
	}
	return slots
}
