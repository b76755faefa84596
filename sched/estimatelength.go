package sched

import (
	"math/bits"

	"rota/fsm/state"
	"rota/sched/scale"
)

const (
	// draws is how many courses of events an estimate looks at. The middle one is its p50.
	draws = 15
	// drawOfP90 is the draw below which nine tenths of all are: each stands for its middle.
	drawOfP90 = 13
	// never is the end of what is not known to end.
	never = 1 << 62
	// million is the whole of a fraction.
	million = 1_000_000
)

// times has a time in each course of events, in nanoseconds from now.
type times [draws]int64

func always(ns int64) (out times) {
	for k := range out {
		out[k] = ns
	}
	return out
}

// plus adds a time to all that are known.
func (t times) plus(ns int64) times {
	for k := range t {
		if t[k] < never {
			t[k] += ns
		}
	}
	return t
}

// lengths says how long actions take, and how long those that run still do.
type lengths struct {
	demands
	now     int64
	learned map[sizedClass]*workQuantiles // for look-up only
	slow    map[slowness]int64            // for look-up only
}

// slowness is what the duration of a unit of work depends on, for most.
type slowness struct {
	serial scale.Serial
	units  int32
}

// chances draws where in the distribution of its class an action is: in parts per million,
// once in each fifteenth of it, in an order that only depends on the action (a Latin
// hypercube). So an action that waits for one other has exactly the quantiles of that one's
// class, and one that waits for many is not told that all of them are slow.
func chances(id state.ActionID) (out [draws]uint64) {
	for k := range out {
		out[k] = uint64(2*k+1) * million / (2 * draws)
	}
	seed := uint64(id)
	for k := draws - 1; k > 0; k-- {
		seed += 0x9e3779b97f4a7c15
		i, _ := bits.Mul64(mixed(seed), uint64(k+1))
		out[k], out[i] = out[i], out[k]
	}
	return out
}

// mixed is the finalizer of SplitMix64: each bit of the argument changes half of the result.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// whole returns how long an action that waits will take with a number of units of its key
// resource.
func (l *lengths) whole(a *state.Action, units int32) times {
	if q := l.quantiles(a); q != nil {
		out, slow := times{}, l.slowdown(a, units)
		for k, chance := range chances(a.ID) {
			out[k] = scaled(q.at(chance), slow)
		}
		return out
	}
	if ns, known := l.duration(a, units); known {
		return always(ns)
	}
	return always(never)
}

// left returns how long an attempt will go on with a number of units of its key resource.
func (l *lengths) left(a *state.Action, t *state.Attempt, units int32) times {
	if t.Stop {
		return times{}
	}
	had := int32(max(1, KeyUnits(t)))
	if t.ResizedAt > 0 {
		had = MeanWidth(t, l.now)
	}
	age := l.now - t.StartedAt - t.SetUpNS
	if q := l.quantiles(a); q != nil {
		out, slow := times{}, l.slowdown(a, units)
		rest := q.after(uint64(Work(a, uint32(had), between(1, scale.DurationMax, uint64(max(1, age))))))
		for k, chance := range chances(a.ID) {
			out[k] = scaled(rest.at(chance), slow)
		}
		return out.plus(max(0, -age))
	}
	all, known := l.duration(a, had)
	if !known {
		return always(never)
	}
	now, _ := l.duration(a, units)
	rest := overdue(all, max(0, age))
	return always(int64(state.MulDiv(uint64(rest), uint64(now), uint64(all)))).plus(max(0, -age))
}

// overdue returns what is left of a known duration. One that is overdue is assumed to need
// as long again as it is overdue.
func overdue(all, age int64) int64 { return max(all-age, age-all) }

// quantiles returns the distribution of the work in an action, nil if it is better known
// or not known at all.
func (l *lengths) quantiles(a *state.Action) *workQuantiles {
	if p := profileOf(a); a.Class == 0 || p != nil && p.SingleNS > 0 {
		return nil
	}
	key := sizedClassOf(a)
	q, found := l.learned[key]
	if !found {
		c := l.view.Class(a.Class)
		this, all := workOf(c, key.octave)
		q = quantilesOf(c.Lifetimes, this, all)
		if l.learned == nil {
			l.learned = make(map[sizedClass]*workQuantiles)
		}
		l.learned[key] = q
	}
	return q
}

// slowUnit is the time that slowdown is in parts of.
const slowUnit = 1 << 40

// slowdown returns how long an action takes with a number of units that takes slowUnit with
// one.
func (l *lengths) slowdown(a *state.Action, units int32) int64 {
	curve := curveFor(a)
	serial, simple := curve.(scale.Serial)
	key := slowness{serial, units}
	if ns, found := l.slow[key]; found && simple {
		return ns
	}
	dops, err := scale.Range(units, units)
	state.Assert(err == nil, "action %d: %v", a.ID, err)
	d, err := scale.Scaled(dops, curve, slowUnit)
	state.Assert(err == nil, "the curve of action %d: %v", a.ID, err)
	ns, _ := d.Duration(units)
	if simple {
		if l.slow == nil {
			l.slow = make(map[slowness]int64)
		}
		l.slow[key] = ns
	}
	return ns
}

// scaled returns how long some work takes.
func scaled(work uint64, slow int64) int64 {
	return between(0, scale.DurationMax, state.MulDiv(work, uint64(slow), slowUnit))
}
