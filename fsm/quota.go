package fsm

import (
	"cmp"
	"math"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Bounds of quotas. Durations in nanoseconds.
const (
	quotasMax      = 1024
	quotaLimitMax  = 1_000_000_000
	windowNSMin    = 100_000_000
	windowNSMax    = 30 * 24 * 3600 * 1_000_000_000
	actionQuotaMax = 8
)

// createQuota makes a limit that actions may name from then on.
func (x *execution) createQuota(c *logv1.CreateQuota) *logv1.Result {
	keys := max(1, c.Keys)
	kind := state.QuotaKind(min(c.Kind, math.MaxUint8))
	windowed := kind == state.QuotaFixedWindow || kind == state.QuotaSlidingWindow
	switch {
	case c.Name == "" || len(c.Name) > nameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "a quota needs a name of at most %d bytes", nameBytesMax)
	case !windowed && kind != state.QuotaConcurrency:
		return refuse(codeInvalidArgument, "INVALID", "kind %d of a quota is not known; upgrade all servers before using it", c.Kind)
	case c.Limit == 0 || c.Limit > quotaLimitMax || keys > state.QuotaKeysMax:
		return refuse(codeInvalidArgument, "INVALID", "a quota has a limit of 1 to %d units and at most %d keys", quotaLimitMax, state.QuotaKeysMax)
	case !windowed && c.WindowNs != 0 || windowed && (c.WindowNs < windowNSMin || c.WindowNs > windowNSMax):
		return refuse(codeInvalidArgument, "INVALID", "a window must be from 100 ms to 30 days; a limit of concurrency has none")
	case x.s.QuotaByName(c.Name) != nil:
		return refuse(codeAlreadyExists, "QUOTA_EXISTS", "quota %q exists already; change it with: rota quota update %s", c.Name, c.Name)
	case x.s.QuotaCount() >= quotasMax:
		return refuse(codeResourceExhausted, "TOO_MANY_QUOTAS", "there are %d quotas already, which is the limit; delete some", quotasMax)
	}
	m := *x.s.Meta()
	m.LastQuota++
	x.s.SetMeta(m)
	x.s.PutQuota(&state.Quota{
		ID: m.LastQuota, Name: c.Name, Kind: kind, Limit: c.Limit, WindowNS: c.WindowNs,
		Keys: keys, Uses: make([]state.KeyUse, keys), Adaptive: c.Adaptive,
	})
	return &logv1.Result{Count: 1}
}

// updateQuota changes what is granted from now on. What is held stays so.
func (x *execution) updateQuota(c *logv1.UpdateQuota) *logv1.Result {
	q, r := x.quota(c.Name)
	switch {
	case r != nil:
		return r
	case c.Limit > quotaLimitMax || c.Keys > state.QuotaKeysMax:
		return refuse(codeInvalidArgument, "INVALID", "a quota has a limit of 1 to %d units and at most %d keys", quotaLimitMax, state.QuotaKeysMax)
	}
	n := *q
	if n.Adaptive = c.Adaptive == nil && q.Adaptive || c.GetAdaptive(); c.Limit > 0 || !n.Adaptive {
		n = *n.Forgetful()
	}
	n.Limit, n.Keys = cmp.Or(c.Limit, q.Limit), cmp.Or(c.Keys, q.Keys)
	n.Uses = append(slices.Clone(q.Uses), make([]state.KeyUse, max(0, int(n.Keys)-len(q.Uses)))...)
	if c.Resume {
		n.Halted = ""
	}
	x.s.PutQuota(&n)
	x.wake(n.ID)
	x.recall(state.QueueOf(state.QuotaQueue, n.ID).Aside())
	x.recallUnits()
	return &logv1.Result{Count: 1}
}

// deleteQuota forgets a quota that nothing needs any more. While units are in its
// window the other side still counts them, so another of its name would exceed it.
func (x *execution) deleteQuota(c *logv1.DeleteQuota) *logv1.Result {
	q, r := x.quota(c.Name)
	if r != nil {
		return r
	}
	if n := x.s.QuotaUsers(q.ID); n > 0 {
		return refuse(codeFailedPrecondition, "QUOTA_IN_USE", "%d actions that have not ended need quota %q; cancel them or wait for them", n, q.Name)
	}
	if due, ok := x.s.NextReturn(q.ID); ok {
		return retryAfter(refuse(codeFailedPrecondition, "QUOTA_IN_USE", "units of quota %q are still in its window; try again when it has passed", q.Name), due-x.now())
	}
	x.s.DeleteQuota(q.ID)
	return &logv1.Result{Count: 1}
}

func (x *execution) quota(name string) (*state.Quota, *logv1.Result) {
	if q := x.s.QuotaByName(name); q != nil {
		return q, nil
	}
	return nil, refuse(codeNotFound, "QUOTA_NOT_FOUND", "quota %q does not exist; create it with: rota quota create %s --concurrency 8", name, name)
}

