package server

import (
	"rota/fsm/state"
	"rota/internal/telemetry"
)

// quotaMetrics are of each quota.
var quotaMetrics = part{
	[]*telemetry.Def{
		telemetry.QuotaLimit, telemetry.QuotaHeld, telemetry.QuotaWindow, telemetry.QuotaWaiting, telemetry.QuotaEffective,
		telemetry.QuotaPaused, telemetry.QuotaHalted, telemetry.QuotaThrottled, telemetry.QuotaOverdrawn,
		telemetry.QuotaSettled, telemetry.QuotaUsed,
	},
	func(st *state.State, now int64, emit emitter) {
		quotas := 0
		st.Quotas(func(q *state.Quota) bool {
			value := func(d *telemetry.Def, v uint64) { emit(d.Value(float64(v), q.Name)) }
			held, windowed, limit := q.Total()
			value(telemetry.QuotaLimit, limit)
			value(telemetry.QuotaHeld, held)
			value(telemetry.QuotaWindow, windowed)
			value(telemetry.QuotaWaiting, uint64(st.Waiting(state.QueueOf(state.QuotaQueue, q.ID))))
			value(telemetry.QuotaEffective, q.AllEffective())
			emit(telemetry.QuotaPaused.Value(telemetry.One(q.PausedForAll() > now), q.Name))
			emit(telemetry.QuotaHalted.Value(telemetry.One(q.Halted != ""), q.Name))
			value(telemetry.QuotaOverdrawn, q.Overdrawn())
			value(telemetry.QuotaThrottled, q.Throttled)
			value(telemetry.QuotaSettled, q.Settled)
			value(telemetry.QuotaUsed, q.SettledUnits)
			quotas++
			return quotas < telemetry.QuotasMax
		})
	},
}
