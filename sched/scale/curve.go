package scale

import (
	"errors"
	"fmt"
	"math/bits"
)

// Whole is a ratio of one, in parts per million.
const Whole = 1_000_000

// fraction is how many bits of a nanosecond durations have while a table of them
// is built. A duration has 52 bits before them, so that all fits 63.
const fraction = 11

// Curve is the elasticity E of an action, in one of two forms: as it falls short
// of a perfect speed-up,
//
//	duration(m) = duration(1) / (E(m) * m)    (§4.1, equation 1)
type Curve interface {
	// Check says what is wrong with the curve.
	Check() error
	// at returns the duration with m units, in fractions, of one that takes ns
	// with a single unit.
	at(ns int64, m int32) uint64
}

// Serial is Amdahl's law: the part of the work, in parts per million, that does
// not get faster. E(m) is 1 / (Serial*m + 1 - Serial).
type Serial int64

// Check implements Curve.
func (s Serial) Check() error {
	if s < 0 || s > Whole {
		return fmt.Errorf("the serial fraction is %d ppm, and must be between 0 and %d", int64(s), Whole)
	}
	return nil
}

func (s Serial) at(ns int64, m int32) uint64 {
	share := uint64(s)*uint64(m) + uint64(Whole-s)
	return ratio(uint64(ns)<<fraction, share, Whole*uint64(m))
}

// Point is one entry of a table: the ratio E with a number of units, in parts per
// million.
type Point struct {
	Units int32
	Ratio int64
}

// Table is a curve by its points, in ascending order. Between two of them the
// speed-up E(m)*m is a straight line; after the last it stays. If it does not say
// so, E(1) is 1.
type Table []Point

// Check implements Curve. A curve on which more units would be slower is refused.
func (t Table) Check() error {
	if len(t) == 0 {
		return errors.New("the speed-up table is empty")
	}
	last, speed := int32(0), int64(Whole)
	for _, p := range t {
		switch {
		case p.Units <= last:
			return fmt.Errorf("the speed-up table must ascend: %d units come after %d", p.Units, last)
		case p.Units > UnitsMax:
			return fmt.Errorf("the speed-up table has %d units, and may have at most %d", p.Units, UnitsMax)
		case p.Ratio < 1 || p.Ratio > Whole:
			return fmt.Errorf("the ratio for %d units is %d ppm, and must be between 1 and %d", p.Units, p.Ratio, Whole)
		case p.Units == 1 && p.Ratio != Whole:
			return fmt.Errorf("the ratio for 1 unit is %d ppm, and is %d by definition", p.Ratio, Whole)
		case p.Ratio*int64(p.Units) < speed:
			return fmt.Errorf("%d units would be slower than %d", p.Units, max(last, 1))
		}
		last, speed = p.Units, p.Ratio*int64(p.Units)
	}
	return nil
}

func (t Table) at(ns int64, m int32) uint64 {
	before := Point{1, Whole}
	for _, p := range t {
		if p.Units >= m {
			return ratio(uint64(ns)<<fraction, Whole, between(before, p, m))
		}
		before = p
	}
	return ratio(uint64(ns)<<fraction, Whole, before.speed())
}

// speed returns the speed-up at a point, in parts per million.
func (p Point) speed() uint64 { return uint64(p.Ratio) * uint64(p.Units) }

// between returns the speed-up with m units, on the line from a to b.
func between(a, b Point, m int32) uint64 {
	if m == b.Units {
		return b.speed()
	}
	run := uint64(b.Units - a.Units)
	return a.speed() + ratio(b.speed()-a.speed(), uint64(m-a.Units), run)
}

// ratio returns a*b/c, rounded down, for results of 64 bits.
func ratio(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// Single returns how long an action takes with one unit that takes ns with so many, by a
// curve.
func Single(c Curve, units int32, ns int64) int64 {
	const trial = 1 << 40
	return bounded(uint64(ns), trial<<fraction, c.at(trial, units))
}

// With returns how long an action takes with a number of units that takes ns with one, by a
// curve: the least duration of Scaled.
func With(c Curve, ns int64, units int32) int64 {
	return int64((c.at(ns, units) + 1<<fraction - 1) >> fraction)
}

// Scaled is the demand of an action that takes ns nanoseconds with one unit and
// speeds up along a curve.
//
// The first duration is rounded up, and what each further degree saves is
// rounded down. So a convex curve stays convex in whole nanoseconds, which
// rounding each duration by itself would spoil, and no duration is too short. It
// is too long by at most one nanosecond for each degree below it.
func Scaled(a DoPSet, c Curve, ns int64) (Demand, error) {
	if ns < 1 || ns > DurationMax {
		return Demand{}, fmt.Errorf("the duration with 1 unit is %d ns, and must be between 1 and %d", ns, int64(DurationMax))
	}
	if err := c.Check(); err != nil {
		return Demand{}, err
	}
	table := make([]int64, a.Len())
	last := c.at(ns, a.At(0))
	table[0] = With(c, ns, a.At(0))
	for i := 1; i < len(table); i++ {
		is := c.at(ns, a.At(i))
		if is > last {
			is = last // the line between two points was rounded down
		}
		table[i] = max(1, table[i-1]-int64((last-is)>>fraction))
		last = is
	}
	return NewDemand(a, table)
}
