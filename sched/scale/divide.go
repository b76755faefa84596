package scale

import (
	"fmt"
	"math/bits"
)

// WeightMax bounds weights.
const WeightMax = 1 << 20

// Worth returns a demand whose cost falls by as much as the action's progress is worth
// with more units: its speed-up in parts per million, times a weight. So the arrangement of
// least cost is the division of the greatest sum of weighted speed-ups, and an Arranger
// finds it, for actions that run as for those that could start.
//
// The speed-up is to one unit, and perfect up to the least degree. More than a perfect one
// is not believed: attempts were lucky. Where more units bring
// more than those before, it follows the line to the degree that is worth most: the least
// concave line above it. Over a range the division is then that of equal marginal worth.
//
// The weight, from 1 to WeightMax, is what a client gains if the action progresses: more
// for one that ends soon. An action of which nothing more than one duration is known is
// worth nothing with more units; see AssumedCurve.
func (d *Demand) Worth(weight int64) (Demand, error) {
	g, err := d.Gains()
	if err != nil {
		return Demand{}, err
	}
	return g.Worth(weight)
}

// Gains are what of Demand.Worth does not depend on the weight.
type Gains struct {
	dops   DoPSet
	behind []int64 // by degree: how much less the speed-up is than with the most; nil: none is known
	convex bool
}

// Gains returns what more units bring.
func (d *Demand) Gains() (Gains, error) {
	if len(d.ns) < 2 {
		return Gains{dops: d.dops, convex: true}, nil
	}
	speed := d.speeds()
	if d.dops.Contiguous() {
		concave(speed)
	}
	last := speed[len(speed)-1]
	if last > DurationMax/WeightMax-1 {
		return Gains{}, fmt.Errorf("a speed-up by %d is too much to compare", last/Whole)
	}
	for i, s := range speed {
		speed[i] = last - s
	}
	return Gains{dops: d.dops, behind: speed, convex: d.dops.Contiguous() && Convex(speed)}, nil
}

// Worth is Demand.Worth.
func (g *Gains) Worth(weight int64) (Demand, error) {
	if weight < 1 || weight > WeightMax {
		return Demand{}, fmt.Errorf("the weight is %d, and must be between 1 and %d", weight, WeightMax)
	}
	costs := make([]int64, max(1, len(g.behind)))
	costs[0] = 1
	for i, b := range g.behind {
		costs[i] = 1 + weight*b
	}
	return Demand{dops: g.dops, ns: costs, convex: g.convex}, nil
}

// speeds returns the speed-up with each degree, in parts per million.
func (d *Demand) speeds() []int64 {
	least := uint64(d.dops.least) * Whole
	speed := make([]int64, len(d.ns))
	for i, ns := range d.ns {
		speed[i] = min(bounded(least, uint64(d.ns[0]), uint64(ns)), int64(d.dops.At(i))*Whole)
	}
	return speed
}

// concave raises values to the least concave line above them, so that the difference from
// one to the next never grows. Values on the line are rounded down, and differences with
// them.
func concave(v []int64) {
	corners := make([]int, 0, len(v)) // of the line
	for i := range v {
		for n := len(corners); n > 1; n = len(corners) {
			a, b := corners[n-2], corners[n-1]
			if (v[b]-v[a])*int64(i-a) > (v[i]-v[a])*int64(b-a) {
				break
			}
			corners = corners[:n-1]
		}
		corners = append(corners, i)
	}
	was, last := v[0], v[0] // at the last corner: as it was, and lowered
	for k := range len(corners) - 1 {
		a, b := corners[k], corners[k+1]
		step := (v[b] - was) / int64(b-a)
		was = v[b]
		for i := a + 1; i <= b; i++ {
			last += step
			v[i] = last
		}
	}
}

// AssumedCurve is assumed of an action of which it is unknown what more units bring. All
// that follows from it is that equals get equal shares, and that one more unit is worth
// more to who has few.
const AssumedCurve = Serial(Whole / 20)

// Weight returns the weight of an action that is expected to go on for so many
// nanoseconds: WeightMax times (2^10 ns / remaining)^(3/10), as a power of 2 that is a
// multiple of 1/8. An action that ends soon frees its units soon, so units are worth more
// to it; how much more is a compromise with knowing the remaining time badly, and with
// those that wait for the longest action of a step. See docs/scheduling.md.
func Weight(remaining int64) int64 {
	steps := (log2(max(remaining, 1<<10)) - 10*eighths) * 3 / 10
	down := -steps & (eighths - 1) // up again, to the eighth
	return int64(WeightMax * octave[down] >> 16 >> ((steps + down) / eighths))
}

// StepWeight returns the weight of an action of which not the mean completion is to be soon,
// but that of the last one of many: the reciprocal of Weight, and the same as Weight for an
// action that is expected to go on for 10 s.
func StepWeight(remaining int64) int64 {
	even := Weight(10_000_000_000)
	return even * even / Weight(remaining)
}

// eighths are the parts of an octave.
const eighths = 8

// log2 returns the logarithm of a positive number, rounded down, in eighths.
func log2(n int64) int {
	whole := bits.Len64(uint64(n)) - 1
	mantissa := uint64(n) << (63 - whole) >> 47 // from 2^16 on, below 2^17
	part := 0
	for part+1 < eighths && mantissa >= octave[part+1] {
		part++
	}
	return whole*eighths + part
}

// octave has 2^(i/8) in 65,536ths.
var octave = [eighths]uint64{65536, 71468, 77936, 84990, 92682, 101070, 110218, 120194}
