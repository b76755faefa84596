package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/ledger"
)

// Bounds of jobs.
const (
	jobsMax     = 4096
	segmentsMax = 64
)

// submitJob makes a job. It is placed by the scheduler, in this entry if a group has
// room.
func (x *execution) submitJob(c *logv1.SubmitJob) *logv1.Result {
	if r := x.replay(c.Request, x.named(c.Namespace), state.VerbSubmitJob, 1); r != nil {
		return r
	}
	ns, r := x.namespace(c.Namespace)
	if r != nil {
		return r
	}
	switch {
	case c.Name == "" || len(c.Name) > nameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "a job needs a name of at most %d bytes", nameBytesMax)
	case c.Nodes < 1 || c.Nodes > ledger.NodesMax:
		return refuse(codeInvalidArgument, "INVALID", "a job needs 1 to %d nodes, not %d", ledger.NodesMax, c.Nodes)
	case c.SetUpNs < 0 || c.SetUpNs > setUpMax:
		return refuse(codeInvalidArgument, "INVALID", "a set-up must not be negative nor longer than 30 days")
	case x.s.JobByName(ns.ID, c.Name) != nil:
		return refuse(codeAlreadyExists, "JOB_EXISTS", "job %q exists already; delete it with: rota job delete %s", c.Name, c.Name)
	case x.s.JobCount() >= jobsMax:
		return refuse(codeResourceExhausted, "TOO_MANY_JOBS", "there are %d jobs already, which is the limit; delete some", jobsMax)
	}
	cycle, r := x.declaredCycle(c)
	if r != nil {
		return r
	}
	labels, r := labelsOf(c.Labels)
	if r != nil {
		return r
	}
	if r := x.wideEnough(c.Nodes); r != nil {
		return r
	}
	m := *x.s.Meta()
	m.LastJob++
	j := &state.Job{
		ID: m.LastJob, Namespace: ns.ID, Name: c.Name, State: state.JobQueued, Backfill: c.Backfill,
		Nodes: c.Nodes, Cycle: cycle, SetUpNS: c.SetUpNs, SubmittedAt: x.now(), Labels: labels,
	}
	if r := x.declareHooks(j, c.Hooks); r != nil {
		return r
	}
	x.s.SetMeta(m)
	x.putJob(j)
	x.placeNew()
	x.remember(c.Request, ns, state.VerbSubmitJob, uint64(m.LastJob), 1)
	return &logv1.Result{FirstId: uint64(m.LastJob), Count: 1}
}

// declaredCycle returns the cycle that a job says it has, in slots.
func (x *execution) declaredCycle(c *logv1.SubmitJob) (state.Cycle, *logv1.Result) {
	switch {
	case c.Cycle == nil:
		return state.Cycle{}, nil
	case c.Backfill:
		return state.Cycle{}, refuse(codeInvalidArgument, "INVALID", "a backfill job has no reservation: leave out its cycle")
	case len(c.Cycle.Segments) > segmentsMax:
		return state.Cycle{}, refuse(codeInvalidArgument, "INVALID", "the cycle has %d segments, at most %d are allowed: put neighbours together", len(c.Cycle.Segments), segmentsMax)
	}
	turns := make([]ledger.Turn, len(c.Cycle.Segments))
	for i, s := range c.Cycle.Segments {
		if s.Nodes < 1 || s.Nodes > c.Nodes {
			return state.Cycle{}, refuse(codeInvalidArgument, "INVALID", "segment %d needs %d nodes, and the job has %d", i, s.Nodes, c.Nodes)
		}
		if s.LengthNs > cycleNSMax || s.OffsetNs > cycleNSMax || c.Cycle.PeriodNs > cycleNSMax {
			return state.Cycle{}, refuse(codeInvalidArgument, "INVALID", "the cycle is longer than a year")
		}
		turns[i] = ledger.Turn{Start: s.OffsetNs, End: s.OffsetNs + s.LengthNs, Nodes: s.Nodes}
	}
	cycle, err := sched.CycleOf(x.s, c.Cycle.PeriodNs, turns)
	if err != nil {
		return state.Cycle{}, refuse(codeInvalidArgument, "INVALID", "%v", err)
	}
	return cycle, nil
}

// cycleNSMax keeps sums of what is declared within 64 bits.
const cycleNSMax = 366 * 24 * 3600 * 1_000_000_000

// wideEnough refuses what no group could ever hold. While there are no groups, they
// may still come.
func (x *execution) wideEnough(nodes int64) *logv1.Result {
	widest := int64(0)
	x.s.NodeGroups(func(g *state.NodeGroup) bool { widest = max(widest, g.Nodes); return true })
	if widest > 0 && widest < nodes {
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "the job needs %d nodes at once, and the widest node group has %d: use fewer, or make a wider group first", nodes, widest)
	}
	return nil
}

