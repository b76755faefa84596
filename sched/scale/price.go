package scale

// Price says what it costs the others that an action has units. Algorithm 2 sees
// that those who wait start one after the other, each with its least degree. It does
// not see that units that come free together are worth waiting for, or that others
// will come.
//
// A unit that is in use for a second delays every action that could use it by as much
// as there are units. So an action costs the time to its end and, for each unit and
// second, as many seconds more as others want one of the units. With Amdahl's law the
// best width then depends on the crowd alone, and not on how long the action is.
// When the crowd has gone units are cheap: so a long action may be worth starting
// late and wide.
type Price struct {
	// Units is how many there are in all. Waiting is how many others want them
	// until so many nanoseconds from now, beside those who always may come.
	Units, Waiting int
	Until          int64
	Coming         int
	// Alone: no other action starts before this one does. So to wait costs too.
	Alone bool
}

// PriceAmong is the price of a unit of so many: as many others wait for them, and as
// many of those that run could have been narrower. Work is what all of them take, in
// nanoseconds of a unit.
//
// While the crowd is there, as many are taken to come as run that could have been
// narrower, and half as many again: an action that came too wide cannot be made
// narrower. Two more are always taken to be about to come, or as many as find four units
// each. On a small idle node, the first action may use every core.
func PriceAmong(units, waiting, elastic int, work int64) Price {
	return Price{Units: units, Waiting: (waiting + elastic) * 3 / 2, Until: work / int64(units), Coming: min(2, units/4)}
}

// End is when units come free: in At nanoseconds.
type End struct {
	At    int64
	Units int32
}

// cost is that of so many units for ns nanoseconds, beginning at a time; times Units.
func (p *Price) cost(at, ns int64, units int32) total {
	t := total{}.plus(uint64(at+ns), uint64(p.Units), 1)
	t = t.plus(uint64(p.Coming)*uint64(units), uint64(ns), 1)
	if crowded := min(at+ns, p.Until) - at; crowded > 0 {
		t = t.plus(uint64(p.Waiting)*uint64(units), uint64(crowded), 1)
	}
	if p.Alone {
		t = t.plus(uint64(p.Waiting)*uint64(p.Units), uint64(at), 1)
	}
	return t
}

// best returns which of an action's degrees up to some units costs the least if it
// begins at a time, and how much. The least degree fits.
func (p *Price) best(d *Demand, units int, at int64) (choice int, least total) {
	for i, ns := range d.ns {
		k := d.dops.At(i)
		if int(k) > units {
			break
		}
		if c := p.cost(at, ns, k); i == 0 || c.less(least) {
			choice, least = i, c
		}
	}
	return choice, least
}

// Narrow is the demand without the degrees that are worth less than they cost.
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
	more := free
	for _, end := range ends {
		if more += int(end.Units); more < 2*free {
			continue
		}
		free = more
		if _, later := p.best(d, free, end.At); later.less(now) {
			return true
		}
	}
	return false
}
