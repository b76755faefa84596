package scale

import "fmt"

// DurationMax bounds durations, in nanoseconds: 52 days.
const DurationMax = 1 << 52

// Demand is what one action wants of its key resource: the degrees that it can
// use and, as far as known, how long it takes with each.
type Demand struct {
	dops   DoPSet
	ns     []int64 // for each degree, for the least alone, or for none
	convex bool    // contiguous, and each unit saves at most what the one before did
}

// Unknown is the demand of an action whose duration is unknown.
func Unknown(a DoPSet) Demand { return Demand{dops: a, convex: true} }

// Rigid is the demand of an action that is known to take ns nanoseconds with its
// least degree, and of which it is unknown what more would bring.
func Rigid(a DoPSet, ns int64) (Demand, error) {
	return NewDemand(a, []int64{ns})
}

// NewDemand is the demand of an action that takes ns[i] nanoseconds with the i-th
// degree. More must never take longer: see Monotone. It keeps ns.
func NewDemand(a DoPSet, ns []int64) (Demand, error) {
	if len(ns) != a.Len() && len(ns) != 1 {
		return Demand{}, fmt.Errorf("%d durations for %d degrees", len(ns), a.Len())
	}
	for i, d := range ns {
		switch {
		case d < 1:
			return Demand{}, fmt.Errorf("the duration with %d units is %d ns, and must be at least 1", a.At(i), d)
		case d > DurationMax:
			return Demand{}, fmt.Errorf("the duration with %d units is %d ns, and may be at most %d", a.At(i), d, int64(DurationMax))
		case i > 0 && d > ns[i-1]:
			return Demand{}, fmt.Errorf("%d units take %d ns, which is longer than %d ns with %d", a.At(i), d, ns[i-1], a.At(i-1))
		}
	}
	return Demand{dops: a, ns: ns, convex: len(ns) == 1 || a.Contiguous() && Convex(ns)}, nil
}

// Convex reports whether each duration is less than the one before by at most as
// much as that one is less than its own: more units bring less and less.
func Convex(ns []int64) bool {
	for i := 2; i < len(ns); i++ {
		if ns[i-1]-ns[i] > ns[i-2]-ns[i-1] {
			return false
		}
	}
	return true
}

// DoPSet returns the allowed degrees.
func (d *Demand) DoPSet() DoPSet { return d.dops }

// Duration returns how long the action takes with a number of units, and whether
// that is known. If no more is known than for the least degree, it is that.
func (d *Demand) Duration(units int32) (ns int64, known bool) {
	switch {
	case len(d.ns) == 0:
		return 0, false
	case len(d.ns) == 1:
		return d.ns[0], true
	}
	if d.dops.Contiguous() {
		return d.ns[min(max(0, int(units-d.dops.least)), len(d.ns)-1)], true
	}
	i := 0
	for i+1 < len(d.ns) && d.dops.At(i+1) <= units {
		i++
	}
	return d.ns[i], true
}

// Convex reports whether marginal allocation is exact for the demand.
func (d *Demand) Convex() bool { return d.convex }

// Elastic reports whether more units are known to help.
func (d *Demand) Elastic() bool {
	return len(d.ns) > 1 && d.ns[len(d.ns)-1] < d.ns[0]
}

// Rigid reports whether it is unknown what more than the least degree would bring.
func (d *Demand) Rigid() bool { return len(d.ns) < d.dops.Len() }

// upTo is the demand without the degrees after the i-th.
func (d *Demand) upTo(i int) Demand {
	a := d.dops
	a.most = a.At(i)
	if a.set != nil {
		a.set = a.set[:i+1]
	}
	return Demand{dops: a, ns: d.ns[:i+1], convex: d.convex}
}

// choices returns how many degrees are worth a choice: one if it is unknown what
// more would bring.
func (d *Demand) choices() int { return max(1, len(d.ns)) }

// duration returns how long the action takes with its i-th degree, or what
// stands for unknown durations.
func (d *Demand) duration(i int, unknown int64) int64 {
	if len(d.ns) == 0 {
		return unknown
	}
	return d.ns[i]
}

// DurationAt returns how long the action takes with its i-th degree, false if that
// is not known.
func (d *Demand) DurationAt(i int) (ns int64, known bool) {
	if i < 0 || i >= len(d.ns) {
		return 0, false
	}
	return d.ns[i], true
}

// Mean returns the mean known duration of the queue with the least degrees; 0 if
// none is known.
func Mean(queue []Demand) int64 { return mean(queue) }
