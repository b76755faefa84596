package check

import (
	"fmt"
	"time"

	"rota/jepsen/history"
)

// faults: a fault that did not happen has tested nothing.
func faults(e *evidence, f *findings) {
	for _, fault := range e.Faults {
		f.checked++
		if fault.Happened == "" {
			f.add(nil, "the fault %s on %v at %s did not take effect: the run is void", fault.Name, fault.Target, at(fault.Start))
		}
	}
}

// rate: enough calls were answered while the faults lasted. Calls count that succeeded, or that
// were refused because of the replicated state. Calls without an answer, refused connections and
// servers without a leader do not count.
func rate(e *evidence, f *findings) {
	from, to := e.faultPhase()
	if to <= from {
		return
	}
	for _, op := range e.Ops {
		if (op.Outcome == history.OK || op.Refused) && op.End >= from && op.End < to {
			f.checked++
		}
	}
	seconds := time.Duration(to - from).Seconds()
	if got := float64(f.checked) / seconds; got < e.limits.OpsPerSecondMin {
		f.add(nil, "%d calls were answered in the %.1f s of faults: %.1f a second, at least %.1f are wanted", f.checked, seconds, got, e.limits.OpsPerSecondMin)
	}
}

// faultPhase is from the first fault until the load ended; the whole run if there were none.
func (e *evidence) faultPhase() (from, to int64) {
	to = e.Duration
	if e.Healing.Stopped != 0 {
		to = e.Healing.Stopped
	}
	for i, fault := range e.Faults {
		if i == 0 || fault.Start < from {
			from = fault.Start
		}
	}
	return from, to
}

// recovery: after each fault the cluster soon takes writes again. Once the load has ended,
// everything comes to rest.
func recovery(e *evidence, f *findings) {
	h := e.Healing
	if h.Stopped == 0 && h.Settled == 0 {
		return // nobody looked
	}
	f.checked++
	for _, fault := range e.Faults {
		f.checked++
		first := history.FirstWrite(e.Ops, fault.End)
		inTime(fmt.Sprintf("the first write after the fault %s was healed", fault.Name), fault.End, first, e.limits.RecoveryMax, f)
	}
	inTime("the end of all actions after the load had ended", h.Stopped, h.Settled, e.limits.SettleMax, f)
	if len(h.Left) > 0 {
		f.add(h.Left, "%d things are left over", len(h.Left))
	}
	for _, s := range e.Hashes {
		if s.Quarantined {
			f.add([]string{describeSample(s)}, "server %s is still quarantined", s.Server)
		}
	}
}

// inTime: what was to happen did, and not much later than a time.
func inTime(what string, from, when int64, limit time.Duration, f *findings) {
	switch took := time.Duration(when - from); {
	case when == 0:
		f.add(nil, "%s at %s did not happen", what, at(from))
	case took > limit:
		f.add(nil, "%s at %s took %.3f s, at most %.3f s are allowed", what, at(from), took.Seconds(), limit.Seconds())
	}
}
