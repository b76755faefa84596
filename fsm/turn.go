package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Bounds of turns.
const (
	turnsPerJobMax = 1024
	operationMax   = 15
	turnNSMax      = 30 * 24 * 3600 * 1_000_000_000
	// ranMax is how many turns of a cycle are remembered for its profile.
	ranMax = 64
)

// acquireTurn puts an operation of a deployment into the queue of its job's group.
func (x *execution) acquireTurn(c *logv1.AcquireTurn) *logv1.Result {
	if r := x.replay(c.Request, x.named(c.Namespace), state.VerbAcquireTurn, 1); r != nil {
		return r
	}
	j, r := x.job(c.Namespace, c.Job)
	if r != nil {
		return r
	}
	switch {
	case c.Deployment == "" || len(c.Deployment) > nameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "a turn needs a deployment with a name of at most %d bytes", nameBytesMax)
	case c.Operation > operationMax:
		return refuse(codeInvalidArgument, "INVALID", "operation %d is not known", c.Operation)
	case !isTurnTime(c.ExpectNs) || !isTurnTime(c.SetUpNs) || !isTurnTime(c.LimitNs):
		return refuse(codeInvalidArgument, "INVALID", "expect, set_up and limit must not be negative nor longer than 30 days")
	case j.State == state.JobCompleted:
		return refuse(codeFailedPrecondition, "JOB_STATE", "job %q is completed; submit another", j.Name)
	case j.Turns >= turnsPerJobMax:
		return refuse(codeResourceExhausted, "TOO_MANY_TURNS", "job %q has %d live turns, which is the limit", j.Name, j.Turns)
	}
	k := *j
	i := k.Named(c.Deployment)
	if i < 0 {
		return refuse(codeResourceExhausted, "TOO_MANY_DEPLOYMENTS", "job %q has %d deployments, which is the limit", j.Name, state.DeploymentsMax)
	}
	x.step(&k, c.Step)
	k.Turns++
	x.s.PutJob(&k)
	m := *x.s.Meta()
	m.LastTurn++
	x.s.SetMeta(m)
	t := &state.Turn{
		ID: m.LastTurn, Deployment: k.Deployment(i), Operation: uint8(c.Operation), State: state.TurnWaiting, Step: k.Step,
		ExecNS: c.ExpectNs, SetUpNS: c.SetUpNs, LimitNS: c.LimitNs, Preemptible: c.Preemptible, ArrivedAt: x.now(),
	}
	t.Learn(&k)
	x.putTurn(t)
	if k.Group != 0 {
		x.closeGap(k.Group)
		x.dirty.add(state.QueueOf(state.TurnQueue, k.Group))
	}
	x.remember(c.Request, x.named(c.Namespace), state.VerbAcquireTurn, uint64(t.ID), 1)
	return &logv1.Result{FirstId: uint64(t.ID), Count: 1}
}

func isTurnTime(ns int64) bool { return ns >= 0 && ns <= turnNSMax }

// step notes which step of its training a job is at. The first turn of the next one
// ends the cycle before; a step that goes back is a restart, and begins a new one.
func (x *execution) step(j *state.Job, step uint64) {
	if step == 0 || step == j.Step {
		return
	}
	if j.Step > 0 && step > j.Step {
		x.finishCycle(j)
	}
	j.Step, j.StepBegan, j.Clean, j.Ran = step, x.now(), true, nil
}

// grantTurn gives a group to a turn.
func (x *execution) grantTurn(t *state.Turn, g *state.NodeGroup) {
	state.Assert(g.Turn == 0 && g.ContextSwitch == nil && t.State == state.TurnWaiting && g.Halted == "", "turn %d is granted group %s, which turn %d holds", t.ID, g.Name, g.Turn)
	m := *x.s.Meta()
	m.LastToken++
	x.s.SetMeta(m)
	u := *t
	u.State, u.Group, u.GrantedAt, u.Token = state.TurnHeld, g.ID, x.now(), m.LastToken
	u.SetUp = g.Resident != t.Deployment
	x.putTurn(&u)
	h := *g
	x.contextSwitch(&h, t.Deployment, u.Token)
	h.Turn, h.Resident, h.WakeAt = t.ID, t.Deployment, 0
	x.s.PutNodeGroup(&h)
}

// askToStop asks a holder to yield. It keeps the group until it has.
func (x *execution) askToStop(t *state.Turn) {
	if t.Stop {
		return
	}
	u := *t
	u.Stop = true
	x.putTurn(&u)
}

// How turns end.
const (
	endYielded  = logv1.TurnEnd_TURN_END_YIELDED
	endLost     = logv1.TurnEnd_TURN_END_LOST
	endCanceled = logv1.TurnEnd_TURN_END_CANCELED
)

var turnEnds = [...]state.TurnState{endYielded: state.TurnYielded, endLost: state.TurnLost, endCanceled: state.TurnCanceled}

var turnEndNames = [...]string{state.TurnYielded: "yielded", state.TurnLost: "lost, since its lease was not renewed", state.TurnCanceled: "canceled"}

