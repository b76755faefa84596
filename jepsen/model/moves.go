package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"rota/fsm/state"
)

// The moves that commands, timers and the scheduler are made of. Each changes
// the model and returns the event that must tell of it.

func (a *action) event() state.Event {
	e := state.Event{
		Kind: state.EventAction, Subject: uint64(a.ID), State: uint8(a.State), Namespace: a.Namespace,
		Trajectory: a.Trajectory, Node: a.Node, Attempt: a.Attempt,
	}
	if a.Result != nil {
		e.Reason, e.ExitCode = a.Result.Reason, a.Result.ExitCode
	}
	return e
}

func (t *trajectory) event() state.Event {
	return state.Event{
		Kind: state.EventTrajectory, Subject: uint64(t.ID), State: uint8(t.State),
		Namespace: t.Namespace, Trajectory: t.ID, Node: t.Node, Reason: t.EndReason,
	}
}

func (n *node) event() state.Event {
	return state.Event{Kind: state.EventNode, Subject: uint64(n.ID), Node: n.ID, State: uint8(n.State)}
}

// emit expects the event of an action, which carries its revision from then on.
func (m *Model) emit(a *action, e state.Event) error {
	err := m.expect(e)
	a.Revision = m.revision
	return err
}

// change is an event that must come, and the action it is about if it is.
type change struct {
	event  state.Event
	action *action
}

// expectAll takes as many events as there are changes: exactly these, in an
// order that the documents leave open.
func (m *Model) expectAll(changes []change) error {
	position := func(e state.Event) uint64 { return uint64(e.Kind)<<60 | e.Subject }
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(position(a.event), position(b.event)) })
	taken := make([]bool, len(changes))
	for range changes {
		e, ok := m.peek()
		if !ok {
			return fmt.Errorf("event %d is missing", m.revision+1)
		}
		i, found := slices.BinarySearchFunc(changes, position(e), func(c change, p uint64) int { return cmp.Compare(position(c.event), p) })
		if !found || taken[i] {
			return fmt.Errorf("event %d is %s, which nothing causes", e.Revision, describe(e))
		}
		taken[i] = true
		if err := m.expect(changes[i].event); err != nil {
			return err
		}
		if a := changes[i].action; a != nil {
			a.Revision = m.revision
		}
	}
	return nil
}

// release gives back what a live attempt holds.
func (m *Model) release(a *action) {
	n := m.nodeByID[a.Node]
	m.usedAttempt(a)
	m.settleShare(a)
	n.Free = n.Free.Union(a.cores)
	n.Spare -= a.spare()
	n.sharesLess(a)
	n.FreeMemory += a.reserved
	n.FreeBandwidth += a.Bandwidth()
	m.giveBackGPUs(n, a)
	n.running = remove(n.running, a)
	n.Running--
	n.chose = nil
	a.cores, a.reserved, a.incarnation, a.follows = state.CoreSet{}, 0, 0, false
	a.ice, a.pause, a.width = state.IceNone, 0, 0
	m.counts.Running--
	m.touchNode(n)
	m.onlyArrivals = false
}

// end gives an action its final state; a live attempt was released before.
func (m *Model) end(a *action, s state.ActionState, r *state.Result) state.Event {
	if a.State == state.ActionQueued {
		m.leaveQueue(a)
		if a.ReservedOn != 0 { // its node is free for others again
			m.onlyArrivals = false
		}
	}
	m.giveBack(a)
	a.State, a.Result, a.EndedAt = s, r, m.now
	m.hookOver(a)
	m.usedAction(a)
	m.replicaOver(a)
	m.memberEnded(a)
	m.counts.Ended++
	if a.class != nil {
		a.class.live--
		m.touchClass(a.class)
	}
	m.endedSize += a.size()
	m.ended.push(deadline{at: m.now, id: uint64(a.ID), kind: dropAction})
	m.touchAction(a)
	if t := m.trajectories[a.Trajectory]; t != nil {
		t.live = remove(t.live, a)
		if t.Live--; t.Live == 0 {
			m.alive(t)
		}
		m.touchTrajectory(t)
	}
	return a.event()
}

