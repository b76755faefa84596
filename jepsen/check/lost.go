package check

import (
	"fmt"
	"maps"
	"slices"

	"rota/jepsen/history"
)

// nothingLost: what was acknowledged is there in the end, as it was
// acknowledged, once, and has ended as everybody was told.
func nothingLost(e *evidence, f *findings) {
	acknowledged := 0
	for _, id := range slices.Sorted(maps.Keys(e.requests())) {
		q := e.requests()[id]
		acknowledged += len(q.acknowledged())
		oneOutcome(e, q, f)
		inLog(e, q, f)
	}
	f.checked = acknowledged
	if len(e.Final) == 0 {
		if e.Healing.Settled == 0 {
			f.checked = 0 // the run was broken off, and nobody looked
		} else if acknowledged > 0 {
			f.add(nil, "%d calls were acknowledged, and there is no list of actions from the end", acknowledged)
		}
		return
	}
	in := make(map[uint64]history.Action, len(e.Final))
	for _, a := range e.Final {
		in[a.ID] = a
	}
	stillThere(e, in, f)
	acceptedOnce(e, f)
	endsStay(e, in, f)
}

// oneOutcome: all acknowledgements of a request name the same IDs, and one at
// most is the first.
func oneOutcome(e *evidence, q *request, f *findings) {
	oks := q.acknowledged()
	if len(oks) < 2 || e.truth().reusable(q.id) {
		return
	}
	var first []history.Op
	for _, op := range oks {
		if !slices.Equal(op.IDs, oks[0].IDs) {
			f.add(describeOps(oks[0], op), "request %s was acknowledged with different IDs", q.id)
			return
		}
		if !op.Replayed {
			first = append(first, op)
		}
	}
	if len(first) > 1 {
		f.add(describeOps(first[:2]...), "request %s was accepted twice", q.id)
	}
}

// inLog: a committed entry says what was acknowledged.
func inLog(e *evidence, q *request, f *findings) {
	t, whole := e.whole(f)
	if !whole {
		return
	}
	for _, op := range q.acknowledged() {
		if len(op.IDs) == 0 {
			continue
		}
		if !slices.ContainsFunc(t.accepted[q.id], func(a acceptance) bool { return a.first == op.IDs[0] && int(a.count) == len(op.IDs) }) {
			f.add(describeOps(op), "request %s was acknowledged, and no committed entry accepts it with these IDs", q.id)
		}
	}
	if q.refused() && len(t.accepted[q.id]) > 0 {
		f.add(describeOps(q.ops...), "request %s was refused, and entry %d accepts it", q.id, t.accepted[q.id][0].index)
	}
}

// stillThere: actions that were acknowledged are listed in the end, but for what
// retention may have dropped by then.
func stillThere(e *evidence, in map[uint64]history.Action, f *findings) {
	for _, op := range e.Ops {
		if op.Verb != history.Submit || op.Outcome != history.OK {
			continue
		}
		for _, id := range op.IDs {
			if _, there := in[id]; !there && !e.mayBeDropped(id) {
				f.add(describeOps(op), "action %d was acknowledged and is lost", id)
			}
		}
	}
	for _, a := range e.Final {
		if !final(a.State) {
			f.add([]string{describeFinal(a)}, "action %d never ended", a.ID)
		}
	}
}

// mayBeDropped reports whether retention explains that an action is gone. The
// log knows; without it only a run that lasts longer than retention may drop.
func (e *evidence) mayBeDropped(action uint64) bool {
	if t := e.truth(); t.complete {
		return t.dropped(action)
	}
	return e.Duration > int64(retention)
}

// acceptedOnce: no action of a request is there twice, and none of a request
// that was refused.
func acceptedOnce(e *evidence, f *findings) {
	byName := make(map[string]history.Action, len(e.Final))
	for _, a := range e.Final {
		q := requestOf(e.requests(), a.Name)
		if q == nil {
			continue // not a submission of a workload
		}
		if first, twice := byName[a.Name]; twice && !e.truth().reusable(q.id) {
			f.add(append(describeOps(q.ops...), describeFinal(first), describeFinal(a)), "request %s was carried out twice", q.id)
		}
		byName[a.Name] = a
		if q.refused() {
			f.add(append(describeOps(q.ops...), describeFinal(a)), "request %s was refused and carried out", q.id)
		}
	}
}

// told is that somebody was told that an action has ended.
type told struct {
	ending
	at   int64 // when it was known, at the latest
	line string
}

// endings are the first time that anybody was told of each action's end.
func (e *evidence) endings() map[uint64]told {
	all := make(map[uint64]told)
	note := func(action uint64, n told) {
		if first, known := all[action]; final(n.state) && (!known || n.at < first.at) {
			all[action] = n
		}
	}
	for _, op := range e.Ops {
		if op.Outcome == history.OK && (op.Verb == history.Get || op.Verb == history.GetStale) && final(op.State) {
			note(op.Target, told{ending{op.State, op.Attempt}, op.End, describeOp(op)})
		}
	}
	for _, w := range e.Watch {
		if final(w.State) {
			note(w.Action, told{ending{w.State, w.Attempt}, w.At, describeEvent(w)})
		}
	}
	return all
}

// endsStay: an end that somebody was told is the one that is listed, and the one
// that the log has.
func endsStay(e *evidence, in map[uint64]history.Action, f *findings) {
	ends := e.endings()
	for _, id := range slices.Sorted(maps.Keys(ends)) {
		n := ends[id]
		if a, there := in[id]; there && n.ending != (ending{a.State, a.Attempt}) {
			f.add([]string{n.line, describeFinal(a)}, "action %d ended as %s, and is %s in the end", id, n.state, a.State)
		}
	}
	t, whole := e.whole(f)
	if !whole {
		return
	}
	for _, a := range e.Final {
		if end, known := t.ends[a.ID]; known && end != (ending{a.State, a.Attempt}) {
			f.add([]string{describeFinal(a)}, "action %d is %s in the end, by the log it is %s after attempt %d", a.ID, a.State, end.state, end.attempt)
		}
	}
}

func describeEvent(w history.WatchEvent) string {
	again := ""
	if w.Resumed {
		again = ", the first after it resumed"
	}
	return fmt.Sprintf("%s: watcher %d at %s sees revision %d: action %d %s, attempt %d%s", at(w.At), w.Watcher, w.Server, w.Revision, w.Action, w.State, w.Attempt, again)
}
