package check

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"rota/fsm/state"
	"rota/jepsen/history"
)

// Bounds of the search, which may take exponential time: what it has not decided
// by then is reported as such.
const (
	searchMax    = 30 * time.Second // all objects together
	searchOneMax = 5 * time.Second
	witnessMax   = 16 // calls that are shown
)

// linearizable: the calls to each request ID, action, trajectory, node, quota and
// job can be put into one order that explains every answer, in which a call that ended
// before another began comes first. Over all objects, what is numbered in the
// order of commits only grows: revisions that are read, and IDs that are given. A list of live
// actions has those that the log has at its revision.
//
// Objects are independent of each other, so each is searched alone.
func linearizable(e *evidence, f *findings) {
	deadline := time.Now().Add(searchMax)
	for _, h := range e.histories() {
		f.checked += len(h.calls)
		switch h.check(min(searchOneMax, time.Until(deadline))) {
		case porcupine.Illegal:
			f.add(h.shortest(deadline), "the calls to %s have no order that explains their answers", h.object)
		case porcupine.Unknown:
			f.add(nil, "undecided: the %d calls to %s were not searched through in time; give it fewer calls with an unknown outcome", len(h.calls), h.object)
		}
	}
	grows(e.Ops, "revision", f, func(op *history.Op) (from, to uint64, ok bool) {
		read := op.Verb == history.Get || op.Verb == history.List
		return op.Revision, op.Revision, read && op.Server != "" // through the library it is that of the action
	})
	for _, kind := range []struct {
		what  string
		verbs []history.Verb
	}{
		{"action ID", []history.Verb{history.Submit}},
		{"trajectory ID", []history.Verb{history.OpenTrajectory, history.OpenMember}},
		{"rollout ID", []history.Verb{history.CreateRollout}},
		{"turn ID", []history.Verb{history.Acquire}},
	} {
		grows(e.Ops, kind.what, f, func(op *history.Op) (from, to uint64, ok bool) {
			if !slices.Contains(kind.verbs, op.Verb) || op.Replayed || len(op.IDs) == 0 {
				return 0, 0, false
			}
			return op.IDs[0] - 1, op.IDs[len(op.IDs)-1], true
		})
	}
	lists(e, f)
}

// grows finds the calls that were given less than what one that ended before
// them was given. A call gives a number, and wants all before it to be at most
// from.
func grows(ops []history.Op, what string, f *findings, number func(*history.Op) (from, to uint64, ok bool)) {
	var byStart, byEnd []*history.Op
	for i := range ops {
		if _, _, ok := number(&ops[i]); ok && ops[i].Outcome == history.OK {
			byStart = append(byStart, &ops[i])
		}
	}
	byEnd = slices.Clone(byStart)
	slices.SortStableFunc(byStart, func(a, b *history.Op) int { return cmp.Compare(a.Start, b.Start) })
	slices.SortStableFunc(byEnd, func(a, b *history.Op) int { return cmp.Compare(a.End, b.End) })
	var newest *history.Op
	most := uint64(0)
	for _, op := range byStart {
		for len(byEnd) > 0 && byEnd[0].End < op.Start {
			if _, to, _ := number(byEnd[0]); to >= most {
				newest, most = byEnd[0], to
			}
			byEnd = byEnd[1:]
		}
		f.checked++
		if from, _, _ := number(op); newest != nil && from < most {
			f.add(describeOps(*newest, *op), "the %s goes back from %d", what, most)
		}
	}
}

// calls are those to one object.
type calls struct {
	object string
	model  porcupine.Model
	calls  []*history.Op
	// created, for a thing that is made, is the call that made it.
	created *history.Op
}

func (h *calls) add(op *history.Op) { h.calls = append(h.calls, op) }

// answered reports whether a call takes part: with an answer, or without one if
// it could have changed something. Reads without an answer say nothing, and
// changes that were refused did nothing.
func answered(op *history.Op) bool {
	read := op.Verb == history.Get || op.Verb == history.GetTrajectory || op.Verb == history.GetNode || op.Verb == history.GetQuota || op.Verb == history.GetJob
	switch op.Outcome {
	case history.Unknown:
		return !read
	case history.Fail:
		if op.Job != "" {
			return slices.Contains([]string{"JOB_EXISTS", "JOB_NOT_FOUND", "JOB_STATE"}, op.Error)
		}
		if op.Quota != "" {
			return slices.Contains([]string{"QUOTA_EXISTS", "QUOTA_NOT_FOUND", "QUOTA_IN_USE"}, op.Error)
		}
		return op.Error == "ACTION_NOT_FOUND" && op.Verb == history.Get || op.Error == "TRAJECTORY_NOT_FOUND" && op.Verb == history.GetTrajectory
	}
	return true
}