// enqueue makes a new action, or one whose attempt was lost, wait.
func (m *Model) enqueue(a *action) state.Event {
	a.State = state.ActionQueued
	a.passed, a.passedAt = 0, 0
	if q := m.queueOf(a); q != nil {
		q.add(a)
	}
	m.counts.Queued++
	m.queueSize += a.size()
	if a.QueueDeadline != 0 {
		m.due.push(deadline{at: a.QueueDeadline, id: uint64(a.ID), kind: expireAction})
	}
	m.touchAction(a)
	m.touchPool(a.pool)
	return a.event()
}

func (m *Model) leaveQueue(a *action) {
	if q := m.queueOf(a); q != nil {
		q.remove(a)
	}
	m.counts.Queued--
	m.queueSize -= a.size()
	m.touchPool(a.pool)
}

// alive: a trajectory shows a sign of life. It is not idle while rota has it wait for a node or a worker.
func (m *Model) alive(t *trajectory) {
	waits := lacksMemory(t) || m.waitsForWorker(m.workers.generations[t.ID])
	t.IdleSince = m.now
	if waits && t.IdleTimeoutNS > 0 && m.level >= levelResizing {
		t.IdleSince = math.MaxInt64
	}
	m.watchIdle(t)
	m.touchTrajectory(t)
}

// aliveIfIdle is alive, for what is none while an action is live.
func (m *Model) aliveIfIdle(id state.TrajectoryID) {
	if t := m.trajectories[id]; t.IdleTimeoutNS > 0 && len(t.live) == 0 {
		m.alive(t)
	}
}

func (m *Model) watchIdle(t *trajectory) {
	if t.IdleTimeoutNS > 0 && t.State < state.TrajectoryClosing && !t.Paused() {
		m.due.push(deadline{at: t.idleUntil(), id: uint64(t.ID), kind: closeIdle})
	}
}

// lose settles an action whose attempt was lost: another attempt if its policy
// and its trajectory allow one, else the end.
func (m *Model) lose(a *action, reason state.EndReason, r *state.Result) state.Event {
	t := m.trajectories[a.Trajectory]
	switch {
	case a.CancelReason != 0:
		r.Reason = a.CancelReason
		return m.end(a, state.ActionCanceled, r)
	case a.Attempt < a.AttemptsMax && (t == nil || t.State == state.TrajectoryOpen):
		if a.QueueDeadline != 0 { // the time that it ran was not spent in the queue
			a.QueueDeadline += m.now - a.StartedAt
		}
		m.giveBack(a)
		return m.enqueue(a)
	}
	r.Reason = reason
	return m.end(a, state.ActionLost, r)
}

// beginClose starts the end of a trajectory that has not begun to end.
func (m *Model) beginClose(t *trajectory, reason state.EndReason) state.Event {
	if t.State == state.TrajectoryPending {
		t.pool.pending = remove(t.pool.pending, t)
	}
	t.State, t.EndReason = state.TrajectoryClosing, reason
	m.endGeneration(t, reason)
	m.leave(t)
	m.touchTrajectory(t)
	m.touchPool(t.pool)
	return t.event()
}

// loseNode settles everything that ran or lived on a node. Its trajectories end
// first, so that none of their actions is queued again.
func (m *Model) loseNode(n *node) (changes []change) {
	m.loseSnapshots(n)
	for _, t := range n.hosted {
		if t.State < state.TrajectoryClosing {
			changes = append(changes, change{m.beginClose(t, state.EndNodeLost), nil})
		}
	}
	for _, a := range slices.Clone(n.running) {
		m.release(a)
		changes = append(changes, change{m.lose(a, state.EndNodeLost, &state.Result{Message: m.words(a)}), a})
	}
	return changes
}

// words are those in which the state says why an attempt was lost; any will do.
func (m *Model) words(a *action) string {
	if row := m.s.Action(a.ID); row != nil && row.Result != nil {
		return row.Result.Message
	}
	return ""
}

// cancel ends a queued action, has a running one stopped, and leaves an ended
// one alone. A running one tells of it when it has ended.
func (m *Model) cancel(a *action, reason state.EndReason) (changed bool, err error) {
	switch {
	case a.State == state.ActionQueued:
		return true, m.emit(a, m.end(a, state.ActionCanceled, &state.Result{Reason: reason}))
	case a.State == state.ActionRunning && a.CancelReason == 0:
		a.CancelReason = reason
		m.stopsThawing(a)
		m.touchAction(a)
		return true, nil
	}
	return false, nil
}
