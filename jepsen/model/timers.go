package model

import (
	"fmt"

	"rota/fsm/state"
)

// fireTimers does what is due by log time. One entry does no more than
// stepsPerEntry of it; what is left is due at once with the next.
func (m *Model) fireTimers() error {
	m.fireStaged()
	due, left := m.takeDue()
	m.dropRollouts(left)
	var events []deadline
	for _, d := range due {
		switch d.kind {
		case closeIdle:
			if t := m.trajectories[state.TrajectoryID(d.id)]; m.pausesNext(t) {
				if !m.timeIsOver(t, left) {
					m.due.push(d)
					continue
				}
				break
			}
			events = append(events, d)
			continue
		case expireAction, stopTurn, dropJob:
			events = append(events, d)
			continue
		case forgetRequest:
			if !m.forget(d, left) {
				m.due.push(d)
				continue
			}
		case dropTrajectory:
			if left && m.s.Trajectory(state.TrajectoryID(d.id)) != nil {
				m.due.push(d)
				continue
			}
			if err := m.dropTrajectory(state.TrajectoryID(d.id)); err != nil {
				return err
			}
		case migrationDue:
			if !m.fireMigration(d, left) {
				m.due.push(d)
				continue
			}
		case dropRollout:
			if !m.fireRollout(m.rollouts.all[state.RolloutID(d.id)], left) {
				m.due.push(d)
				continue
			}
		case dropTurn:
			if err := m.fireLedger(d, left); err != nil {
				return err
			}
		}
		m.budget--
	}
	m.fireTokens(left)
	m.fireWorkers(left)
	if err := m.fireEvents(events, left); err != nil {
		return err
	}
	return m.dropActions(left)
}

// takeDue takes what is due out of the heap, and says whether that is more than
// one entry does.
func (m *Model) takeDue() (due []deadline, left bool) {
	for len(m.due) > 0 && m.due[0].at <= m.now {
		d := m.due.pop()
		again := len(due) > 0 && due[len(due)-1] == d // it waited twice until the same time
		if !again && m.stillDue(d) {
			due = append(due, d)
		}
	}
	n := len(due) + m.tokensDue()
	for _, d := range due {
		if d.kind == dropRollout {
			n += len(m.rollouts.all[state.RolloutID(d.id)].groups)
		}
		if t := m.trajectories[state.TrajectoryID(d.id)]; d.kind == closeIdle && m.pausesNext(t) {
			n += len(t.live)
		}
	}
	for _, d := range m.ended {
		if n > m.budget {
			break
		}
		if d.at+m.settings.RetentionNS <= m.now {
			n++
		}
	}
	return due, n > m.budget
}

// stillDue: nothing happened meanwhile that put it off for good.
func (m *Model) stillDue(d deadline) bool {
	switch d.kind {
	case forgetRequest:
		r := m.requests[d.request]
		return r != nil && r.expires == d.at
	case expireAction:
		a := m.actions[state.ActionID(d.id)]
		return a != nil && a.State == state.ActionQueued && a.QueueDeadline == d.at
	case migrationDue:
		row := m.migrations.all[state.MigrationID(d.id)]
		return row != nil && m.dueAt(row) == d.at
	case dropRollout:
		return m.rollouts.all[state.RolloutID(d.id)] != nil
	case closeIdle:
		t := m.trajectories[state.TrajectoryID(d.id)]
		return t != nil && t.State < state.TrajectoryClosing && t.closesAt() == d.at
	}
	return m.ledgerStillDue(d)
}

// forget drops a request ID. If not everything that is due was done, the state
// says whether this was.
func (m *Model) forget(d deadline, left bool) bool {
	if r := m.s.Request(d.request); left && r != nil && r.Expires == d.at {
		return false
	}
	if r := m.requests[d.request]; r != nil {
		m.requestsOf[r.namespace]--
	}
	delete(m.requests, d.request)
	return true
}

