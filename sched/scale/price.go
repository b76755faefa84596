package scale

// Price says what it costs the others that an action has units. Algorithm 2 knows
// of those that wait that they will start one after the other, but not that those
// to come will need units too, or that one which waits may get more than another.
//
// A unit in use for a second delays everybody who would use it. So an action's
// cost is the time to its end, and for each unit and second another Waiting/Units
// seconds. With Amdahl's law the best width then depends on the load alone, not
// on the action's length. Units cost nothing after Until, when those who wait will
// have had theirs: who takes longer than that need not be as narrow.
type Price struct {
	// Waiting is how many others the units are short for, of Units in all.
	Waiting, Units int
	// Until is in how many nanoseconds nobody waits any more.
	Until int64
	// Alone: nobody starts before the action does. So to wait costs too.
	Alone bool
}

// End is when units come free: in At nanoseconds.
type End struct {
	At    int64
	Units int32
}

// cost of so many units for ns nanoseconds, beginning at a time; times Units.
func (p *Price) cost(at, ns int64, units int32) total {
	t := total{}.plus(uint64(at+ns), uint64(p.Units), 1)
	if dear := min(at+ns, p.Until) - at; dear > 0 {
		t = t.plus(uint64(p.Waiting)*uint64(units), uint64(dear), 1)
	}
	if p.Alone {
		t = t.plus(uint64(p.Waiting)*uint64(p.Units), uint64(at), 1)
	}
	return t
}

// best returns which of an action's amounts up to some units costs the least if it
// begins at a time, and how much. The least fits.
func (p *Price) best(d *Demand, units int, at int64) (choice int, least total) {
	for i, ns := range d.ns {
		k := d.amounts.At(i)
		if int(k) > units {
			break
		}
		if c := p.cost(at, ns, k); i == 0 || c.less(least) {
			choice, least = i, c
		}
	}
	return choice, least
}

// Narrow is the demand without the amounts that are worth less than they cost.
func (p *Price) Narrow(d Demand) Demand {
	if !d.Elastic() {
		return d
	}
	choice, _ := p.best(&d, UnitsMax, 0)
	return d.upTo(choice)
}

// Waits reports whether an action that some free units suffice for had better wait
// for more. When what is in use comes free is sorted by time. As it may be more than
// what is known of it, only those ends are looked at by which twice as much is
// free as by the last.
func (p *Price) Waits(d *Demand, free int, ends []End) bool {
	if !d.Elastic() {
		return false
	}
	_, now := p.best(d, free, 0)
	for at := 0; at < len(ends); {
		more := free
		for ; at < len(ends) && more < 2*free; at++ {
			more += int(ends[at].Units)
		}
		if more < 2*free {
			return false
		}
		free = more
		if _, later := p.best(d, free, ends[at-1].At); later.less(now) {
			return true
		}
	}
	return false
}