// Changes of a job.
const (
	changeSuspend  = logv1.JobChange_JOB_CHANGE_SUSPEND
	changeResume   = logv1.JobChange_JOB_CHANGE_RESUME
	changeComplete = logv1.JobChange_JOB_CHANGE_COMPLETE
	changeDelete   = logv1.JobChange_JOB_CHANGE_DELETE
)

// changeJob moves a job through its life. What is so already is not refused.
func (x *execution) changeJob(c *logv1.ChangeJob) *logv1.Result {
	j, r := x.job(c.Namespace, c.Name)
	if r != nil {
		return r
	}
	live := j.State == state.JobQueued || j.State == state.JobRunning
	switch {
	case c.Change == changeSuspend && live:
		x.leave(j, state.JobSuspended)
	case c.Change == changeResume && j.State == state.JobSuspended:
		k := *j
		k.State = state.JobQueued
		x.putJob(&k)
		x.placeAgain()
	case c.Change == changeComplete && j.State != state.JobCompleted:
		x.complete(j, false)
	case c.Change == changeDelete && !j.Deleting:
		x.complete(j, true)
	case c.Change == changeSuspend && j.State == state.JobSuspended, c.Change == changeResume && live,
		c.Change == changeComplete, c.Change == changeDelete:
		return &logv1.Result{}
	case c.Change == changeSuspend, c.Change == changeResume:
		return refuse(codeFailedPrecondition, "JOB_STATE", "job %q is completed; submit another", j.Name)
	default:
		return refuse(codeInvalidArgument, "INVALID", "change %d of a job is not known; upgrade all servers before using it", c.Change)
	}
	return &logv1.Result{Count: 1}
}

// leave takes a job off its group. What is reserved for it comes back at once; a turn
// that holds the group is asked to stop, and keeps the group until it has.
func (x *execution) leave(j *state.Job, s state.JobState) *state.Job {
	if j.Group != 0 {
		x.giveReservationBack(j)
		x.dirty.add(state.QueueOf(state.TurnQueue, j.Group))
	} else if j.State == state.JobQueued && x.s.Meta().Level >= sched.LevelResizing {
		x.placeAgain() // a group may have been kept for it
	}
	k := *j
	k.State, k.Group, k.Message = s, 0, ""
	x.putJob(&k)
	if holder := x.s.HeldTurn(j.ID); holder != nil {
		x.askToStop(holder)
	}
	return &k
}

// complete ends a job, and forgets it once its last turn has ended.
func (x *execution) complete(j *state.Job, forget bool) {
	k := *j
	if j.State != state.JobCompleted {
		k = *x.leave(j, state.JobCompleted)
		k.EndedAt = x.now()
		x.s.PutJob(&k)
	}
	if k.Turns > 0 {
		k.Deleting = forget
		x.s.PutJob(&k)
		x.cancelWaiting(k.ID)
		return
	}
	if forget {
		x.forgetJob(&k)
	}
}

// cancelWaiting ends the turns of a job that wait.
func (x *execution) cancelWaiting(id state.JobID) {
	var waiting []*state.Turn
	x.s.JobTurns(id, func(t *state.Turn) bool {
		if t.State == state.TurnWaiting {
			waiting = append(waiting, t)
		}
		return true
	})
	for _, t := range waiting {
		x.overTurn(t, state.TurnCanceled)
	}
}

func (x *execution) forgetJob(j *state.Job) {
	x.s.AddEvent(state.Event{Kind: state.EventJob, Subject: uint64(j.ID), Namespace: j.Namespace, State: uint8(state.JobDeleted)})
	x.s.DeleteJob(j.ID)
}

// putJob stores a job whose state changed, with the event that says so.
func (x *execution) putJob(j *state.Job) {
	j.Revision = x.s.AddEvent(state.Event{Kind: state.EventJob, Subject: uint64(j.ID), Namespace: j.Namespace, State: uint8(j.State)})
	x.s.PutJob(j)
}

// job looks a job up by namespace and name.
func (x *execution) job(namespace, name string) (*state.Job, *logv1.Result) {
	ns, r := x.namespace(namespace)
	if r != nil {
		return nil, r
	}
	if j := x.s.JobByName(ns.ID, name); j != nil {
		return j, nil
	}
	return nil, refuse(codeNotFound, "JOB_NOT_FOUND", "job %q does not exist; see: rota job list", name)
}