// endTurn ends a turn, if the token is its own.
func (x *execution) endTurn(c *logv1.EndTurn) *logv1.Result {
	t := x.s.Turn(state.TurnID(c.TurnId))
	switch {
	case c.Reason < endYielded || c.Reason > endCanceled || !isTurnTime(c.SetUpNs):
		return refuse(codeInvalidArgument, "INVALID", "a turn ends for reason 1 to 3, and its set-up is not negative nor longer than 30 days")
	case t == nil:
		return refuse(codeNotFound, "TURN_NOT_FOUND", "turn %d does not exist, or ended long ago", c.TurnId)
	case t.Token != c.Token:
		return refuse(codeFailedPrecondition, "TURN_FENCED", "turn %d has another token than %d", c.TurnId, c.Token)
	case !t.State.Live() && t.State == turnEnds[c.Reason]:
		return &logv1.Result{Replayed: true}
	case !t.State.Live():
		return refuse(codeFailedPrecondition, "TURN_ENDED", "turn %d has ended: it was %s", c.TurnId, turnEndNames[t.State])
	case t.State == state.TurnWaiting && c.Reason == endYielded:
		return refuse(codeFailedPrecondition, "TURN_WAITING", "turn %d waits and has nothing to yield; cancel it", c.TurnId)
	case x.s.SettingUp(t) && c.Reason == endYielded:
		return refuse(codeFailedPrecondition, "TURN_SETTING_UP", "turn %d is still being set up and has nothing to yield; cancel it", c.TurnId)
	}
	if t.State == state.TurnHeld {
		x.leaveGroup(t, c)
	}
	x.overTurn(t, turnEnds[c.Reason])
	return &logv1.Result{Count: 1}
}

// leaveGroup frees the group of a turn, and learns from it. If its holder was lost,
// the state of the nodes is unknown.
func (x *execution) leaveGroup(t *state.Turn, c *logv1.EndTurn) {
	g := *x.s.NodeGroup(t.Group)
	state.Assert(g.Turn == t.ID, "turn %d yields group %s, which turn %d holds", t.ID, g.Name, g.Turn)
	g.Turn = 0
	if c.Reason != endYielded {
		g.Resident = 0
	}
	x.s.PutNodeGroup(&g)
	x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))

	id, i := t.Deployment.Job()
	j := *x.s.Job(id)
	j.HeldNS += x.now() - t.GrantedAt
	j.YieldedAt = x.now()
	if c.Reason == endYielded {
		x.learnTurn(&j, i, t, c.SetUpNs)
	} else {
		j.Clean = false
	}
	x.s.PutJob(&j)
}

// learnTurn keeps what an operation and its set-up really took, and when it ran.
func (x *execution) learnTurn(j *state.Job, i int, t *state.Turn, setUp int64) {
	took := x.now() - t.GrantedAt
	if t.ReadyAt != 0 { // hooks took their time before the holder took its own
		setUp += t.ReadyAt - t.GrantedAt
	}
	setUp = min(setUp, took)
	j.Deployments = slices.Clone(j.Deployments)
	d := &j.Deployments[i]
	if t.SetUp && setUp > 0 {
		d.SetUpNS = setUp
	}
	d.Learn(t.Operation, took-setUp)
	switch {
	case took == 0 || t.Step != j.Step: // nothing to reserve, or of a step that is over
	case len(j.Ran) >= ranMax:
		j.Clean = false
	default:
		j.Ran = append(slices.Clone(j.Ran), state.Ran{Start: t.GrantedAt, End: x.now(), LeadNS: x.lead(j, t)})
	}
}

// lead is what setting a turn up would take, had another job had the group before it.
func (x *execution) lead(j *state.Job, t *state.Turn) int64 {
	n := len(j.Ran)
	if t.SetUp || n > 0 && t.GrantedAt-j.Ran[n-1].End < x.settings().LedgerSlotNS {
		return 0
	}
	return t.SetUpNS
}

// overTurn ends a turn that holds nothing any more. A job that is being deleted goes
// with its last one.
func (x *execution) overTurn(t *state.Turn, s state.TurnState) {
	u := *t
	u.State, u.EndedAt = s, x.now()
	x.putTurn(&u)
	id, _ := t.Deployment.Job()
	j := *x.s.Job(id)
	if j.Turns--; j.Turns == 0 && j.Deleting {
		j.Deleting = false
		x.forgetJob(&j)
		return
	}
	x.s.PutJob(&j)
	if j.Group != 0 { // the next of its deployment comes up
		x.closeGap(j.Group)
		x.dirty.add(state.QueueOf(state.TurnQueue, j.Group))
	}
}

// turnDue asks a holder to stop that has had its group for as long as it may, and
// forgets a turn whose retention is over.
func (x *execution) turnDue(t *state.Turn) {
	if t.State.Live() {
		x.askToStop(t)
		return
	}
	x.s.DeleteTurn(t.ID)
}

// groupDue looks at a group again.
func (x *execution) groupDue(g *state.NodeGroup) {
	x.wakeGroupAt(x.countOverruns(g), 0)
	x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))
}

// putTurn stores a turn whose state changed, with the event that says so.
func (x *execution) putTurn(t *state.Turn) {
	id, _ := t.Deployment.Job()
	t.Revision = x.s.AddEvent(state.Event{
		Kind: state.EventTurn, Subject: uint64(t.ID), Namespace: x.s.Job(id).Namespace, State: uint8(t.State),
	})
	x.s.PutTurn(t)
}
