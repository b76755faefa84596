package model

import (
	"cmp"
	"fmt"

	"rota/fsm/state"
)

// schedule judges what the scheduler did after the commands: the rest of the
// events, one after the other.
func (m *Model) schedule() error {
	if err := m.learnThaws(); err != nil {
		return err
	}
	for {
		m.learnUnitsBack()
		if err := m.learnTakes(); err != nil {
			return err
		}
		e, ok := m.peek()
		if !ok {
			return nil
		}
		var err error
		switch {
		case e.Kind == state.EventAction && state.ActionState(e.State) == state.ActionRunning:
			err = m.grant(e)
		case e.Kind == state.EventAction && m.ofGang(e) && state.ActionState(e.State).Final():
			err = m.endWithGang(e)
		case e.Kind == state.EventAction && state.ActionState(e.State) == state.ActionCanceled:
			err = m.cancelWithTrajectory(e)
		case e.Kind == state.EventTrajectory && state.TrajectoryState(e.State) == state.TrajectoryOpen:
			err = m.place(e)
		case e.Kind == state.EventTrajectory && state.TrajectoryState(e.State) == state.TrajectoryClosing:
			err = m.reviewed(e)
		case e.Kind == state.EventTrajectory && state.TrajectoryState(e.State).Ended():
			err = m.closed(e)
		case e.Kind == state.EventJob && state.JobState(e.State) == state.JobRunning:
			err = m.placeJob(e)
		case e.Kind == state.EventTurn && state.TurnState(e.State) == state.TurnHeld:
			err = m.grantTurn(e)
		default:
			err = fmt.Errorf("event %d is %s, which nothing causes", e.Revision, describe(e))
		}
		if err != nil {
			return err
		}
	}
}

// grant judges the start of an attempt and takes what it was given.
func (m *Model) grant(e state.Event) error {
	a := m.actions[state.ActionID(e.Subject)]
	if a == nil || a.State != state.ActionQueued {
		return fmt.Errorf("action %d was granted, which is not queued", e.Subject)
	}
	if a.Gang != 0 {
		return m.grantGang(a)
	}
	n, at, err := m.granted(a, e)
	if err != nil {
		return err
	}
	turn := m.isItsTurn
	if a.GPUs() != nil {
		turn = func(a *action, n *node) error { return m.isItsTurnForGPUs(a, n, at) }
	}
	for _, err := range []error{turn(a, n), m.bestNode(a, n)} {
		if err != nil {
			return err
		}
	}
	return m.takes(a, n, at)
}

// granted returns the node and the attempt of an action that was granted, if it may run there.
func (m *Model) granted(a *action, e state.Event) (*node, *state.Attempt, error) {
	n, at := m.nodeByID[e.Node], m.s.Attempt(e.Node, a.ID)
	if n == nil || at == nil {
		return nil, nil, fmt.Errorf("action %d was granted on node %d, where it has no attempt", a.ID, e.Node)
	}
	for _, err := range []error{m.mayRun(a, n), m.fits(a, n, at), m.fitsGPUs(a, n, at), m.withinLimits(a, at)} {
		if err != nil {
			return nil, nil, err
		}
	}
	return n, at, nil
}

// takes gives an action what it was granted.
func (m *Model) takes(a *action, n *node, at *state.Attempt) error {
	if a.charged = m.charge(a, at); a.charged != at.ChargedUS && at.Number == a.Attempt+1 {
		return fmt.Errorf("namespace %d was charged %d for action %d, must be %d", a.Namespace, at.ChargedUS, a.ID, a.charged)
	}
	m.leaveQueue(a)
	a.State, a.Node, a.StartedAt = state.ActionRunning, n.ID, m.now
	a.Attempt++
	a.cores, a.reserved, a.incarnation = at.Cores, at.Reserved, n.Incarnation
	a.follow(n, at, m.now)
	if a.follows {
		n.Spare += uint32(at.Cores.Len()) - a.CoresMin
	}
	n.Free = n.Free.Minus(at.Cores)
	n.FreeMemory -= at.Reserved
	n.FreeBandwidth -= at.Bandwidth
	m.takeGPUs(n, a, at.Chunk)
	if a.GPUs() != nil {
		a.setUp = at.SetUpNS
		m.onlyArrivals = m.onlyArrivals && a.ReservedOn == 0
	}
	n.Running++
	n.running = append(n.running, a)
	n.served = n.served || a.passed > 0
	m.counts.Running++
	m.touchAction(a)
	m.touchNode(n)
	return m.emit(a, a.event())
}