func (m *Model) dropTrajectory(id state.TrajectoryID) error {
	delete(m.trajectories, id)
	delete(m.workers.generations, id)
	delete(m.workers.traces, id)
	m.workers.touched[id] = true
	if m.s.Trajectory(id) != nil {
		return fmt.Errorf("trajectory %d ended more than %d ns ago and is still kept", id, m.settings.RetentionNS)
	}
	return nil
}

// fireEvents does the timers that end something, in the order of the events.
func (m *Model) fireEvents(due []deadline, left bool) error {
	for len(due) > 0 {
		e, ok := m.peek()
		i := 0
		for ok && i < len(due) && !due[i].causes(e) {
			i++
		}
		if !ok || i == len(due) {
			break
		}
		if err := m.fireEvent(due[i]); err != nil {
			return err
		}
		m.budget--
		due[i] = due[0]
		due = due[1:]
	}
	if len(due) > 0 && !left {
		return fmt.Errorf("%s was due at %d and did not happen at %d", due[0], due[0].at, m.now)
	}
	for _, d := range due {
		m.due.push(d)
		if d.kind == closeIdle { // before it fires, the trajectory may get an action
			m.watchDeadline(m.trajectories[state.TrajectoryID(d.id)])
		}
	}
	if m.budget < 0 {
		return fmt.Errorf("more than %d timers fired", stepsPerEntry)
	}
	return nil
}

func (d deadline) String() string {
	switch d.kind {
	case expireAction:
		return fmt.Sprintf("the queue timeout of action %d", d.id)
	case stopTurn:
		return fmt.Sprintf("the limit of turn %d", d.id)
	case dropJob:
		return fmt.Sprintf("the retention of job %d", d.id)
	}
	return fmt.Sprintf("the idle timeout or the deadline of trajectory %d", d.id)
}

func (d deadline) causes(e state.Event) bool {
	switch d.kind {
	case expireAction:
		return e.Kind == state.EventAction && e.Subject == d.id && state.ActionState(e.State) == state.ActionExpired
	case stopTurn:
		return e.Kind == state.EventTurn && e.Subject == d.id && state.TurnState(e.State) == state.TurnHeld
	case dropJob:
		return e.Kind == state.EventJob && e.Subject == d.id && state.JobState(e.State) == state.JobDeleted
	}
	return e.Kind == state.EventTrajectory && e.Subject == d.id && state.TrajectoryState(e.State) == state.TrajectoryClosing
}

func (m *Model) fireEvent(d deadline) error {
	switch d.kind {
	case expireAction:
		a := m.actions[state.ActionID(d.id)]
		return m.emit(a, m.end(a, state.ActionExpired, &state.Result{Reason: state.EndQueueTimeout}))
	case stopTurn, dropJob:
		return m.fireLedger(d, false)
	}
	return m.expect(m.beginClose(m.trajectories[state.TrajectoryID(d.id)], state.EndTrajectoryEnded))
}

// dropActions forgets ended actions, oldest first, that were kept for long
// enough or that are too many bytes.
func (m *Model) dropActions(left bool) error {
	for len(m.ended) > 0 {
		oldest := m.ended[0]
		kept := m.s.Action(state.ActionID(oldest.id)) != nil
		must := oldest.at+m.settings.RetentionNS <= m.now || m.endedSize > m.settings.RetentionBytesMax
		switch {
		case kept && (!must || left || m.budget <= 0):
			return nil
		case kept:
			return fmt.Errorf("action %d ended at %d and is still kept at %d, with %d bytes of ended actions", oldest.id, oldest.at, m.now, m.endedSize)
		case !must:
			return fmt.Errorf("action %d ended at %d and is dropped at %d already, with %d bytes of ended actions", oldest.id, oldest.at, m.now, m.endedSize)
		}
		m.ended.pop()
		m.budget--
		a := m.actions[state.ActionID(oldest.id)]
		m.endedSize -= a.size()
		m.counts.Ended--
		delete(m.actions, a.ID)
	}
	return nil
}
