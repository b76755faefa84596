package order

import "rota/fsm/state"

const (
	// meanUSUnknown is how long it is assumed that a grant is held of which nothing is known.
	meanUSUnknown = 1_000_000
	// meanPart: a mean moves by this part of what is new.
	meanPart = 32
	// creditMax is how many mean grants of one unit a namespace may be behind the virtual time.
	creditMax = 1024
	// leadMax keeps clocks within 64 bits.
	leadMax = 1 << 60
)

// Grant charges a namespace for units of a resource that it is given now, and moves the virtual
// time on to its clock, as start-time fair queueing does (Goyal, Vin, Cheng 1996). What is charged
// is the time that its grants are held in the mean, as nobody knows how long this one will be:
// Settle corrects it. A clock moves by 1 at least, or others would wait for ever. Other namespaces
// that do not wait now keep up with the virtual time: what they left to others is not owed to
// them. r may be nil.
func Grant(v Shares, r *state.FairClocks, q state.Queue, ns state.NamespaceID, units uint64) (out *state.FairClocks, chargedUS uint64) {
	if r == nil {
		r = &state.FairClocks{Queue: q.Key()}
	}
	own := r.Clock(ns)
	chargedUS = Charge(units, heldUS(r, own))
	passed := max(0, own.Lead)
	own.Lead = ahead(own.Lead-passed, v, ns, max(int64(chargedUS), int64(v.SettingsOf(ns).Weight)))
	out = r.With(own)
	for i := range out.Clocks {
		c := &out.Clocks[i]
		if c.Namespace == ns {
			continue
		}
		c.Lead -= passed
		if !v.Waits(c.Namespace, q) {
			c.Lead = max(c.Lead, 0)
		}
		credit := int64(Charge(creditMax, heldUS(r, *c)) / uint64(v.SettingsOf(c.Namespace).Weight))
		c.Lead = max(c.Lead, -credit)
	}
	return out, chargedUS
}

// Charge is what so many units cost that are held for a time, in unit-microseconds. It is bounded as
// clocks are: a thousand million units for some hours are more than 64 bits.
func Charge(units, heldUS uint64) uint64 { return min(leadMax, state.MulDiv(units, heldUS, 1)) }

// Settle corrects what a namespace was charged for a grant when it ends, and learns how long it
// was held: nothing, if it was not. What was really used is in unit-microseconds, as what was charged.
func Settle(v Shares, r *state.FairClocks, ns state.NamespaceID, chargedUS, usedUS, heldUS uint64) *state.FairClocks {
	own := r.Clock(ns)
	usedUS, chargedUS = min(usedUS, leadMax), min(chargedUS, leadMax)
	own.Lead = ahead(own.Lead, v, ns, int64(usedUS)-int64(chargedUS))
	own.MeanUS = learned(own.MeanUS, heldUS)
	out := r.With(own)
	out.MeanUS = learned(r.MeanUS, heldUS)
	return out
}

// heldUS is how long a namespace is expected to hold a grant.
func heldUS(r *state.FairClocks, own state.FairClock) uint64 {
	switch {
	case own.MeanUS > 0:
		return own.MeanUS
	case r.MeanUS > 0:
		return r.MeanUS
	}
	return meanUSUnknown
}

// learned is a mean with one more value.
func learned(mean, us uint64) uint64 {
	if us == 0 || mean == 0 {
		return max(us, mean)
	}
	return max(1, (mean*(meanPart-1)+us)/meanPart)
}

// ahead is a clock after so many unit-microseconds by the weight of its namespace.
func ahead(lead int64, v Shares, ns state.NamespaceID, us int64) int64 {
	return max(-leadMax, min(leadMax, lead+us/int64(v.SettingsOf(ns).Weight)))
}