// mayRun: the node takes this action, and the action has an attempt left.
func (m *Model) mayRun(a *action, n *node) error {
	switch {
	case a.pool.halted:
		return fmt.Errorf("action %d was granted, and its pool %s is halted", a.ID, a.pool.name)
	case n.State != state.NodeUp:
		return fmt.Errorf("action %d was granted on node %s, which is down", a.ID, n.Name)
	case n.pool != a.pool:
		return fmt.Errorf("action %d of pool %s was granted on node %s of pool %s", a.ID, a.pool.name, n.Name, n.pool.name)
	case a.Trajectory == 0 && n.Draining:
		return fmt.Errorf("action %d was granted on node %s, which is draining", a.ID, n.Name)
	case a.Trajectory != 0 && m.trajectories[a.Trajectory].State != state.TrajectoryOpen:
		return fmt.Errorf("action %d was granted, and its trajectory %d is not open", a.ID, a.Trajectory)
	case a.Trajectory != 0 && m.trajectories[a.Trajectory].Paused():
		return fmt.Errorf("action %d was granted, and its trajectory %d is paused", a.ID, a.Trajectory)
	case a.Trajectory != 0 && a.Node != n.ID:
		return fmt.Errorf("action %d was granted on node %s, which is not its trajectory's", a.ID, n.Name)
	case a.Attempt >= a.AttemptsMax:
		return fmt.Errorf("action %d was granted attempt %d, at most %d are allowed", a.ID, a.Attempt+1, a.AttemptsMax)
	}
	return nil
}

// fits: the cores are free, as many as it must get and from the right NUMA
// nodes, and so is the memory.
func (m *Model) fits(a *action, n *node, at *state.Attempt) error {
	reserved, limit := a.reserves(), a.Memory
	if a.Trajectory != 0 && a.Memory == 0 {
		limit = m.trajectories[a.Trajectory].Memory
	}
	if err := m.isWide(a, n, at.Cores.Len()); err != nil {
		return err
	}
	switch {
	case !n.Resizes && at.Cores.Minus(n.Free) != state.CoreSet{}:
		return fmt.Errorf("action %d was granted cores %v of node %s, where only %v are free", a.ID, at.Cores.Slice(), n.Name, n.Free.Slice())
	case at.Reserved != reserved || at.Limit != limit || reserved > n.FreeMemory:
		return fmt.Errorf("action %d was granted %d bytes with a limit of %d on node %s, must be %d and %d of %d free", a.ID, at.Reserved, at.Limit, n.Name, reserved, limit, n.FreeMemory)
	case at.Bandwidth != a.Bandwidth() || at.Bandwidth > n.FreeBandwidth:
		return fmt.Errorf("action %d was granted %d bit/s on node %s, must be %d of %d free", a.ID, at.Bandwidth, n.Name, a.Bandwidth(), n.FreeBandwidth)
	case at.StartedAt != m.now || at.Stop && !m.endsLater(a):
		return fmt.Errorf("action %d was granted at %d, and is to stop: %v; must be at %d", a.ID, at.StartedAt, at.Stop, m.now)
	case at.Number != a.Attempt+1 || at.Incarnation != n.Incarnation:
		return fmt.Errorf("action %d was granted attempt %d of incarnation %d, must be %d and %d", a.ID, at.Number, at.Incarnation, a.Attempt+1, n.Incarnation)
	}
	if n.Resizes { // what others gave up for it is not known
		return nil
	}
	return numaOrder(a, n, at.Cores)
}

