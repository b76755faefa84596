package check

import (
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

// faultPhase is from the first fault until all are healed; the whole run if
// there were none.
func (e *evidence) faultPhase() (from, to int64) {
	to = e.Duration
	if e.Healing.Healed != 0 {
		to = e.Healing.Healed
	}
	for i, fault := range e.Faults {
		if i == 0 || fault.Start < from {
			from = fault.Start
		}
	}
	return from, to
}

// recovery: after healing the cluster takes writes again and comes to rest.
func recovery(e *evidence, f *findings) {
	h := e.Healing
	if h.Healed == 0 && h.Settled == 0 {
		return // nobody looked
	}
	f.checked++
	bound := func(what string, when int64, limit time.Duration) {
		switch took := time.Duration(when - h.Healed); {
		case when == 0:
			f.add(nil, "%s did not happen after healing at %s", what, at(h.Healed))
		case took > limit:
			f.add(nil, "%s took %.3f s after healing at %s, at most %.3f s are allowed", what, took.Seconds(), at(h.Healed), limit.Seconds())
		}
	}
	bound("the first commit", h.FirstCommit, e.limits.RecoveryMax)
	bound("the end of all actions", h.Settled, e.limits.SettleMax)
	if len(h.Left) > 0 {
		f.add(h.Left, "%d things are left over", len(h.Left))
	}
	for _, s := range e.Hashes {
		if s.Quarantined {
			f.add([]string{describeSample(s)}, "server %s is still quarantined", s.Server)
		}
	}
}
