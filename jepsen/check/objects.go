package check

import (
	"cmp"
	"math"

	"github.com/anishathalye/porcupine"

	"rota/jepsen/history"
)

// What one object may do, call by call, as porcupine asks for it. The state of
// each model is small: most of what an action does happens on its own, between
// calls, so a read may find it anywhere further on, but never further back. A
// call without an answer stays open to the end of time, so that porcupine may
// put it where nobody sees it.

// object makes a model of what a call does to a state: what the state is after
// it, and whether its answer fits.
func object[S comparable](begin S, step func(S, *history.Op) (S, bool)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return begin },
		Step: func(s, input, _ any) (bool, any) {
			next, ok := step(s.(S), input.(*history.Op))
			return ok, next
		},
	}
}

// requestState is what is known of a request ID.
type requestState struct {
	accepted bool
	first    uint64 // 0 until somebody was told
	count    int
}

// requestObject: the first call that arrives is accepted, and all others are
// told what that one was given. A call may have been sent more than once on its
// way, so that its own answer is that of a repetition.
var requestObject = object(requestState{}, func(s requestState, op *history.Op) (requestState, bool) {
	if op.Outcome != history.OK {
		s.accepted = true
		return s, true
	}
	if s.accepted && !op.Replayed || len(op.IDs) == 0 {
		return s, false
	}
	told := requestState{true, op.IDs[0], len(op.IDs)}
	return told, s.first == 0 || s == told
})

// progress is how far something has come that only ever goes on.
type progress struct {
	created bool
	stopped bool // an action was canceled
	reached uint64
	// end tells final states apart; place is the node that is kept, once known.
	end, place string
}

// over is the progress of what has ended.
const over = math.MaxUint64

// actionObject: an action exists once it was submitted, its attempts only grow,
// its end stays, and after a cancel it does not wait any more.
var actionObject = object(progress{}, func(s progress, op *history.Op) (progress, bool) {
	switch op.Verb {
	case history.Submit:
		s.created = true
		return s, true
	case history.Cancel:
		s.stopped = true
		return s, s.created || op.Outcome != history.OK
	}
	if op.Outcome == history.Fail { // not found
		return s, !s.created
	}
	return s.moveTo(actionProgress(op), op.State, "", s.created && !(s.stopped && op.State == "QUEUED"))
})

// actionProgress orders what can be read of an action: queued, running attempt
// 1, queued after it, running attempt 2, and so on to the end.
func actionProgress(op *history.Op) uint64 {
	switch {
	case final(op.State):
		return over
	case op.State == "RUNNING":
		return 2 * uint64(op.Attempt)
	}
	return 2*uint64(op.Attempt) + 1
}

// moveTo is a read that finds something this far.
func (s progress) moveTo(reached uint64, state, place string, allowed bool) (progress, bool) {
	switch {
	case !allowed, reached < s.reached, s.place != "" && place != "" && place != s.place:
		return s, false
	case reached == over && s.end != "" && s.end != state:
		return s, false
	}
	s.reached, s.place = reached, cmp.Or(place, s.place)
	if reached == over {
		s.end = state
	}
	return s, true
}

// trajectoryObject: a trajectory goes from pending over open and closing to its
// end, keeps its node, and is closing once somebody has closed it.
var trajectoryObject = object(progress{}, func(s progress, op *history.Op) (progress, bool) {
	reached, known := map[string]uint64{"PENDING": 1, "OPEN": 2, "CLOSING": 3, "CLOSED": over, "LOST": over}[op.State]
	switch op.Verb {
	case history.OpenTrajectory, history.OpenMember:
		s.created = true
	case history.CloseTrajectory:
		s.stopped = true
		known = known && reached >= 3
	}
	switch op.Outcome {
	case history.Unknown:
		return s, true
	case history.Fail: // not found
		return s, !s.created
	}
	return s.moveTo(reached, op.State, op.Node, known && s.created && !(s.stopped && reached < 3))
})

// nodeState is what clients do to a node, and what it does itself.
type nodeState struct {
	draining    bool
	incarnation uint64
}

