package sched

import (
	"math/bits"

	"rota/fsm/state"
	"rota/sched/scale"
)

// CurveOf returns the curve of a profile, nil if it has none.
func CurveOf(p *state.Profile) scale.Curve {
	switch {
	case p.Serial:
		return scale.Serial(p.SerialPPM)
	case len(p.Points) == 0:
		return nil
	}
	t := make(scale.Table, len(p.Points))
	for i, q := range p.Points {
		t[i] = scale.Point{Units: int32(q.Units), Ratio: q.Ratio}
	}
	return t
}

// DoPSetOf returns the degrees of its key resource that an action can use: GPUs
// if it has any, else cores.
func DoPSetOf(a *state.Action) scale.DoPSet {
	dops, err := dopSet(a)
	state.Assert(err == nil, "action %d: %v", a.ID, err)
	return dops
}

func dopSet(a *state.Action) (scale.DoPSet, error) {
	set := keySet(a)
	if len(set) == 0 {
		return scale.Range(int32(a.CoresMin), int32(a.CoresMax))
	}
	units := make([]int32, len(set))
	for i, u := range set {
		units[i] = int32(u)
	}
	return scale.Set(units...)
}

// keySet has the allowed degrees of the key resource, none if it is a range.
func keySet(a *state.Action) []uint32 {
	switch {
	case a.Needs == nil:
		return nil
	case a.Needs.GPUs != nil:
		return a.Needs.GPUs.Degrees
	}
	return a.Needs.Cores
}

// KeyUnits is how much of its key resource an attempt holds: GPUs if it has any,
// else cores.
func KeyUnits(t *state.Attempt) uint32 {
	if t.Chunk.Units > 0 {
		return t.Chunk.Units
	}
	return uint32(t.Cores.Len())
}

// demands finds out what actions want. It remembers what actions of a class want
// that have the same range, and what others want.
type demands struct {
	view *state.State
	// For look-up only.
	known   map[kind]scale.Demand
	own     map[state.ActionID]scale.Demand
	learned map[sizedClass][]scale.Seen
}

// sizedClass is what is learned by: a class, and how large an action of it is.
type sizedClass struct {
	class  state.ClassID
	octave uint32
}

func sizedClassOf(a *state.Action) sizedClass {
	return sizedClass{a.Class, uint32(bits.Len64(a.SizeHint))}
}

// kind is what demands by a class alone depend on.
type kind struct {
	sizedClass
	least, most uint32
}

// of returns what an action wants.
func (d *demands) of(a *state.Action) scale.Demand {
	profile := profileOf(a)
	if profile == nil && a.Class == 0 {
		return scale.Unknown(DoPSetOf(a))
	}
	if profile != nil || len(keySet(a)) > 0 {
		known, ok := d.own[a.ID]
		if !ok {
			if d.own == nil {
				d.own = make(map[state.ActionID]scale.Demand)
			}
			known = demandOf(DoPSetOf(a), profile, d.seen(a))
			d.own[a.ID] = known
		}
		return known
	}
	k := kind{sizedClassOf(a), a.CoresMin, a.CoresMax}
	if known, ok := d.known[k]; ok {
		return known
	}
	wants := demandOf(DoPSetOf(a), nil, d.seen(a))
	d.know(k, wants)
	return wants
}

// know remembers what actions want of which only the class is known.
func (d *demands) know(k kind, wants scale.Demand) {
	if d.known == nil {
		d.known = make(map[kind]scale.Demand)
	}
	d.known[k] = wants
}

// informed reports whether it is known how an action's duration changes with its
// units: without looking at how.
func (d *demands) informed(a *state.Action) bool {
	p, seen := profileOf(a), d.seen(a)
	if p == nil {
		return len(seen) > 1
	}
	return len(seen) > 1 || CurveOf(p) != nil && (p.SingleNS > 0 || len(seen) > 0)
}

func profileOf(a *state.Action) *state.Profile {
	if a.Needs == nil {
		return nil
	}
	return a.Needs.Profile
}

// seen returns what the class of an action has learned, of actions of its size.
func (d *demands) seen(a *state.Action) []scale.Seen {
	if a.Class == 0 {
		return nil
	}
	k := sizedClassOf(a)
	if seen, ok := d.learned[k]; ok {
		return seen
	}
	c := d.view.Class(a.Class)
	this, all := workOf(c, k.octave)
	seen := make([]scale.Seen, len(c.Seen))
	for i := range c.Seen {
		w := &c.Seen[i]
		ns := between(1, scale.DurationMax, state.MulDiv(uint64(w.MeanNS), this, all))
		seen[i] = scale.Seen{Units: int32(w.Units), NS: ns, Attempts: w.Weight()}
	}
	if d.learned == nil {
		d.learned = make(map[sizedClass][]scale.Seen)
	}
	d.learned[k] = seen
	return seen
}

