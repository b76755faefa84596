package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// adapt takes what the end of an attempt says of its quotas into account: that their
// provider refused calls of it, or that all was well. Which of its quotas a refusal was for,
// it does not say.
func (x *execution) adapt(a *state.Action, t *state.Attempt, r *logv1.AttemptReport, res *state.Result) {
	for i, key := range a.QuotaKeys {
		use := a.Needs.Quotas[i]
		q := x.s.Quota(use.Quota)
		adapted := q
		switch {
		case r.Throttled:
			adapted = q.Refused(key, t.StartedAt, x.now(), max(0, r.RetryNs))
		case res.Reason == state.EndExited && res.ExitCode == 0:
			adapted = q.Succeeded(key, use.Units, t.StartedAt, x.now())
		}
		if adapted != q {
			x.s.PutQuota(adapted)
			x.wake(use.Quota)
		}
	}
}

// pauseEnds grants from a quota again, if no other pause has begun meanwhile.
func (x *execution) pauseEnds(q *state.Quota) {
	x.s.PutQuota(q.Rested(x.now()))
	x.wake(q.ID)
}
