package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Paused trajectories: what they run is frozen and gives its cores back, what they have queued
// waits, and their time stands still. What is resumed goes on when it has its cores again, before
// anything else of its node begins.

// pausing is a command that pauses or resumes a trajectory.
func (m *Model) pausing(c *logv1.PauseTrajectory, got *logv1.Result) error {
	t := m.trajectories[state.TrajectoryID(c.Id)]
	switch {
	case m.level < levelResizing:
		return refused(got, "LEVEL_NOT_ACTIVE")
	case t == nil:
		return refused(got, "TRAJECTORY_NOT_FOUND")
	case t.State >= state.TrajectoryClosing:
		return refused(got, "TRAJECTORY_ENDED")
	case t.Paused() != c.Resume:
		return result(got, &logv1.Result{FirstId: c.Id})
	}
	if c.Resume {
		m.resume(t)
	} else {
		v := m.mayFreeze(t)
		if ok, err := v.judge(got); !ok {
			return err
		}
		m.pause(t)
	}
	m.onlyArrivals = false
	m.touchTrajectory(t)
	m.touchPool(t.pool)
	return result(got, &logv1.Result{FirstId: c.Id, Count: 1})
}

func (m *Model) mayFreeze(t *trajectory) (v verdict) {
	for _, a := range t.live {
		runs := a.State == state.ActionRunning && a.CancelReason == 0
		v.refuse(runs && a.GPUs() != nil, "PAUSE_HOLDS_GPUS")
		v.refuse(runs && !m.nodeByID[a.Node].Resizes, "NODE_CANNOT_FREEZE")
	}
	return v
}

// pausesNext: the trajectory is to be paused at its next time, and can be.
func (m *Model) pausesNext(t *trajectory) bool {
	return t.PauseNS > 0 && t.closesAt() == t.Deadline && len(m.mayFreeze(t).must) == 0
}

// timeIsOver pauses a trajectory whose deadline has come. If not everything that is due was done, the
// state says whether this was.
func (m *Model) timeIsOver(t *trajectory, left bool) bool {
	if left && m.s.Trajectory(t.ID).Pauses == t.Pauses {
		return false
	}
	m.budget -= len(t.live)
	m.pause(t)
	t.Deadline = t.PausedAt + t.PauseNS
	m.onlyArrivals = false
	m.touchTrajectory(t)
	m.touchPool(t.pool)
	return true
}

func (m *Model) pause(t *trajectory) {
	t.Pauses++
	t.PausedAt = max(1, m.now)
	for _, a := range t.live {
		m.touchAction(a)
		switch {
		case a.State == state.ActionQueued:
			if a.ReservedOn != 0 { // its node is free for others
				m.touchNode(m.nodeByID[a.ReservedOn])
			}
		case a.CancelReason == 0:
			if a.ice < state.IceThawing {
				m.ices(a, state.IceWanted)
			}
			m.stopsThawing(a)
			a.pause = t.Pauses
		}
	}
}

func (m *Model) resume(t *trajectory) {
	if t.Deadline != 0 {
		t.Deadline += max(0, m.now-t.PausedAt)
		m.watchDeadline(t)
	}
	t.PausedAt = 0
	m.alive(t)
	for _, a := range t.live {
		m.touchAction(a)
		switch {
		case a.State == state.ActionQueued, a.CancelReason != 0:
		case a.ice == state.IceFrozen && a.width > 0:
			a.ice = state.IceLimited
			m.touchNode(m.nodeByID[a.Node])
		default:
			m.ices(a, state.IceNone)
		}
	}
}

// ices freezes an action to a degree by which others can be given more of its cores, or fewer.
func (m *Model) ices(a *action, ice state.Ice) {
	n := m.nodeByID[a.Node]
	n.Spare -= a.spare()
	a.ice = ice
	n.Spare += a.spare()
	m.touchNode(n)
}

// froze takes over what a node says that it has frozen. It counts only with the token of the live
// attempt, and for the pause that it was told of.
func (m *Model) froze(c *logv1.ReportFrozen, got *logv1.Result) error {
	n := m.nodes[c.Node]
	switch {
	case m.level < levelResizing:
		return refused(got, "LEVEL_NOT_ACTIVE")
	case n == nil:
		return refused(got, "NODE_NOT_FOUND")
	}
	count := uint32(0)
	for _, r := range c.Attempts {
		a := m.actions[state.ActionID(r.ActionId)]
		if a == nil || a.State != state.ActionRunning || a.Node != n.ID || a.Attempt != r.Attempt || a.incarnation != c.Incarnation ||
			a.ice != state.IceWanted || a.pause != r.Pause {
			continue
		}
		count++
		a.width = uint32(a.cores.Len())
		if a.follows {
			a.width = a.CoresMin
		}
		if a.shares {
			a.width = 1
		}
		m.yields(a)
		a.ice = state.IceFrozen
	}
	return result(got, &logv1.Result{Count: count})
}

// yields gives the cores of an action that is frozen back to its node.
func (m *Model) yields(a *action) {
	n := m.nodeByID[a.Node]
	n.Spare -= a.spare()
	n.Free = n.Free.Union(a.cores)
	a.used = a.usedUntil(m.now)
	n.sharesLess(a)
	a.cores, a.since = state.CoreSet{}, m.now
	m.touchAction(a)
	m.touchNode(n)
	m.onlyArrivals = false
}

