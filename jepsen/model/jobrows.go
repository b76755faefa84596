package model

import (
	"bytes"
	"fmt"
	"slices"

	"rota/fsm/state"
)

// fireLedger does a timer of turns or jobs.
func (m *Model) fireLedger(d deadline, left bool) error {
	switch d.kind {
	case stopTurn:
		t := m.turns[state.TurnID(d.id)]
		t.Stop = true
		return m.tellTurn(t)
	case dropJob:
		return m.dropJob(m.jobByID[state.JobID(d.id)])
	}
	if left && m.s.Turn(state.TurnID(d.id)) != nil {
		m.due.push(d)
		return nil
	}
	return m.dropTurn(state.TurnID(d.id))
}

func (m *Model) ledgerStillDue(d deadline) bool {
	switch d.kind {
	case stopTurn:
		t := m.turns[state.TurnID(d.id)]
		return t != nil && t.held() && !t.Stop
	case dropTurn:
		return m.turns[state.TurnID(d.id)] != nil
	case dropJob:
		j := m.jobByID[state.JobID(d.id)]
		return j != nil && j.State == state.JobCompleted && len(j.turns) == 0
	}
	return true
}

// compareLedger compares what the entry changed of groups, jobs and turns.
func (m *Model) compareLedger() error {
	for _, g := range m.groups {
		if g.reservations() == 0 {
			g.Period = 0
		}
		if err := m.compareNodeGroup(g); err != nil {
			return err
		}
		if g.moved {
			if err := m.judgeReservations(g); err != nil {
				return err
			}
		}
		if err := m.nobodyWaitsInVain(g); err != nil {
			return err
		}
	}
	for _, j := range m.touchedJobs {
		j.touched = false
		if err := m.compareJob(j); err != nil {
			return err
		}
	}
	for _, t := range m.touchedTurns {
		t.touched = false
		if err := m.compareTurn(t); err != nil {
			return err
		}
	}
	return m.placesTheSimple()
}

// placesTheSimple: a job for which there is a group without others does not wait.
func (m *Model) placesTheSimple() error {
	if m.halted || m.s.HasWork() || m.timersLeft() {
		return nil
	}
	for _, j := range m.jobByID {
		for _, g := range m.groups {
			if j.State == state.JobQueued && (j.Backfill || g.reservations() == 0) && g.Nodes >= j.width() {
				return fmt.Errorf("job %d is queued, and group %s has room for it: %q", j.ID, g.Name, m.s.Job(j.ID).Message)
			}
		}
	}
	return nil
}

func (m *Model) compareNodeGroup(g *nodeGroup) error {
	got := m.s.NodeGroup(g.ID)
	if got == nil {
		return fmt.Errorf("group %s is missing", g.Name)
	}
	x, y := *got, g.NodeGroup
	same := sameContextSwitch(x.ContextSwitch, y.ContextSwitch)
	x.WakeAt, y.WakeAt, x.ContextSwitch, y.ContextSwitch = 0, 0, nil, nil
	x.Members, y.Members = state.Members{}, state.Members{}
	if !same || fmt.Sprint(x) != fmt.Sprint(y) {
		return fmt.Errorf("group %s is %+v, must be %+v", g.Name, x, y)
	}
	return m.compareMembers(g)
}

// compareJob compares a row with what it must be. Why it is where it is, is the state
// machine's to say.
func (m *Model) compareJob(j *job) error {
	got := m.s.Job(j.ID)
	if m.jobByID[j.ID] == nil {
		if got != nil {
			return fmt.Errorf("job %d was deleted and is there", j.ID)
		}
		return nil
	}
	if got == nil {
		return fmt.Errorf("job %d is missing", j.ID)
	}
	x, y := *got, j.Job
	x.Shift, x.StretchPPM, x.Cost, x.InterferencePPM, x.Message = y.Shift, y.StretchPPM, y.Cost, y.InterferencePPM, y.Message
	same := slices.EqualFunc(x.Ran, y.Ran, sameRan) && slices.EqualFunc(x.Deployments, y.Deployments, sameDeployment) && sameCycle(&x.Cycle, &y.Cycle)
	x.Ran, y.Ran, x.Deployments, y.Deployments, x.Cycle, y.Cycle = nil, nil, nil, nil, state.Cycle{}, state.Cycle{}
	if !same || fmt.Sprint(x) != fmt.Sprint(y) {
		return fmt.Errorf("job %d is %+v, must be %+v", j.ID, *got, j.Job)
	}
	return m.compareReservation(j)
}

// compareReservation: who does not run has none.
func (m *Model) compareReservation(j *job) error {
	if row := m.s.Reservation(j.ID); (row != nil) != (j.reservation != nil) {
		return fmt.Errorf("job %d in state %d has reservation %+v, must be %+v", j.ID, j.State, row, j.reservation)
	}
	return nil
}

// sameRan: by how much its set-up is put before it, is the state machine's to say.
func sameRan(a, b state.Ran) bool { return a.Start == b.Start && a.End == b.End }

func sameDeployment(a, b state.Deployment) bool {
	return a.Name == b.Name && a.SetUpNS == b.SetUpNS && slices.Equal(a.ExecNS, b.ExecNS) &&
		bytes.Equal(a.Sleep, b.Sleep) && bytes.Equal(a.Wake, b.Wake) && bytes.Equal(a.Prefetch, b.Prefetch)
}

func (m *Model) compareTurn(t *turn) error {
	got := m.s.Turn(t.ID)
	if m.turns[t.ID] == nil {
		return nil // which was seen when it was dropped
	}
	if got == nil {
		return fmt.Errorf("turn %d is missing", t.ID)
	}
	if *got != t.Turn {
		return fmt.Errorf("turn %d is %+v, must be %+v", t.ID, *got, t.Turn)
	}
	return nil
}

// compareAllOfLedger compares everything about groups, jobs and turns.
func (m *Model) compareAllOfLedger() error {
	for _, g := range m.groups {
		if err := m.compareNodeGroup(g); err != nil {
			return err
		}
		if err := m.judgeReservations(g); err != nil {
			return err
		}
	}
	if err := compareAll(m.jobByID, m.compareJob); err != nil {
		return err
	}
	if err := compareAll(m.turns, m.compareTurn); err != nil {
		return err
	}
	turns := 0
	m.s.Turns(0, func(*state.Turn) bool { turns++; return true })
	if turns != len(m.turns) {
		return fmt.Errorf("there are %d turns, must be %d", turns, len(m.turns))
	}
	return nil
}
