package state

import "fmt"

// checkThawing: a node counts the attempts that wait to go on, and leaves no core to others while
// there are any. A halted pool gives nothing away.
func (s *State) checkThawing(n *Node, thawing uint32) error {
	idle := n.State == NodeUp && s.Pool(n.Pool).Halted == "" && (n.Spare > 0 || n.Free != CoreSet{})
	if n.Thawing != thawing || thawing > 0 && idle {
		return fmt.Errorf("node %s: %d attempts wait to go on, counts %d, with cores %v free and %d to spare", n.Name, thawing, n.Thawing, n.Free.Slice(), n.Spare)
	}
	return nil
}

// checkIce: what is frozen is of a paused trajectory, and holds no cores. What is to go on has
// fewer than it needs; none while a limit keeps it.
func (s *State) checkIce(at *Attempt, a *Action) error {
	t := s.Trajectory(a.Trajectory)
	paused := t != nil && t.Paused()
	wrong := at.Ice > iceMax || at.Ice != IceNone && t == nil || at.Pause != 0 && (t == nil || at.Pause > t.Pauses)
	switch at.Ice {
	case IceNone:
		wrong = wrong || at.Width > 0 || paused && !at.Stop
	case IceWanted:
		wrong = wrong || at.Width > 0 || !paused && !at.Stop
	case IceFrozen:
		wrong = wrong || at.Cores != CoreSet{} || (at.Width > 0) != (a.CoresMin > 0) || !paused && !at.Stop
	case IceLimited:
		wrong = wrong || at.Cores != CoreSet{} || at.Width == 0 || paused || at.Stop
	case IceThawing:
		wrong = wrong || at.Cores.Len() >= int(at.Width) || paused || at.Stop
	}
	if wrong {
		return fmt.Errorf("attempt %d of action %d is frozen to degree %d for pause %d, with cores %v of %d; its trajectory is paused: %v", at.Number, at.Action, at.Ice, at.Pause, at.Cores.Slice(), at.Width, paused)
	}
	return nil
}

// checkPause: a trajectory that is paused has been so at least once, and what it has queued waits
// aside.
func (s *State) checkPause(t *Trajectory) (err error) {
	if t.PauseNS < 0 || t.PauseNS > 0 && s.meta.Level < LevelResizing {
		return fmt.Errorf("trajectory %d is paused after %d ns, at feature level %d", t.ID, t.PauseNS, s.meta.Level)
	}
	if !t.Paused() {
		return nil
	}
	if t.Pauses == 0 || t.PausedAt < 0 || s.meta.Level < LevelResizing {
		return fmt.Errorf("trajectory %d is paused since %d, and was paused %d times, at feature level %d", t.ID, t.PausedAt, t.Pauses, s.meta.Level)
	}
	s.TrajectoryActions(t.ID, 0, func(a *Action) bool {
		if a.State == ActionQueued && !a.Aside {
			err = fmt.Errorf("trajectory %d is paused, and its action %d does not wait aside", t.ID, a.ID)
		}
		return err == nil
	})
	return err
}