// workOf returns how much work there is in an action of a size, and in one of the class on
// the average: as a ratio, which is 1 if nothing is known. Of a size that was never seen it is
// in proportion to the nearest that was.
func workOf(c *state.Class, octave uint32) (this, all uint64) {
	if octave == 0 || len(c.Sizes) < 2 {
		return 1, 1
	}
	nearest, away := c.Sizes[1], 64
	for _, s := range c.Sizes[1:] {
		if by := int(octave) - int(s.Octave); max(by, -by) < max(away, -away) {
			nearest, away = s, by
		}
	}
	this, all = uint64(nearest.MeanNS), uint64(c.Sizes[0].MeanNS)
	if away < 0 {
		return max(1, this>>-away), all
	}
	return min(this, 1<<63>>away) << away, all
}

// duration returns how long an action takes with a number of units, if that is known.
func (d *demands) duration(a *state.Action, units int32) (int64, bool) {
	p := profileOf(a)
	if a.Class == 0 && p == nil {
		return 0, false
	}
	if p != nil && p.SingleNS > 0 {
		if curve := CurveOf(p); curve != nil {
			return scale.With(curve, p.SingleNS, units), true
		}
	}
	k := kind{sizedClassOf(a), uint32(units), uint32(units)}
	if one, ok := d.known[k]; ok && p == nil {
		return one.Duration(units)
	}
	dops, err := scale.Range(units, units)
	state.Assert(err == nil, "action %d: %v", a.ID, err)
	one := demandOf(dops, p, d.seen(a))
	if p == nil {
		d.know(k, one)
	}
	return one.Duration(units)
}

// Work returns how long an action would have taken with one unit if it took ns with so many,
// by the curve that its client gave, or by the one that is assumed.
func Work(a *state.Action, units uint32, ns int64) int64 {
	return scale.Single(curveFor(a), int32(units), min(ns, scale.DurationMax))
}

// curveFor returns the curve of an action, or the one that is assumed.
func curveFor(a *state.Action) scale.Curve {
	if p := profileOf(a); p != nil {
		if c := CurveOf(p); c != nil {
			return c
		}
	}
	return scale.AssumedCurve
}

// demandOf puts together what a client and a class know. What the client says
// comes first; what it leaves out is taken from the class.
func demandOf(a scale.DoPSet, p *state.Profile, seen []scale.Seen) scale.Demand {
	if p == nil {
		p = &state.Profile{}
	}
	curve := CurveOf(p)
	d, err := scale.Unknown(a), error(nil)
	switch {
	case curve != nil && p.SingleNS > 0:
		d, err = scale.Scaled(a, curve, p.SingleNS)
	case curve != nil && len(seen) > 0:
		d, err = scale.Scaled(a, curve, singleBy(curve, seen[0]))
	case curve != nil:
	case p.SingleNS > 0 && len(seen) > 1:
		d, err = scale.Learned(a, rescaled(seen, p.SingleNS))
	case p.SingleNS > 0: // it is not known to be faster with its least degree
		d, err = scale.Rigid(a, p.SingleNS)
	case len(seen) > 1:
		d, err = scale.Learned(a, seen)
	case len(seen) == 1:
		d, err = scale.Rigid(a, learnedWith(a.Least(), seen))
	}
	state.Assert(err == nil, "a demand cannot be: %v", err)
	return d
}

// learnedWith returns how long an action takes with a number of units, by what was
// seen.
func learnedWith(units int32, seen []scale.Seen) int64 {
	one, err := scale.Range(units, units)
	state.Assert(err == nil, "%d units: %v", units, err)
	d, err := scale.Learned(one, seen)
	state.Assert(err == nil, "what a class has seen: %v", err)
	ns, _ := d.Duration(units)
	return ns
}

// singleBy returns how long an action takes with one unit by a curve, if it takes
// as long as was seen.
func singleBy(curve scale.Curve, seen scale.Seen) int64 {
	const trial = 1 << 50
	units, err := scale.Range(seen.Units, seen.Units)
	state.Assert(err == nil, "%d units: %v", seen.Units, err)
	d, err := scale.Scaled(units, curve, trial)
	state.Assert(err == nil, "a curve: %v", err)
	ns, _ := d.Duration(seen.Units)
	return between(1, scale.DurationMax, state.MulDiv(trial, uint64(seen.NS), uint64(ns)))
}

// rescaled returns what was seen, stretched so that it takes so long with one
// unit.
func rescaled(seen []scale.Seen, single int64) []scale.Seen {
	learned := learnedWith(1, seen)
	out := make([]scale.Seen, len(seen))
	for i, s := range seen {
		s.NS = between(1, scale.DurationMax, state.MulDiv(uint64(s.NS), uint64(single), uint64(learned)))
		out[i] = s
	}
	return out
}

func between(least, most int64, n uint64) int64 {
	return max(least, int64(min(n, uint64(most))))
}
