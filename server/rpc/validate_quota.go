package rpc

import (
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/settle"
)

// Limits of quotas.
const (
	quotaLimitMax   = 1_000_000_000
	quotaKeysMax    = 64
	windowMin       = 100 * time.Millisecond
	actionQuotasMax = 8
)

func checkNewQuota(r *rotav1.CreateQuotaRequest) *violation {
	if v := requireName("name", r.Name); v != nil {
		return v
	}
	if r.Limit == 0 {
		return wrong("limit", "must be at least 1")
	}
	return firstOf(checkQuotaSize(r.Limit, r.Keys), checkWindow(r))
}

func checkQuotaSize(limit, keys uint32) *violation {
	switch {
	case limit > quotaLimitMax:
		return wrong("limit", "must be at most %d, is %d", quotaLimitMax, limit)
	case keys > quotaKeysMax:
		return wrong("keys", "must be at most %d, is %d", quotaKeysMax, keys)
	}
	return nil
}

func checkWindow(r *rotav1.CreateQuotaRequest) *violation {
	switch r.Kind {
	case rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY:
		if r.Window != nil {
			return wrong("window", "must be absent: a limit of concurrency has none")
		}
		return nil
	case rotav1.QuotaKind_QUOTA_KIND_FIXED_WINDOW, rotav1.QuotaKind_QUOTA_KIND_SLIDING_WINDOW:
		if v := checkDuration("window", r.Window); v != nil {
			return v
		}
		if d := r.Window.AsDuration(); d < windowMin {
			return wrong("window", "must be at least %v, is %v", windowMin, d)
		}
		return nil
	}
	return wrong("kind", "must be one of the three kinds, is %d", r.Kind)
}

// checkQuotas checks what an action uses of quotas. Whether there are such is for
// the state machine to say.
func checkQuotas(r *rotav1.Resources) *violation {
	if len(r.Quotas) > actionQuotasMax {
		return wrong("resources.quotas", "must be at most %d, are %d", actionQuotasMax, len(r.Quotas))
	}
	for i, q := range r.Quotas {
		if v := requireName("quota", q.GetQuota()); v != nil {
			return v.in("resources.quotas[%d]", i)
		}
		if hasUnknown(q) {
			return wrong("", "has fields that this server does not know: leave them out, or upgrade the servers").in("resources.quotas[%d]", i)
		}
		if v := checkSettle(q.GetSettle()); v != nil {
			return v.in("resources.quotas[%d]", i)
		}
		for _, other := range r.Quotas[:i] {
			if other.GetQuota() == q.GetQuota() {
				return wrong("quota", "is named twice: add up the units").in("resources.quotas[%d]", i)
			}
		}
	}
	return checkCoreless(r)
}

// checkSettle: an agent can follow the rule.
func checkSettle(rule string) *violation {
	if rule == "" {
		return nil
	}
	if _, err := settle.Parse(rule); err != nil {
		return wrong("settle", "is no rule: %v", err)
	}
	return nil
}

// checkSettled: only an HTTP call has an answer.
func checkSettled(s *rotav1.ActionSpec) *violation {
	for i, q := range s.GetResources().GetQuotas() {
		if q.GetSettle() != "" && s.Http == nil {
			return wrong("settle", "is for HTTP calls: a command writes what it used into the file $ROTA_USAGE_FILE").in("resources.quotas[%d]", i)
		}
	}
	return nil
}

// checkCoreless: only what has something else to wait for may do without cores.
func checkCoreless(r *rotav1.Resources) *violation {
	if leastCores(r) > 0 || len(r.AllowedCores) > 0 {
		return nil
	}
	switch {
	case len(r.Quotas) == 0 && r.Gpus == nil:
		return wrong("resources.cores", "must be at least 1: only an action with quotas or GPUs can do without")
	case r.MaxCores > 0:
		return wrong("resources.max_cores", "must be 0 for an action without cores of its own, is %d", r.MaxCores)
	}
	return nil
}