// ofGang: the action of an event belongs to a gang.
func (m *Model) ofGang(e state.Event) bool {
	a := m.actions[state.ActionID(e.Subject)]
	return a != nil && a.Gang != 0
}

// endsLater: the trajectory of an action is closed further on in the same entry, by the review of
// its rollout.
func (m *Model) endsLater(a *action) bool {
	t := m.s.Trajectory(a.Trajectory)
	return t != nil && t.Rollout != 0 && t.State != state.TrajectoryOpen
}

func (a *action) reserves() uint64 {
	if a.Trajectory != 0 {
		return 0
	}
	return a.Memory
}

// numaOrder: cores come from the NUMA node with the fewest free ones that
// suffices; if none does, from as few as possible.
func numaOrder(a *action, n *node, cores state.CoreSet) error {
	want := cores.Len()
	if want == 0 {
		return nil
	}
	var free []int
	best, from, spanned := 0, 0, 0
	for _, numa := range n.NUMA {
		has := numa.Intersect(n.Free).Len()
		free = append(free, has)
		if has >= want && (best == 0 || has < best) {
			best = has
		}
		if numa.Intersect(cores) != (state.CoreSet{}) {
			from = has
			spanned++
		}
	}
	if best > 0 {
		if spanned != 1 || from != best {
			return fmt.Errorf("action %d got %d cores of node %s from %d NUMA nodes, one with %d free suffices", a.ID, want, n.Name, spanned, best)
		}
		return nil
	}
	fewest := 0
	for left := want; left > 0; fewest++ {
		most := 0
		for i := range free {
			if free[i] > free[most] {
				most = i
			}
		}
		left -= free[most]
		free[most] = 0
	}
	if spanned > fewest {
		return fmt.Errorf("action %d got %d cores of node %s from %d NUMA nodes, %d suffice", a.ID, want, n.Name, spanned, fewest)
	}
	return nil
}

// bestNode: where an action that just arrived, and that nothing older waits
// with, is placed freely, it is on the node with the most available cores that has the
// memory and is not reserved. Nodes may be reserved for a moment for who has no cores.
func (m *Model) bestNode(a *action, n *node) error {
	if !m.onlyArrivals || a.CoresMin == 0 || a.Trajectory != 0 || a.GPUs() != nil || a.pool.queue.waiting[0] != a ||
		m.mayBeElastic(a.pool) || a.pool.coreless.olderThan(a) {
		return nil
	}
	for _, o := range a.pool.nodes {
		kept := o.ReservedFor != 0 || m.reservedFor(o) != 0 || len(o.queue.waiting) > 0 // or about to be
		if o.usable() && !kept && o.FreeMemory >= a.Memory && o.FreeBandwidth >= a.Bandwidth() && o.available() > n.available() {
			return fmt.Errorf("action %d was granted on node %s with %d free cores, node %s has %d", a.ID, n.Name, n.available(), o.Name, o.available())
		}
	}
	return nil
}

// reservedFor is the action that a node is reserved for after the entry.
func (m *Model) reservedFor(n *node) state.ActionID {
	if row := m.s.Node(n.ID); row != nil {
		return row.ReservedFor
	}
	return 0
}

// place judges the choice of a node for a trajectory: the oldest that waits, on
// the usable node with the fewest of its group in its domain, and of these the one
// with the most free memory.
func (m *Model) place(e state.Event) error {
	t, n := m.trajectories[state.TrajectoryID(e.Subject)], m.nodeByID[e.Node]
	switch {
	case t == nil || t.State != state.TrajectoryPending || m.olderPending(t):
		return fmt.Errorf("trajectory %d was opened, which is not the oldest that waits", e.Subject)
	case n == nil || !n.usable() || n.pool != t.pool || t.pool.halted:
		return fmt.Errorf("trajectory %d was opened on node %d, which takes none of its pool", t.ID, e.Node)
	case n.FreeMemory < t.Memory || len(n.hosted) >= hostedMax || !n.hosts(t):
		return fmt.Errorf("trajectory %d of %d bytes was opened on node %s with %d free and %d trajectories", t.ID, t.Memory, n.Name, n.FreeMemory, len(n.hosted))
	}
	if better := m.betterHome(t, n); better != nil {
		return fmt.Errorf("trajectory %d was opened on node %s with %d bytes free, %d trajectories and %d of its group in its domain, node %s has %d, %d and %d",
			t.ID, n.Name, n.FreeMemory, len(n.hosted), m.together(t, n), better.Name, better.FreeMemory, len(better.hosted), m.together(t, better))
	}
	m.onlyArrivals = false
	return m.moveIn(t, n)
}