// histories sorts all calls by the object that they are to.
func (e *evidence) histories() []*calls {
	all := make(map[string]*calls)
	of := func(object string, m porcupine.Model) *calls {
		if all[object] == nil {
			all[object] = &calls{object: object, model: m}
		}
		return all[object]
	}
	for i := range e.Ops {
		op := &e.Ops[i]
		if !answered(op) {
			continue
		}
		switch op.Verb {
		case history.Submit, history.OpenTrajectory, history.OpenMember, history.CreateRollout, history.Acquire:
			if op.RequestID != "" && !e.truth().reusable(op.RequestID) {
				of("request "+op.RequestID, requestObject).add(op)
			}
			opens := op.Verb == history.OpenTrajectory || op.Verb == history.OpenMember
			if opens && len(op.IDs) == 1 { // it was read, too
				of(fmt.Sprint("trajectory ", op.IDs[0]), trajectoryObject).add(op)
			}
		case history.Get, history.Cancel:
			if op.Outcome != history.Fail || !e.mayBeDropped(op.Target) {
				of(fmt.Sprint("action ", op.Target), actionObject).add(op)
			}
		case history.GetTrajectory, history.CloseTrajectory:
			if op.Outcome != history.Fail || !e.trajectoryMayBeDropped(op.Target) {
				of(fmt.Sprint("trajectory ", op.Target), trajectoryObject).add(op)
			}
		case history.Drain, history.GetNode:
			of("node "+op.Node, nodeObject).add(op)
		case history.SubmitJob, history.ChangeJob, history.GetJob:
			of("job "+op.Job, jobObject).add(op)
		case history.CreateQuota, history.UpdateQuota, history.DeleteQuota, history.GetQuota:
			of("quota "+op.Quota, quotaObject).add(op)
		}
	}
	e.addCreations(all)
	return slices.SortedFunc(maps.Values(all), func(a, b *calls) int {
		return cmp.Or(cmp.Compare(len(a.calls), len(b.calls)), cmp.Compare(a.object, b.object))
	})
}

// trajectoryMayBeDropped is mayBeDropped for a trajectory.
func (e *evidence) trajectoryMayBeDropped(id uint64) bool {
	if t := e.truth(); t.complete {
		return t.last.Trajectory(state.TrajectoryID(id)) == nil
	}
	return e.Duration > int64(retention)
}

// made are the objects that calls make, but for their IDs.
var made = map[history.Verb]string{history.Submit: "action ", history.OpenTrajectory: "trajectory ", history.OpenMember: "trajectory "}

// creator is the verb that makes what others are called with.
var creator = map[history.Verb]history.Verb{
	history.Get: history.Submit, history.Cancel: history.Submit,
	history.GetTrajectory: history.OpenTrajectory, history.CloseTrajectory: history.OpenTrajectory,
}

// addCreations tells each action and trajectory when it was made: between the
// first call of its request and the first acknowledgement. What no client was
// told of is there from the beginning.
func (e *evidence) addCreations(all map[string]*calls) {
	for _, q := range e.requests() {
		begin, told := q.ops[0].Start, int64(math.MaxInt64)
		for _, op := range q.ops {
			begin = min(begin, op.Start)
			if op.Outcome == history.OK {
				told = min(told, op.End)
			}
		}
		for _, op := range q.acknowledged() {
			for _, id := range op.IDs {
				object := fmt.Sprint(made[q.verb], id)
				if h := all[object]; h != nil && h.created == nil {
					creation := op
					creation.Start, creation.End, creation.Outcome = begin, told, history.Unknown
					h.created = &creation
				}
			}
		}
	}
	for _, h := range all {
		verb := creator[h.calls[0].Verb]
		if h.created == nil && verb != "" {
			h.created = &history.Op{Verb: verb, Start: math.MinInt64, End: math.MinInt64 + 1, Outcome: history.Unknown}
		}
	}
}

// check searches for an order. One call alone may already be impossible.
func (h *calls) check(limit time.Duration) porcupine.CheckResult {
	return h.search(h.calls, limit)
}

func (h *calls) search(list []*history.Op, limit time.Duration) porcupine.CheckResult {
	if limit <= 0 {
		return porcupine.Unknown
	}
	operations := make([]porcupine.Operation, 0, len(list)+1)
	for _, op := range list {
		o := porcupine.Operation{Input: op, Call: op.Start, Return: op.End}
		if op.Outcome == history.Unknown {
			o.Return = math.MaxInt64
		}
		operations = append(operations, o)
	}
	if h.created != nil {
		operations = append(operations, porcupine.Operation{Input: h.created, Call: h.created.Start, Return: h.created.End})
	}
	return porcupine.CheckOperationsTimeout(h.model, operations, limit)
}

// shortest describes a minimal set of calls that have no order: the shortest
// beginning that is impossible already, and of that the reads that matter.
func (h *calls) shortest(deadline time.Time) []string {
	impossible := func(list []*history.Op) bool {
		return h.search(list, min(searchOneMax/10, time.Until(deadline))) == porcupine.Illegal
	}
	list := slices.Clone(h.calls)
	slices.SortStableFunc(list, func(a, b *history.Op) int { return cmp.Compare(a.End, b.End) })
	beginning := func(n int) []*history.Op {
		cut := slices.Clone(list[:n])
		for _, op := range list[n:] { // a change that was under way then may have been made
			if op.Start < list[n-1].End && changes(op) {
				open := *op
				open.Outcome = history.Unknown
				cut = append(cut, &open)
			}
		}
		return cut
	}
	low, high := 1, len(list)
	for low < high {
		if middle := (low + high) / 2; impossible(beginning(middle)) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	list = beginning(low)
	for i := len(list) - 1; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(list), i, i+1); !changes(list[i]) && impossible(without) {
			list = without
		}
	}
	var lines []string
	if c := h.created; c != nil && c.Start > math.MinInt64 {
		lines = append(lines, fmt.Sprintf("%s to %s: created", at(c.Start), at(c.End)))
	}
	if n := len(list) - witnessMax; n > 0 {
		lines = append(lines, fmt.Sprintf("%d earlier changes", n))
		list = list[n:]
	}
	for _, op := range list {
		lines = append(lines, describeOp(*op))
	}
	return lines
}

// changes reports whether leaving a call out could make others impossible.
func changes(op *history.Op) bool {
	switch op.Verb {
	case history.Submit, history.OpenTrajectory, history.OpenMember, history.CreateRollout, history.Acquire, history.Drain, history.SubmitJob, history.ChangeJob:
		return true
	}
	return false
}
