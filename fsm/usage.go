package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// used returns an action with what its attempt says that it really used of quotas with a
// window. It is not stored yet: what was used counts when the units are given back, so that it
// counts once. A use of anything else is no use: units of a limit of concurrency are given
// back in any case.
func (x *execution) used(a *state.Action, r *logv1.AttemptReport) *state.Action {
	if len(r.Usage) == 0 {
		return a
	}
	b := *a
	b.Used = nil
	for i := range a.QuotaKeys {
		q := *x.s.Quota(a.Needs.Quotas[i].Quota)
		units, said := saidOf(r.Usage, q.Name)
		if !said || !q.Windowed() {
			continue
		}
		b.Used = append(b.Used, state.QuotaUse{Quota: q.ID, Units: units})
		q.Settled++
		q.SettledUnits += uint64(units)
		x.s.PutQuota(&q)
	}
	return &b
}

// saidOf adds up what is said of one quota. It is bounded as limits are.
func saidOf(uses []*logv1.QuotaUse, name string) (units uint32, said bool) {
	sum := uint64(0)
	for _, u := range uses {
		if u.Quota == name {
			sum, said = min(sum+uint64(u.Units), quotaLimitMax), true
		}
	}
	return uint32(sum), said
}