// spare is how many of its cores others may be given.
func (a *action) spare() uint32 {
	if !a.follows || a.ice != state.IceNone || a.shares {
		return 0
	}
	return uint32(a.cores.Len()) - a.CoresMin
}

// stopsThawing: what is to end needs no cores.
func (m *Model) stopsThawing(a *action) {
	if a.ice == state.IceThawing {
		m.yields(a)
	}
	if a.ice >= state.IceThawing {
		a.ice = state.IceFrozen
	}
}

// frozen: it runs and is to hold no cores, or only some yet.
func (a *action) frozen() bool { return a.ice > state.IceWanted }

// learnThaws takes over which cores were given to actions that were resumed, which no event says.
// That comes before anything is started.
func (m *Model) learnThaws() error {
	for _, id := range slices.Sorted(maps.Keys(m.nodeByID)) {
		n := m.nodeByID[id]
		for _, a := range n.running {
			if at := m.s.Attempt(n.ID, a.ID); a.ice == state.IceLimited && at != nil && at.Ice != state.IceLimited {
				a.ice = state.IceThawing
				m.touchAction(a)
			}
			if a.ice != state.IceThawing {
				continue
			}
			if err := m.thaws(n, a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Model) thaws(n *node, a *action) error {
	at := m.s.Attempt(n.ID, a.ID)
	if at == nil || at.Cores == a.cores && at.Ice == a.ice {
		return nil
	}
	if n.State != state.NodeUp || a.pool.halted {
		return fmt.Errorf("action %d was given cores of node %s, which gives none away", a.ID, n.Name)
	}
	if at.Ice == state.IceThawing && a.cores.Minus(at.Cores) != (state.CoreSet{}) {
		return fmt.Errorf("action %d waits to go on with %v, and had %v of them already", a.ID, at.Cores.Slice(), a.cores.Slice())
	}
	a.used = a.usedUntil(m.now)
	n.Free = n.Free.Minus(at.Cores)
	a.cores, a.since = at.Cores, m.now
	if enough := a.cores.Len() >= int(a.width); enough != (at.Ice == state.IceNone) {
		return fmt.Errorf("action %d goes on with cores %v: %v, and needs %d", a.ID, a.cores.Slice(), at.Ice == state.IceNone, a.width)
	}
	if at.Ice == state.IceNone {
		a.ice, a.width = state.IceNone, 0
		if a.follows {
			a.anchor = at.Anchor
			n.Spare += a.spare()
		}
	}
	m.touchAction(a)
	m.touchNode(n)
	return nil
}

// limitsHeld: an action that was resumed waits for a limit only as long as its namespace holds too
// many cores, with those of actions that go on already, and only behind others that do.
func (m *Model) limitsHeld() error {
	first, resuming := map[state.NamespaceID]*action{}, map[state.NamespaceID]int{}
	for _, n := range m.nodes {
		for _, a := range n.running {
			switch b := first[a.Namespace]; {
			case a.ice == state.IceThawing:
				resuming[a.Namespace] += int(a.width) - a.cores.Len()
			case a.ice == state.IceLimited && (b == nil || a.ID < b.ID):
				first[a.Namespace] = a
			}
		}
	}
	for _, ns := range slices.Sorted(maps.Keys(first)) {
		most, held := int(m.settingsOf(ns).CoresMax), m.holds(ns).Cores+resuming[ns]
		if width := int(first[ns].width); most == 0 || held == 0 || held+width <= most {
			return fmt.Errorf("action %d waits to go on with %d cores, and its namespace holds %d of at most %d", first[ns].ID, width, held, most)
		}
	}
	return nil
}

// comparePause judges the pause of an attempt, as its row has it.
func (a *action) comparePause(at *state.Attempt) error {
	if at.Ice != a.ice || at.Pause != a.pause || at.Width != a.width {
		return fmt.Errorf("action %d is frozen to degree %d for pause %d, to go on with %d cores, must be %d, %d and %d", a.ID, at.Ice, at.Pause, at.Width, a.ice, a.pause, a.width)
	}
	return nil
}

// thawsFirst: as long as an action waits to go on, nothing of its node is free, and only one has a
// part of what it waits for.
func (n *node) thawsFirst(row *state.Node) error {
	waiting := slices.DeleteFunc(slices.Clone(n.running), func(a *action) bool { return a.ice != state.IceThawing })
	slices.SortFunc(waiting, func(a, b *action) int { return cmp.Compare(a.ID, b.ID) })
	if int(row.Thawing) != len(waiting) {
		return fmt.Errorf("node %s says that %d actions wait to go on, there are %d", n.Name, row.Thawing, len(waiting))
	}
	if len(waiting) == 0 || n.pool.halted || n.State != state.NodeUp {
		return nil
	}
	begun := slices.DeleteFunc(slices.Clone(waiting), func(a *action) bool { return a.cores.Len() == 0 })
	if len(begun) > 1 {
		return fmt.Errorf("actions %d and %d of node %s wait to go on, and each has cores that the other waits for", begun[0].ID, begun[1].ID, n.Name)
	}
	if row.Free != (state.CoreSet{}) || row.Spare > 0 {
		return fmt.Errorf("action %d waits to go on, and node %s has cores %v free and %d to spare", waiting[0].ID, n.Name, row.Free.Slice(), row.Spare)
	}
	return nil
}
