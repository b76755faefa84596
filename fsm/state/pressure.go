package state

import (
	"cmp"
	"slices"
)

// Adaptive quotas learn from calls that their provider refuses: additive increase and
// multiplicative decrease, as TCP's congestion avoidance, of each key by itself.
const (
	// unitPressure is a unit in those of Pressure.Limit, so that steps can be small.
	unitPressure = 1000
	// pressureSteps is in how many steps a limit of 1 would grow to the whole. A step takes
	// as many units of successful calls as may be in use.
	pressureSteps = 20
	// PauseNSMax bounds pauses. The units of a longer window are not cut, only paused: less
	// of them would be less until the window has passed.
	PauseNSMax = 600_000_000_000
	// pauseNSMin is the pause after a refusal that did not say how long. It doubles with
	// each further one in a row, pauseDoublings times at most.
	pauseNSMin     = 1_000_000_000
	pauseDoublings = 6
)

// Pressure is what was learned of a key of an adaptive quota.
type Pressure struct {
	Key uint32
	// Limit is in thousandths of a unit: at least one unit, at most the quota's limit.
	Limit uint64
	// PausedUntil is the log time from which units are granted again. Only an attempt that
	// began later says something new: earlier ones met the state that led to the pause.
	PausedUntil int64
	// Refusals counts those in a row.
	Refusals uint32
}

// Refused returns the row after a provider refused calls of an attempt that began at a log
// time, and asked to wait; 0: it did not say how long.
func (r *Quota) Refused(key uint32, began, now, retryNS int64) *Quota {
	q := *r
	q.Throttled++
	retryNS = min(retryNS, PauseNSMax)
	p := r.pressure(key)
	if fresh := began >= p.PausedUntil; r.Adaptive && (fresh || retryNS > 0) {
		if fresh {
			p.cut(r)
			retryNS = cmp.Or(retryNS, pauseNSMin<<min(p.Refusals-1, pauseDoublings))
		}
		p.PausedUntil = max(p.PausedUntil, now+retryNS)
		q.Pressures = r.withPressure(p)
		q.WakeAt = q.nextWake(now)
	}
	return &q
}

// cut counts a refusal, and halves what may be in use.
func (p *Pressure) cut(r *Quota) {
	p.Refusals = min(p.Refusals+1, pauseDoublings+1)
	if r.WindowNS <= PauseNSMax {
		p.Limit = max(unitPressure, p.Limit/2)
	}
}

// Succeeded returns the row after an attempt with units of a key succeeded that began at a
// log time.
func (r *Quota) Succeeded(key, units uint32, began, now int64) *Quota {
	p := r.pressure(key)
	if began < p.PausedUntil || !r.pressed(key) {
		return r
	}
	whole := uint64(r.Limit) * unitPressure
	p.Refusals = 0
	p.Limit = min(whole, p.Limit+max(1, MulDiv(whole/pressureSteps, uint64(units)*unitPressure, p.Limit)))
	q := *r
	if q.Pressures = r.withPressure(p); p.Limit == whole {
		q.Pressures = slices.DeleteFunc(q.Pressures, func(o Pressure) bool { return o.Key == key })
	}
	return q.Rested(now)
}

// Rested returns the row at a log time at which a pause may be over.
func (r *Quota) Rested(now int64) *Quota {
	q := *r
	q.WakeAt = q.nextWake(now)
	return &q
}

// Forgetful returns the row without anything that was learned.
func (r *Quota) Forgetful() *Quota {
	q := *r
	q.Pressures, q.WakeAt = nil, 0
	return &q
}

// nextWake is when the next pause is over, 0 if there is none.
func (r *Quota) nextWake(now int64) (at int64) {
	for _, p := range r.Pressures {
		if p.PausedUntil > now && (at == 0 || p.PausedUntil < at) {
			at = p.PausedUntil
		}
	}
	return at
}

// Effective returns how many units of a key may be in use, at most the limit.
func (r *Quota) Effective(key uint32) uint32 { return r.pressure(key).units(r) }

// units is how many may be in use.
func (p Pressure) units(r *Quota) uint32 { return uint32(min(uint64(r.Limit), p.Limit/unitPressure)) }

// PausedUntil returns the log time from which units of a key are granted again.
func (r *Quota) PausedUntil(key uint32) int64 { return r.pressure(key).PausedUntil }

// AllEffective returns how many units of all keys may be in use, paused ones too.
func (r *Quota) AllEffective() (units uint64) {
	for key := range r.Keys {
		units += uint64(r.Effective(key))
	}
	return units
}

// PausedForAll returns the log time from which units of any key are granted again.
func (r *Quota) PausedForAll() (until int64) {
	until = r.PausedUntil(0)
	for key := range r.Keys {
		until = min(until, r.PausedUntil(key))
	}
	return until
}

// Free returns how many units of a key could be granted to a call that needs some: those
// that the limit leaves. An unused key is good for any call, however little may be in use.
func (r *Quota) Free(key, units uint32, now int64) uint32 {
	p := r.pressure(key)
	if now < p.PausedUntil {
		return 0
	}
	most, used := p.units(r), r.Uses[key].InUse()
	if used == 0 {
		most = max(most, min(units, r.Limit))
	}
	return most - uint32(min(uint64(most), used))
}

// pressure returns what was learned of a key.
func (r *Quota) pressure(key uint32) Pressure {
	for _, p := range r.Pressures {
		if p.Key == key {
			return p
		}
	}
	return Pressure{Key: key, Limit: uint64(r.Limit) * unitPressure}
}

// pressed reports whether anything was learned of a key.
func (r *Quota) pressed(key uint32) bool {
	return slices.ContainsFunc(r.Pressures, func(p Pressure) bool { return p.Key == key })
}

// withPressure returns what was learned, with this of its key.
func (r *Quota) withPressure(p Pressure) []Pressure {
	i, found := slices.BinarySearchFunc(r.Pressures, p.Key, func(o Pressure, key uint32) int { return cmp.Compare(o.Key, key) })
	out := slices.Clone(r.Pressures)
	if !found {
		out = slices.Insert(out, i, p)
	}
	out[i] = p
	return out
}

func (p *Pressure) code(c *codec) {
	number(c, &p.Key)
	number(c, &p.Limit)
	signed(c, &p.PausedUntil)
	number(c, &p.Refusals)
}
