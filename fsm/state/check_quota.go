package state

import (
	"cmp"
	"fmt"
	"slices"
)

// checkQuotas: what is in use of each key is what actions hold and what comes back
// to it, and no quota goes by another's name.
func (s *State) checkQuotas() (err error) {
	uses := s.usesByRows()
	s.Quotas(func(q *Quota) bool {
		switch {
		case q.ID > s.meta.LastQuota || s.QuotaByName(q.Name) != q:
			err = fmt.Errorf("quota %d is called %q, which is another's name, or is beyond the last ID %d", q.ID, q.Name, s.meta.LastQuota)
		case q.Limit == 0 || q.Keys == 0 || int(q.Keys) > len(q.Uses) || q.Windowed() != (q.WindowNS > 0):
			err = fmt.Errorf("quota %s: kind %d, limit %d, window %d, %d keys of %d", q.Name, q.Kind, q.Limit, q.WindowNS, q.Keys, len(q.Uses))
		}
		if err == nil {
			err = q.checkPressures()
		}
		for key, use := range q.Uses {
			if want := uses[quotaKey{q.ID, uint32(key)}]; use != want && err == nil {
				err = fmt.Errorf("quota %s: of key %d %+v is in use, rows say %+v", q.Name, key+1, use, want)
			}
			delete(uses, quotaKey{q.ID, uint32(key)})
		}
		return err == nil
	})
	db(s).index.quotaUsers.Scan(func(id QuotaID, _ int) bool {
		if s.Quota(id) == nil {
			err = fmt.Errorf("actions need quota %d, which does not exist", id)
		}
		return err == nil
	})
	if err == nil && len(uses) > 0 {
		err = fmt.Errorf("keys of no quota are in use: %v", uses)
	}
	return cmp.Or(err, s.checkUsed())
}

// checkUsed: only an action that has ended has said what it used, of quotas that it named, and
// once of each.
func (s *State) checkUsed() (err error) {
	s.Actions(0, func(a *Action) bool {
		for i, u := range a.Used {
			named := slices.ContainsFunc(a.Needs.Quotas, func(n QuotaUse) bool { return n.Quota == u.Quota })
			if !a.State.Final() || !named || i > 0 && u.Quota <= a.Used[i-1].Quota {
				err = fmt.Errorf("action %d in state %d has used %v of quotas, and named %v", a.ID, a.State, a.Used, a.Needs.Quotas)
			}
		}
		return err == nil
	})
	return err
}

// checkPressures: only an adaptive quota grants less than its limit, never less than a unit.
func (r *Quota) checkPressures() error {
	for i, p := range r.Pressures {
		switch {
		case !r.Adaptive, p.Limit < unitPressure, p.Limit > uint64(r.Limit)*unitPressure, int(p.Key) >= len(r.Uses),
			i > 0 && p.Key <= r.Pressures[i-1].Key, p.Refusals > pauseDoublings+1:
			return fmt.Errorf("quota %s: adaptive %v, limit %d, and has learned %+v", r.Name, r.Adaptive, r.Limit, r.Pressures)
		}
	}
	if r.WakeAt != 0 && r.nextWake(r.WakeAt-1) != r.WakeAt {
		return fmt.Errorf("quota %s: a pause ends at %d, and has learned %+v", r.Name, r.WakeAt, r.Pressures)
	}
	return nil
}

type quotaKey struct {
	quota QuotaID
	key   uint32
}

// usesByRows adds up what is in use of each key from actions and returns.
func (s *State) usesByRows() map[quotaKey]KeyUse {
	uses := make(map[quotaKey]KeyUse)
	s.Actions(0, func(a *Action) bool {
		for i, key := range a.QuotaKeys {
			use := a.Needs.Quotas[i]
			u := uses[quotaKey{use.Quota, key}]
			u.Held += use.Units
			uses[quotaKey{use.Quota, key}] = u
		}
		return true
	})
	db(s).returns.scan(0, func(r *QuotaReturn) bool {
		for key, units := range r.Units {
			if units > 0 {
				u := uses[quotaKey{r.ID.Quota(), uint32(key)}]
				u.Windowed += units
				uses[quotaKey{r.ID.Quota(), uint32(key)}] = u
			}
		}
		return true
	})
	return uses
}

// checkReturns: units come back to a quota that exists and has a window.
func (s *State) checkReturns() (err error) {
	db(s).returns.scan(0, func(r *QuotaReturn) bool {
		if q := s.Quota(r.ID.Quota()); q == nil || !q.Windowed() || r.Due > s.meta.Now+2*q.WindowNS {
			err = fmt.Errorf("units come back to quota %d at %d, which does not exist, has no window or a shorter one", r.ID.Quota(), r.Due)
		}
		return err == nil
	})
	return err
}