// moveIn opens a trajectory on a node.
func (m *Model) moveIn(t *trajectory, n *node) error {
	m.usedMemory(t)
	t.pool.pending = remove(t.pool.pending, t)
	t.State, t.Node = state.TrajectoryOpen, n.ID
	if t.spread() {
		t.Spread.Domain = n.label(t.Spread.Label)
	}
	n.FreeMemory -= t.Memory
	n.Trajectories++
	n.hosted = append(n.hosted, t)
	for _, a := range t.live {
		a.Node = n.ID
		m.queueOf(a).add(a)
		m.touchAction(a)
	}
	m.touchTrajectory(t)
	m.touchNode(n)
	if m.level >= levelResizing {
		m.mayHaveWorker(t)
	}
	return m.expect(t.event())
}

// olderPending: an older trajectory waits that a usable node could hold, and did not
// wait aside until now.
func (m *Model) olderPending(t *trajectory) bool {
	for _, o := range t.pool.pending {
		if o == t {
			return false
		}
		if row := m.s.Trajectory(o.ID); !o.Aside && (row == nil || !row.Aside) {
			return true
		}
	}
	return true
}

// betterHome returns a node that the trajectory should have been given instead.
func (m *Model) betterHome(t *trajectory, n *node) *node {
	if len(t.pool.nodes) > choices {
		return nil
	}
	load := func(n *node) int { return len(n.hosted) * 1_000_000 / max(1, n.Cores().Len()) }
	for _, o := range t.pool.nodes {
		if !o.usable() || len(o.hosted) >= hostedMax || o.FreeMemory < t.Memory || !o.hosts(t) {
			continue
		}
		if cmp.Or(cmp.Compare(m.together(t, o), m.together(t, n)), cmp.Compare(n.FreeMemory, o.FreeMemory), cmp.Compare(load(o), load(n))) < 0 {
			return o
		}
	}
	return nil
}

// cancelWithTrajectory judges the end of a queued action of a closing
// trajectory.
func (m *Model) cancelWithTrajectory(e state.Event) error {
	a := m.actions[state.ActionID(e.Subject)]
	if a == nil || a.State != state.ActionQueued || a.Trajectory == 0 || m.trajectories[a.Trajectory].State != state.TrajectoryClosing {
		return fmt.Errorf("action %d was canceled, which is not queued in a closing trajectory", e.Subject)
	}
	return m.emit(a, m.end(a, state.ActionCanceled, &state.Result{Reason: state.EndTrajectoryEnded}))
}

// closed judges the end of a trajectory, which gives its memory back.
func (m *Model) closed(e state.Event) error {
	t := m.trajectories[state.TrajectoryID(e.Subject)]
	if t == nil || t.State != state.TrajectoryClosing || len(t.live) > 0 {
		return fmt.Errorf("trajectory %d ended, which is not closing or has live actions", e.Subject)
	}
	m.usedMemory(t)
	if n := m.nodeByID[t.Node]; n != nil {
		n.FreeMemory += t.Memory
		n.Trajectories--
		n.hosted = remove(n.hosted, t)
		m.touchNode(n)
		m.onlyArrivals = false
	}
	t.State, t.EndedAt = state.TrajectoryClosed, m.now
	if t.EndReason == state.EndNodeLost {
		t.State = state.TrajectoryLost
	}
	m.counts.OpenTrajectories--
	m.due.push(deadline{at: t.EndedAt + m.settings.RetentionNS, id: uint64(t.ID), kind: dropTrajectory})
	m.touchTrajectory(t)
	return m.expect(t.event())
}
