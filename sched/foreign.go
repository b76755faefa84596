package sched

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"rota/fsm/state"
	"rota/sched/scale"
)

// CheckForeign says which row of a state the scheduler could not decide about: a demand, what a class
// has learned, or a reservation. Commands are checked before they become rows, but the rows of a backup
// may be crafted. A decision that meets such a row stops the server. The settings of the ledger have been
// checked.
func CheckForeign(v *state.State) error {
	return cmp.Or(checkDemands(v), checkLearned(v), checkLedgerRows(v))
}

// checkDemands checks the actions that have not ended.
func checkDemands(v *state.State) (err error) {
	v.Actions(0, func(a *state.Action) bool {
		if a.State.Final() {
			return true
		}
		if err = cmp.Or(checkUnits(a), checkProfile(profileOf(a))); err != nil {
			err = fmt.Errorf("action %d: %w", a.ID, err)
		}
		return err == nil
	})
	return err
}

// checkUnits checks the numbers of cores and GPUs that an action may have.
func checkUnits(a *state.Action) error {
	if a.CoresMin > a.CoresMax || a.CoresMax > state.CoresPerNodeMax {
		return fmt.Errorf("it asks for %d to %d cores", a.CoresMin, a.CoresMax)
	}
	set := keySet(a)
	if g := a.GPUs(); g != nil {
		odd := func(k uint32) bool { return !(state.Chunk{Units: k}).Aligned(state.GPUsPerNodeMax) }
		if len(set) == 0 || slices.ContainsFunc(set, odd) || a.CoresMin != a.CoresMax {
			return fmt.Errorf("it asks for %v GPUs and %d to %d cores", set, a.CoresMin, a.CoresMax)
		}
	} else if len(set) > 0 && (set[0] != a.CoresMin || set[len(set)-1] != a.CoresMax) {
		return fmt.Errorf("it asks for %d to %d cores, and may have %v", a.CoresMin, a.CoresMax, set)
	}
	if len(set) == 0 && a.CoresMax == 0 {
		if a.Needs == nil || len(a.Needs.Quotas) == 0 {
			return errors.New("it asks for no cores, GPUs or quotas")
		}
		return nil
	}
	_, err := dopSet(a)
	return err
}

func checkProfile(p *state.Profile) error {
	switch {
	case p == nil:
		return nil
	case p.SingleNS < 0 || p.SingleNS > scale.DurationMax:
		return fmt.Errorf("its profile has a duration of %d ns", p.SingleNS)
	}
	for _, q := range p.Points {
		if q.Units > scale.UnitsMax {
			return fmt.Errorf("its profile has a point of %d units", q.Units)
		}
	}
	if c := CurveOf(p); c != nil {
		return c.Check()
	}
	return nil
}

// checkLearned checks what classes have learned of durations.
func checkLearned(v *state.State) (err error) {
	one, err := scale.Range(1, 1)
	v.Classes(0, func(c *state.Class) bool {
		seen := make([]scale.Seen, len(c.Seen))
		for i := range c.Seen {
			w := &c.Seen[i]
			if w.Units > scale.UnitsMax {
				err = fmt.Errorf("class %d has seen %d units", c.ID, w.Units)
				return false
			}
			seen[i] = scale.Seen{Units: int32(w.Units), NS: w.MeanNS, Attempts: w.Weight()}
		}
		if len(seen) > 0 {
			if _, err = scale.Learned(one, seen); err != nil {
				err = fmt.Errorf("class %d: %w", c.ID, err)
			}
		}
		return err == nil
	})
	return err
}

// checkLedgerRows checks that the ledger can be built of its rows.
func checkLedgerRows(v *state.State) error {
	groups, reservations := ledgerRows(v)
	_, err := tryBuild(v, groups, reservations)
	return err
}
