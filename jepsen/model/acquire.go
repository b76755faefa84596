package model

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Turns: what clients ask for, and how turns end. Who gets a group when is judged in
// grants.go.

// How a turn ends.
const (
	turnYielded  = logv1.TurnEnd_TURN_END_YIELDED
	turnLost     = logv1.TurnEnd_TURN_END_LOST
	turnCanceled = logv1.TurnEnd_TURN_END_CANCELED
)

var turnEnds = map[logv1.TurnEnd]state.TurnState{turnYielded: state.TurnYielded, turnLost: state.TurnLost, turnCanceled: state.TurnCanceled}

func (m *Model) acquireTurn(c *logv1.AcquireTurn, got *logv1.Result) error {
	if done, err := m.replayed(c.Request, m.namespaces[orDefault(c.Namespace)], state.VerbAcquireTurn, 1, got); done {
		return err
	}
	var v verdict
	j := m.jobOf(c.Namespace, c.Job, &v)
	v.refuse(c.Deployment == "" || len(c.Deployment) > nameBytesMax, "INVALID")
	v.refuse(!turnTime(c.ExpectNs) || !turnTime(c.SetUpNs) || !turnTime(c.LimitNs) || c.Operation > operationLast, "INVALID")
	if j != nil {
		v.refuse(j.State == state.JobCompleted, "JOB_STATE")
		v.refuse(j.deployment(c.Deployment) < 0 && len(j.Deployments) >= jobDeploymentsMax, "TOO_MANY_DEPLOYMENTS")
		v.refuse(len(j.turns) >= jobTurnsMax, "TOO_MANY_TURNS")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.beginStep(j, c.Step)
	t := m.newTurn(j, c)
	if err := m.tellTurn(t); err != nil {
		return err
	}
	m.remember(c.Request, m.namespaces[orDefault(c.Namespace)], state.VerbAcquireTurn, uint64(t.ID), 1)
	return result(got, &logv1.Result{FirstId: uint64(t.ID), Count: 1})
}

func turnTime(ns int64) bool { return ns >= 0 && ns <= timeoutMax }

func (j *job) deployment(name string) int {
	return slices.IndexFunc(j.Deployments, func(d state.Deployment) bool { return d.Name == name })
}

func (m *Model) newTurn(j *job, c *logv1.AcquireTurn) *turn {
	i := j.deployment(c.Deployment)
	if i < 0 {
		i = len(j.Deployments)
		j.Deployments = append(slices.Clone(j.Deployments), state.Deployment{Name: c.Deployment})
	}
	d := &j.Deployments[i]
	m.lastTurn++
	t := &turn{job: j, Turn: state.Turn{
		ID: m.lastTurn, Deployment: j.Deployment(i), Operation: uint8(c.Operation), State: state.TurnWaiting, Step: j.Step,
		ExecNS: c.ExpectNs, SetUpNS: c.SetUpNs, LimitNS: c.LimitNs, Preemptible: c.Preemptible, ArrivedAt: m.now,
	}}
	if t.ExecNS == 0 && int(c.Operation) < len(d.ExecNS) {
		t.ExecNS = d.ExecNS[c.Operation]
	}
	if t.SetUpNS == 0 {
		t.SetUpNS = d.SetUpNS
	}
	if t.SetUpNS == 0 {
		t.SetUpNS = j.SetUpNS
	}
	m.turns[t.ID] = t
	j.turns = append(j.turns, t)
	j.Turns++
	m.touchJob(j)
	return t
}

// beginStep: a turn of another step begins a cycle, and ends the one before if the
// training has gone on.
func (m *Model) beginStep(j *job, step uint64) {
	if step == 0 || step == j.Step {
		return
	}
	if j.Step > 0 && step > j.Step {
		j.Cycles++
	}
	if j.Step > 0 && step > j.Step && j.reservation != nil {
		j.finished = true
		if !j.profiled && j.reservation.Dedicated && j.Clean && len(j.Ran) > 0 { // several steps may end in an entry
			j.profiled, j.ran = true, j.Ran
		}
		j.group.moved = true
	}
	j.Step, j.StepBegan, j.Ran, j.Clean = step, m.now, nil, true
	m.touchJob(j)
}

func (m *Model) endTurn(c *logv1.EndTurn, got *logv1.Result) error {
	t := m.turns[state.TurnID(c.TurnId)]
	var v verdict
	v.refuse(t == nil, "TURN_NOT_FOUND")
	end, known := turnEnds[c.Reason]
	v.refuse(!known || !turnTime(c.SetUpNs), "INVALID")
	if t != nil {
		v.refuse(c.Token != t.Token, "TURN_FENCED")
		v.refuse(!t.State.Live() && t.State != end, "TURN_ENDED")
		v.refuse(t.State == state.TurnWaiting && c.Reason == turnYielded, "TURN_WAITING")
		v.refuse(t.held() && t.settingUp(m.nodeGroup(t.Group)) && c.Reason == turnYielded, "TURN_SETTING_UP")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	if !t.State.Live() {
		return result(got, &logv1.Result{Replayed: true})
	}
	if t.held() {
		m.freeGroup(t, c)
	}
	m.endTurnAs(t, end)
	if err := m.tellTurn(t); err != nil {
		return err
	}
	if err := m.forgetDeleted(t.job); err != nil {
		return err
	}
	return result(got, &logv1.Result{Count: 1})
}

// freeGroup is the end of a turn that holds a group.
func (m *Model) freeGroup(t *turn, c *logv1.EndTurn) {
	j, g := t.job, m.nodeGroup(t.Group)
	g.turn, g.Turn = nil, 0
	j.YieldedAt = m.now
	j.HeldNS += m.now - t.GrantedAt
	if c.Reason != turnYielded {
		g.Resident, j.Clean = 0, false
		return
	}
	_, i := t.Deployment.Job()
	m.learnTimes(j, i, t, c)
	switch {
	case m.now == t.GrantedAt || t.Step != j.Step: // nothing to remember of this step
	case len(j.Ran) == ranMax:
		j.Clean = false
	default:
		j.Ran = append(slices.Clone(j.Ran), state.Ran{Start: t.GrantedAt, End: m.now})
	}
}

// learnTimes: what an operation took, without the set-up, and what that took.
func (m *Model) learnTimes(j *job, i int, t *turn, c *logv1.EndTurn) {
	j.Deployments = slices.Clone(j.Deployments)
	d := &j.Deployments[i]
	took := m.now - t.GrantedAt
	setUp := c.SetUpNs
	if t.ReadyAt > 0 {
		setUp += t.ReadyAt - t.GrantedAt
	}
	setUp = min(setUp, took)
	if t.SetUp && setUp > 0 {
		d.SetUpNS = setUp
	}
	for len(d.ExecNS) <= int(t.Operation) {
		d.ExecNS = append(slices.Clone(d.ExecNS), 0)
	}
	d.ExecNS = slices.Clone(d.ExecNS)
	d.ExecNS[t.Operation] = took - setUp
}

// endTurnAs makes a turn one of those that have ended.
func (m *Model) endTurnAs(t *turn, s state.TurnState) {
	t.State, t.EndedAt = s, m.now
	t.job.turns = remove(t.job.turns, t)
	t.job.Turns--
	m.due.push(deadline{at: m.now + m.settings.RetentionNS, id: uint64(t.ID), kind: dropTurn})
	m.touchTurn(t)
	m.touchJob(t.job)
	m.keepCompleted(t.job)
}

// keepCompleted has a job without live turns forgotten when it was kept for long
// enough.
func (m *Model) keepCompleted(j *job) {
	if j.State == state.JobCompleted && len(j.turns) == 0 {
		m.due.push(deadline{at: j.EndedAt + m.settings.RetentionNS, id: uint64(j.ID), kind: dropJob})
	}
}