// quotas fills in what an action uses of quotas, in the order in which all
// actions take them, so that none wait for each other in a circle.
func (x *execution) quotas(row *state.Action, uses []*logv1.QuotaUse) *logv1.Result {
	if len(uses) > actionQuotaMax {
		return refuse(codeInvalidArgument, "INVALID", "an action may use at most %d quotas, not %d", actionQuotaMax, len(uses))
	}
	for _, use := range uses {
		q, r := x.quota(use.Quota)
		switch {
		case r != nil:
			return r
		case use.Units == 0:
			return refuse(codeInvalidArgument, "INVALID", "the units of quota %q must be at least 1", q.Name)
		case use.Units > q.Limit:
			return refuse(codeInvalidArgument, "UNSATISFIABLE", "the action asks for %d units of quota %q, which never has more than %d (of one key)", use.Units, q.Name, q.Limit)
		}
		row.Needs.Quotas = append(row.Needs.Quotas, state.QuotaUse{Quota: q.ID, Units: use.Units})
	}
	list := row.Needs.Quotas
	slices.SortFunc(list, func(a, b state.QuotaUse) int { return cmp.Compare(a.Quota, b.Quota) })
	for i := 1; i < len(list); i++ {
		if list[i].Quota == list[i-1].Quota {
			return refuse(codeInvalidArgument, "INVALID", "the action names quota %q twice; add up the units", x.s.Quota(list[i].Quota).Name)
		}
	}
	return nil
}

// acquire gives an action the quota that it waits for, from one key. It goes on to
// the next queue.
func (x *execution) acquire(a *state.Action, key uint32) {
	use, waits := a.Missing()
	state.Assert(waits, "action %d waits for no quota", a.ID)
	q := x.changeUse(use.Quota, key, func(u *state.KeyUse) { u.Held += use.Units })
	state.Assert(key < q.Keys && q.Uses[key].InUse() <= uint64(q.Limit), "quota %s: %d units of key %d are in use, the limit is %d", q.Name, q.Uses[key].InUse(), key+1, q.Limit)
	b := *a
	b.ChargedUS = x.chargeQuota(a, q, use.Units)
	b.QuotasHeld++
	b.QuotaKeys = append(slices.Clone(a.QuotaKeys), key)
	x.s.PutAction(&b)
	x.dirty.add(b.Queue())
}

func (x *execution) changeUse(id state.QuotaID, key uint32, change func(*state.KeyUse)) *state.Quota {
	q := *x.s.Quota(id)
	q.Uses = slices.Clone(q.Uses)
	change(&q.Uses[key])
	x.s.PutQuota(&q)
	return &q
}

// giveBack takes all quotas from an action whose attempt has ended, or that leaves
// its queue. Of a call that began, what it used stays in the window, or what it expected to
// use if it did not say; all the rest comes back at once.
func (x *execution) giveBack(a *state.Action) {
	began := a.State == state.ActionRunning
	for i, key := range a.QuotaKeys {
		use, later := a.Needs.Quotas[i], uint32(0)
		if began && x.s.Quota(use.Quota).Windowed() {
			later = a.Counts(use)
		}
		q := x.changeUse(use.Quota, key, func(u *state.KeyUse) {
			u.Held -= use.Units
			u.Windowed += uint64(later)
		})
		if later > 0 {
			x.s.ReturnLater(q, key, uint64(later))
		}
		x.settleQuota(a, i, q, began, later)
		if later < use.Units {
			x.wake(use.Quota)
		}
	}
	a.QuotasHeld, a.QuotaKeys, a.ChargedUS = 0, nil, nil
}

// windowEnds gives units back whose window has passed.
func (x *execution) windowEnds(id state.ReturnID) {
	for key, units := range x.s.Return(id).Units {
		if units > 0 {
			x.changeUse(id.Quota(), uint32(key), func(u *state.KeyUse) { u.Windowed -= units })
		}
	}
	x.s.DeleteReturn(id)
	x.wake(id.Quota())
}

// wake has a quota looked at, if anything waits for it.
func (x *execution) wake(id state.QuotaID) {
	if q := state.QueueOf(state.QuotaQueue, id); x.s.QueueLen(q) > 0 {
		x.dirty.add(q)
	}
}

// wakeQuotas has all of them looked at.
func (x *execution) wakeQuotas() {
	x.s.Quotas(func(q *state.Quota) bool {
		x.wake(q.ID)
		return true
	})
}

// wakeCoreless has actions without cores looked at that wait for a node of a pool, and gangs.
func (x *execution) wakeCoreless(pool state.PoolID) {
	x.wakeGangs(pool)
	if q := state.QueueOf(state.PoolCorelessQueue, pool); x.s.QueueLen(q) > 0 {
		x.dirty.add(q)
	}
}
