package ledger

import (
	"errors"
	"fmt"
)

// Turn is when a job really held its group, in nanoseconds of log time.
type Turn struct {
	Start, End int64
	Nodes      int64
}

// Cover returns how many slots it takes to cover a duration; of a time, the first slot
// that starts then or later. Neither is negative.
func Cover(slotNS, ns int64) int64 { return ns/slotNS + min(1, ns%slotNS) }

// Profile makes a cycle of the turns of one that ran cleanly, from the start of the
// first to when the next cycle was ready. Turns are rounded outwards to slots, so
// what is reserved covers what ran; those that touch then become one, with the nodes
// of the wider.
func Profile(slotNS int64, turns []Turn, next int64) (Cycle, error) {
	if slotNS < 1 {
		return Cycle{}, fmt.Errorf("a slot lasts %d ns, and must last at least 1", slotNS)
	}
	if len(turns) == 0 {
		return Cycle{}, errors.New("a cycle without turns has no profile")
	}
	var c Cycle
	from, last := turns[0].Start, turns[0].Start
	for i, t := range turns {
		if t.Start < last || t.End <= t.Start {
			return Cycle{}, fmt.Errorf("turn %d is from %d to %d ns, and the one before ends at %d", i, t.Start, t.End, last)
		}
		last = t.End
		start := (t.Start - from) / slotNS
		end := Cover(slotNS, t.End-from)
		if n := len(c.Segments); n > 0 && start <= c.Segments[n-1].End() {
			before := &c.Segments[n-1]
			before.Length = max(before.Length, end-before.Offset)
			before.Nodes = max(before.Nodes, t.Nodes)
			continue
		}
		c.Segments = append(c.Segments, Segment{start, end - start, t.Nodes})
	}
	if next < last {
		return Cycle{}, fmt.Errorf("the next cycle is ready at %d ns, before this one ends at %d", next, last)
	}
	c.Period = max(Cover(slotNS, next-from), c.Segments[len(c.Segments)-1].End())
	return c, nil
}