// nodeObject: whether a node is draining is what was set last, and its
// incarnation only grows.
var nodeObject = object(nodeState{}, func(s nodeState, op *history.Op) (nodeState, bool) {
	if op.Verb == history.Drain {
		s.draining = op.Draining
		return s, true
	}
	ok := op.Draining == s.draining && op.Incarnation >= s.incarnation
	s.incarnation = op.Incarnation
	return s, ok
})

// quotaState is a quota as operators made it.
type quotaState struct {
	exists      bool
	limit, keys uint32
}

// quotaObject: a quota is as it was set last. One that exists is not created again,
// and one that does not cannot be changed. A call may have been sent more than once
// on its way, so that its own answer is that of a repetition.
var quotaObject = object(quotaState{}, func(s quotaState, op *history.Op) (quotaState, bool) {
	had := s.exists
	switch op.Verb {
	case history.CreateQuota:
		if !had {
			s = quotaState{true, op.Limit, op.Keys}
		}
		return s, !had || op.Outcome != history.OK
	case history.DeleteQuota:
		if op.Error == "QUOTA_IN_USE" {
			return s, had
		}
		return quotaState{}, had || op.Outcome != history.OK
	case history.UpdateQuota:
		if had && op.Outcome != history.Fail {
			s.limit, s.keys = cmp.Or(op.Limit, s.limit), cmp.Or(op.Keys, s.keys)
		}
	case history.GetQuota:
		if op.Outcome == history.OK {
			return s, s == quotaState{true, op.Limit, op.Keys}
		}
	}
	return s, op.Outcome == history.Unknown || had == (op.Outcome == history.OK)
})

// jobState is the set of all that a job may be. It is one that does not exist at first,
// and one that is being deleted is gone at some time on its own.
type jobState uint8

const (
	jobGone jobState = 1 << iota
	jobLive          // it waits for a group, or runs
	jobSuspended
	jobCompleted
	jobDeleting
)

// jobRead is what a read says that a job is.
func jobRead(op *history.Op) jobState {
	switch {
	case op.Outcome == history.Fail:
		return jobGone
	case op.Deleting:
		return jobDeleting
	}
	return map[string]jobState{"QUEUED": jobLive, "RUNNING": jobLive, "SUSPENDED": jobSuspended, "COMPLETED": jobCompleted}[op.State]
}

// jobChanges are what changes make of a job. What is not there is refused.
var jobChanges = map[string]map[jobState]jobState{
	history.Suspend:  {jobLive: jobSuspended, jobSuspended: jobSuspended},
	history.Resume:   {jobLive: jobLive, jobSuspended: jobLive},
	history.Complete: {jobLive: jobCompleted, jobSuspended: jobCompleted, jobCompleted: jobCompleted, jobDeleting: jobDeleting},
	history.Delete:   {jobLive: jobDeleting, jobSuspended: jobDeleting, jobCompleted: jobDeleting, jobDeleting: jobDeleting},
}

// jobObject: a job is submitted if there is none of its name, and from then on it is
// what it was changed to last. A deletion may have been sent more than once on its way,
// so that its own answer is that of a repetition. Nor does a repeated submission say
// whether it was the first that made the job, since others may have deleted it.
var jobObject = object(jobGone, func(was jobState, op *history.Op) (jobState, bool) {
	if was&jobDeleting != 0 {
		was |= jobGone
	}
	var is jobState
	switch {
	case op.Verb == history.GetJob:
		is = was & jobRead(op)
	case op.Outcome == history.Fail:
		is = was & jobRefused(op)
		if op.Change == history.Delete && is == 0 {
			is = jobGone
		}
	default:
		is = was.changed(op)
		if op.Outcome == history.Unknown || op.Replayed {
			is |= was
		}
	}
	return is, is != 0
})

// changed is what becomes of a job by a call that does something.
func (was jobState) changed(op *history.Op) (is jobState) {
	if op.Verb == history.SubmitJob {
		if was&jobGone != 0 {
			is = jobLive
		}
		return is
	}
	for from, to := range jobChanges[op.Change] {
		if was&from != 0 {
			is |= to
		}
	}
	return is
}

// jobRefused is what a job is, for a call to be refused.
func jobRefused(op *history.Op) jobState {
	switch op.Error {
	case "JOB_EXISTS":
		return jobLive | jobSuspended | jobCompleted | jobDeleting
	case "JOB_STATE":
		return jobCompleted | jobDeleting
	}
	return jobGone
}
