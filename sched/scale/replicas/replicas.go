package replicas

// startsAtOnce is how many replicas may start at the same time if fewer are ready. Beyond that
// their number doubles at most, so that a burst that is over soon takes not all of a pool.
const startsAtOnce = 8

// Load is what a function has to do, and with what. Times are log times in nanoseconds.
type Load struct {
	// Demand is how many calls run and wait.
	Demand                uint64
	Min, Max, Concurrency uint32
	// Starting and Ready are its replicas that do not drain.
	Starting, Ready uint32
	Now, IdleNS     int64
	// Low: fewer replicas were enough from LowSince on, and never more than Peak.
	Low      bool
	LowSince int64
	Peak     uint32
}

// Decision is what becomes of the replicas.
type Decision struct {
	// Wanted is how many the demand needs.
	Wanted uint32
	// Start and Drain are how many are started and drained now; one of them is 0.
	Start, Drain uint32
	// As in Load, from now on.
	Low      bool
	LowSince int64
	Peak     uint32
}

// Need is how many replicas a demand needs, within the bounds.
func Need(demand uint64, least, most, concurrency uint32) uint32 {
	full := demand / uint64(concurrency)
	if demand%uint64(concurrency) > 0 {
		full++
	}
	return uint32(max(uint64(least), min(full, uint64(most))))
}

// Decide returns what becomes of the replicas of a function.
func Decide(l Load) Decision {
	d := Decision{Wanted: Need(l.Demand, l.Min, l.Max, l.Concurrency)}
	live := l.Starting + l.Ready
	if d.Wanted >= live {
		if room := max(startsAtOnce, l.Ready); room > l.Starting {
			d.Start = min(d.Wanted-live, room-l.Starting)
		}
		return d
	}
	keep := min(live, l.Max)
	d.LowSince, d.Peak = l.Now, d.Wanted
	if l.Low {
		d.LowSince, d.Peak = l.LowSince, max(d.Wanted, min(l.Peak, l.Max))
		if l.Now-l.LowSince >= l.IdleNS {
			// Those that stay are counted from now on.
			keep = min(live, d.Peak)
			d.LowSince, d.Peak = l.Now, d.Wanted
		}
	}
	d.Drain, d.Low = live-keep, keep > d.Wanted
	if !d.Low {
		d.LowSince, d.Peak = 0, 0
	}
	return d
}
