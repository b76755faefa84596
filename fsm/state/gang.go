package state

import "fmt"

// GangSizeMax bounds the actions of a gang: all of them start in one entry.
const GangSizeMax = 256

// Rank returns the place of an action in its gang, from 0 on; 0 if it belongs to none.
func (r *Action) Rank() uint32 {
	if r.Gang == 0 {
		return 0
	}
	return uint32(r.ID - r.Gang)
}

// GangMembers visits the kept actions of the gang that has a first action, by rank. The first may
// have been forgotten before the others.
func (s *State) GangMembers(first ActionID, fn func(*Action) bool) {
	end := first + GangSizeMax
	s.Actions(first-1, func(a *Action) bool {
		if a.ID >= end || a.Gang != first {
			return false
		}
		return fn(a)
	})
}

// QueuedGang returns the members of a gang by rank if all of them wait; else nil.
func (s *State) QueuedGang(first *Action) (members []*Action) {
	s.GangMembers(first.ID, func(a *Action) bool {
		if a.State == ActionQueued {
			members = append(members, a)
		}
		return a.State == ActionQueued
	})
	if len(members) != int(first.GangSize) {
		return nil
	}
	return members
}

// checkGang: a member belongs to a gang of its size, asks for what a gang may ask for, and runs
// only if none of the others waits.
func (s *State) checkGang(a *Action) error {
	switch {
	case a.Gang == 0 && a.GangSize == 0 && !a.GangSpread && a.GangEndedBy == 0:
		return nil
	case a.Gang == 0 || a.GangSize == 0 || a.GangSize > GangSizeMax || a.ID < a.Gang || a.ID >= a.Gang+ActionID(a.GangSize):
		return fmt.Errorf("action %d is of a gang of %d actions from %d on", a.ID, a.GangSize, a.Gang)
	case a.Trajectory != 0 || a.CoresMin != a.CoresMax || a.AttemptsMax != 1 || a.Needs != nil && len(a.Needs.Quotas) > 0:
		return fmt.Errorf("action %d of gang %d is of trajectory %d, has %d to %d cores, %d attempts or quotas", a.ID, a.Gang, a.Trajectory, a.CoresMin, a.CoresMax, a.AttemptsMax)
	case s.meta.Level < LevelResizing:
		return fmt.Errorf("action %d is of gang %d, and level %d is active", a.ID, a.Gang, s.meta.Level)
	case a.State != ActionQueued && a.ReservedOn != 0:
		return fmt.Errorf("action %d of gang %d does not wait and has node %d reserved", a.ID, a.Gang, a.ReservedOn)
	}
	if first := s.Action(a.Gang); a.ReservedOn != 0 && first.ReservedOn == 0 {
		return fmt.Errorf("action %d of gang %d has node %d reserved, and its first action has none", a.ID, a.Gang, a.ReservedOn)
	}
	return s.checkGangState(a)
}

// checkGangState: when some have started and others wait, or one did not succeed and others are
// not told to end, the gang is being ended.
func (s *State) checkGangState(a *Action) error {
	if a.ID != a.Gang || s.endLater(QueueOf(GangTeardown, a.Gang)) {
		return nil
	}
	var queued, attempted, ended, goOn uint32
	s.GangMembers(a.Gang, func(b *Action) bool {
		switch {
		case b.State == ActionQueued:
			queued++
		case b.Attempt > 0:
			attempted++
		}
		switch {
		case b.State.Final() && b.State != ActionSucceeded:
			ended++
		case !b.State.Final() && b.CancelReason == 0:
			goOn++
		}
		return true
	})
	if queued > 0 && (attempted > 0 || queued < a.GangSize) || ended > 0 && goOn > 0 {
		return fmt.Errorf("gang %d of %d: %d wait, %d have started, %d did not succeed and %d go on", a.Gang, a.GangSize, queued, attempted, ended, goOn)
	}
	return nil
}
