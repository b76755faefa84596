package dst

import "time"

// Shrink looks for a smaller plan that fails as well, by leaving out larger and
// then smaller parts of it (ddmin), until none can be left out or the time is
// over. Whatever fails counts: a smaller plan may fail in another way, and is as
// good a witness.
func Shrink(p Plan, o Options, most time.Duration) Plan {
	end := time.Now().Add(most)
	fails := func(events []Event) bool {
		q := p
		q.Events = events
		return RunPlan(q, o).Violation != nil
	}
	p = cutTail(p, o)
	for parts := 2; len(p.Events) > 0 && time.Now().Before(end); {
		smaller, ok := withoutOnePart(p.Events, parts, end, fails)
		switch {
		case ok:
			p.Events, parts = smaller, max(2, parts-1)
		case parts >= len(p.Events):
			return p
		default:
			parts = min(2*parts, len(p.Events))
		}
	}
	return p
}

// cutTail leaves out what was planned for after the violation.
func cutTail(p Plan, o Options) Plan {
	at := int64(RunPlan(p, o).Simulated)
	for i, e := range p.Events {
		if e.At > at {
			p.Events = p.Events[:i]
			break
		}
	}
	return p
}

// withoutOnePart returns the events without the first of their parts that is not
// needed.
func withoutOnePart(events []Event, parts int, end time.Time, fails func([]Event) bool) ([]Event, bool) {
	size := (len(events) + parts - 1) / parts
	for from := 0; from < len(events) && time.Now().Before(end); from += size {
		to := min(from+size, len(events))
		rest := append(append([]Event{}, events[:from]...), events[to:]...)
		if fails(rest) {
			return rest, true
		}
	}
	return nil, false
}
