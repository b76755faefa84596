package model

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// What attempts really used of quotas. The other side counts that, not what was expected.

// tellsOfQuotas: a report has something that older servers do not know.
func tellsOfQuotas(r *logv1.AttemptReport) bool { return r.Throttled || len(r.Usage) > 0 }

// hearsUsage takes over what an attempt tells of its calls. One that was lost tells nothing.
func (m *Model) hearsUsage(a *action, r *logv1.AttemptReport) {
	if reason := state.EndReason(r.Reason); reason == state.EndNodeLost || reason == state.EndSupervisorLost {
		return
	}
	told := make(map[string]uint64)
	for _, u := range r.Usage {
		told[u.Quota] += uint64(u.Units)
	}
	for i := range a.QuotaKeys {
		q := a.uses[i].quota
		units, ok := told[q.name]
		if !ok || q.kind == concurrency {
			continue
		}
		units = min(units, quotaUnitsMax)
		for _, c := range q.calls {
			if c.action == a && !c.ended {
				c.units = units
			}
		}
		q.settled++
		q.settledUnits += units
		a.Used = append(a.Used, state.QuotaUse{Quota: q.id, Units: uint32(units)})
	}
}

// compareSettled compares how often and how much was settled.
func (q *quota) compareSettled(got *state.Quota) error {
	if got.Settled != q.settled || got.SettledUnits != q.settledUnits {
		return fmt.Errorf("quota %s was settled %d times to %d units, must be %d times to %d", q.name, got.Settled, got.SettledUnits, q.settled, q.settledUnits)
	}
	return nil
}
