package ledger

import (
	"errors"
	"fmt"
	"math/bits"
)

const (
	// SlotsMax bounds the horizon, and with it all sums of slots.
	SlotsMax = 1 << 20
	// NodesMax bounds how many nodes there are together.
	NodesMax = 1 << 24
	// segmentsMax bounds how often a job takes turns in a cycle.
	segmentsMax = 64
	// million is the whole of what is counted in parts per million.
	million = 1_000_000
)

// Segment is a part of a cycle in which a job holds its group, in slots: set-up
// and operation together.
type Segment struct {
	Offset int64 // from the start of the cycle
	Length int64
	Nodes  int64 // how many nodes of the group work; it is held whole
}

// End returns the offset at which the segment is over.
func (s Segment) End() int64 { return s.Offset + s.Length }

// Cycle is what a job needs of its group, again and again.
type Cycle struct {
	Period   int64
	Segments []Segment
}

// dedicated is the cycle of a job whose cycle is not known yet: its group, always.
func dedicated(nodes int64) Cycle { return Cycle{1, []Segment{{0, 1, nodes}}} }

// Validate says what is wrong with a cycle, for a horizon of that many slots.
func (c Cycle) Validate(slots int64) error {
	switch {
	case c.Period < 1:
		return fmt.Errorf("the period is %d slots, and must be at least 1", c.Period)
	case c.Period > slots:
		return fmt.Errorf("the period is %d slots, and the horizon has %d: use coarser slots or a longer horizon", c.Period, slots)
	case len(c.Segments) == 0:
		return errors.New("the cycle has no segments: a job that needs no nodes needs no reservation")
	case len(c.Segments) > segmentsMax:
		return fmt.Errorf("the cycle has %d segments, at most %d are allowed: put neighbours together", len(c.Segments), segmentsMax)
	}
	end := int64(0)
	for i, s := range c.Segments {
		switch {
		case s.Offset < 0:
			return fmt.Errorf("segment %d starts at %d, before the cycle does", i, s.Offset)
		case s.Length < 1:
			return fmt.Errorf("segment %d is %d slots long, and must be at least 1", i, s.Length)
		case s.Nodes < 1 || s.Nodes > NodesMax:
			return fmt.Errorf("segment %d needs %d nodes, and must need 1 to %d", i, s.Nodes, NodesMax)
		case s.Offset < end:
			return fmt.Errorf("segment %d starts at %d, and the one before ends at %d: segments ascend and do not overlap", i, s.Offset, end)
		case s.Length > c.Period || s.Offset > c.Period-s.Length:
			return fmt.Errorf("segment %d ends behind the period of %d slots", i, c.Period)
		}
		end = s.End()
	}
	return nil
}

// Held returns for how many slots of a cycle the group is held.
func (c Cycle) Held() (slots int64) {
	for _, s := range c.Segments {
		slots += s.Length
	}
	return slots
}

// Width returns the most nodes of any segment.
func (c Cycle) Width() (nodes int64) {
	for _, s := range c.Segments {
		nodes = max(nodes, s.Nodes)
	}
	return nodes
}

// cycles returns how many cycles of this length are done in a group's period.
func cycles(group, period int64) int64 { return group / period }

// begins returns where the i-th of n cycles begins in a group's period. The slots
// that n does not divide are spread among them.
func begins(group, i, n int64) int64 { return group * i / n }

// stretch returns by how much a cycle is longer in a group's period, in ppm.
func stretch(group, period int64) int64 {
	whole := cycles(group, period) * period
	return ppm(group-whole, whole)
}

// ppm returns a/b in parts per million, rounded up, of slots in a horizon.
func ppm(a, b int64) int64 { return (a*million + b - 1) / b }

// mulDivUp returns a*b/c rounded up, with a product of 128 bits between. None may be
// negative, and the quotient must fit.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c)-1, 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(c))
	return int64(q)
}

// mod returns the remainder that is not negative.
func mod(a, n int64) int64 {
	if a %= n; a < 0 {
		a += n
	}
	return a
}
