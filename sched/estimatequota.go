package sched

import (
	"slices"

	"rota/fsm/state"
)

// quotaBacklog is for actions that wait for a quota: its keys are the servers.
func (s *Starts) quotaBacklog(b *backlog, q state.Queue) {
	id := state.QuotaID(q.ID)
	quota := s.view.Quota(id)
	b.strict, b.quota = true, quota
	s.wait(b, q, -1, 1, estimateWaitersMax)
	for i := range b.waiters {
		use, _ := s.view.Action(b.waiters[i].id).Missing()
		b.waiters[i] = waiter{id: b.waiters[i].id, server: -1, needs: amounts{units: int64(use.Units)}, lasts: b.waiters[i].lasts}
	}
	for key := range quota.Keys {
		limit, in := int64(quota.Effective(key)), int64(quota.Uses[key].InUse())
		v := server{free: amounts{units: limit - in}, whole: limit, lone: true}
		if until := quota.PausedUntil(key) - s.now; until > 0 {
			// All of it comes back when the pause is over.
			b.holders = append(b.holders, holder{server: len(b.servers), holds: amounts{units: limit + 1}, ends: always(until), ended: true})
			v.free.units -= limit + 1
		}
		b.servers = append(b.servers, v)
	}
	s.returns(b, id)
	s.calls(b, quota)
}

// returns adds what comes back of windows. When that is known, so it is not counted
// among what has yet to begin its window.
func (s *Starts) returns(b *backlog, id state.QuotaID) {
	s.view.Returns(id, func(r *state.QuotaReturn) bool {
		s.examined++
		for key, units := range r.Units {
			if key < len(b.servers) && units > 0 {
				b.holders = append(b.holders, holder{server: key, holds: amounts{units: int64(units)}, ends: always(max(0, r.Due-s.now)), ended: true})
			}
		}
		return true
	})
}

// calls adds what holds units, as far as it runs and is found. The rest is assumed to be
// like what was found, or else like what waits, somewhere on its way.
func (s *Starts) calls(b *backlog, quota *state.Quota) {
	missing, held := make([]int64, len(b.servers)), int64(0)
	for key := range b.servers {
		missing[key] = int64(quota.Uses[key].Held)
		held += missing[key]
	}
	if held == 0 {
		return
	}
	first, left := len(b.holders), estimateHoldersMax
	s.view.Nodes(0, func(n *state.Node) bool {
		s.view.Attempts(n.ID, func(t *state.Attempt) bool {
			left--
			a := s.view.Action(t.Action)
			if i := usesQuota(a, quota.ID); i >= 0 {
				units, key := int64(a.Needs.Quotas[i].Units), a.QuotaKeys[i]
				if int(key) < len(missing) {
					held, missing[key] = held-units, missing[key]-units
					b.holders = append(b.holders, holder{server: int(key), holds: amounts{units: units}, ends: s.left(a, t, leastKey(t))})
				}
			}
			return left > 0 && held > 0
		})
		s.examined++
		return left > 0 && held > 0
	})
	s.examined += estimateHoldersMax - left
	s.rest(b, missing, b.holders[first:])
}

// usesQuota returns where a quota is among those that an action holds, or -1.
func usesQuota(a *state.Action, id state.QuotaID) int {
	if a.Needs == nil {
		return -1
	}
	return slices.IndexFunc(a.Needs.Quotas[:a.QuotasHeld], func(u state.QuotaUse) bool { return u.Quota == id })
}

// restMax bounds how many holders stand for those that were not found, of each key.
const restMax = 16

// rest adds holders for units whose calls were not found.
func (s *Starts) rest(b *backlog, missing []int64, found []holder) {
	like := make([]times, 0, len(found)+1)
	for i := range found {
		like = append(like, found[i].ends)
	}
	if len(like) == 0 && len(b.waiters) > 0 {
		like = append(like, b.waiters[0].lasts)
	}
	for key, units := range missing {
		if units <= 0 || len(like) == 0 {
			continue
		}
		n := min(units, restMax)
		for i := range n {
			h := holder{server: key, holds: amounts{units: (units*(i+1))/n - units*i/n}, ends: like[int(i)%len(like)]}
			if len(found) == 0 {
				for k, chance := range chances(state.ActionID(uint64(key)<<32 + uint64(i))) {
					if h.ends[k] < never {
						h.ends[k] = int64(state.MulDiv(uint64(h.ends[k]), chance, million))
					}
				}
			}
			b.holders = append(b.holders, h)
		}
	}
}
