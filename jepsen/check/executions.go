package check

import (
	"cmp"
	"maps"
	"slices"

	"rota/jepsen/history"
)

// atMostOne holds what the witness saw against what an action allows: one live
// execution at a time, one for each attempt, one in all unless it may be
// repeated, none that was not granted, none after its end was told, and a
// success only where the work was done.
func atMostOne(e *evidence, f *findings) {
	f.checked = len(e.Executions)
	of := make(map[uint64][]history.Execution)
	for _, x := range e.Executions {
		of[x.Action] = append(of[x.Action], x)
	}
	ends := e.endings()
	for _, id := range slices.Sorted(maps.Keys(of)) {
		slices.SortStableFunc(of[id], func(a, b history.Execution) int { return cmp.Compare(a.Start, b.Start) })
		overlaps(of[id], f)
		attempts(of[id], f)
		known(e, of[id], f)
		afterEnd(of[id], ends[id], f)
	}
	granted(e, f)
	if len(e.Executions) > 0 {
		successes(e, of, f)
	}
}

// until is when an execution was over, by the witness.
func until(x history.Execution) int64 {
	if x.End == 0 {
		return 1<<63 - 1
	}
	return x.End
}

// overlaps finds two executions of an action that were alive at once.
func overlaps(list []history.Execution, f *findings) {
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; b.Start < until(a) {
			f.add(describeExecutions(a, b), "action %d has two live executions at %s", b.Action, at(b.Start))
			return
		}
	}
}

// attempts: an attempt is executed once, and none after a newer one.
func attempts(list []history.Execution, f *findings) {
	seen := make(map[uint32]history.Execution)
	newest := list[0]
	for _, x := range list {
		if first, again := seen[x.Attempt]; again {
			f.add(describeExecutions(first, x), "attempt %d of action %d was executed twice", x.Attempt, x.Action)
		}
		seen[x.Attempt] = x
		if x.Attempt < newest.Attempt && x.Start > newest.Start {
			f.add(describeExecutions(newest, x), "attempt %d of action %d began after attempt %d had", x.Attempt, x.Action, newest.Attempt)
		}
		if x.Attempt >= newest.Attempt {
			newest = x
		}
	}
}

// known: executions belong to a submission that was not refused, and are not
// more than it allows.
func known(e *evidence, list []history.Execution, f *findings) {
	x := list[0]
	q := e.requests()[x.RequestID]
	switch {
	case q == nil:
		f.add(describeExecutions(x), "nobody submitted what was executed for action %d", x.Action)
		return
	case q.refused():
		f.add(append(describeOps(q.ops...), describeExecution(x)), "action %d was executed, and its submission was refused", x.Action)
	case !q.retry && len(list) > 1:
		f.add(describeExecutions(list[:2]...), "action %d may be executed once and was executed %d times", x.Action, len(list))
	}
	oks := q.acknowledged()
	if len(oks) > 0 && !e.truth().reusable(q.id) && !slices.ContainsFunc(oks, func(op history.Op) bool { return slices.Contains(op.IDs, x.Action) }) {
		f.add([]string{describeOp(oks[0]), describeExecution(x)}, "action %d was executed for a request that has other actions", x.Action)
	}
}

// aliveAt is a time at which an execution was certainly alive, the last one that
// is known. Its end may have been recorded long after it.
func aliveAt(x history.Execution) int64 {
	if x.End == 0 {
		return until(x)
	}
	return x.Alive
}

// afterEnd: who was told that an action has ended may rely on it.
func afterEnd(list []history.Execution, end told, f *findings) {
	if end.line == "" {
		return
	}
	for _, x := range list {
		if aliveAt(x) > end.at+int64(observationLag) {
			f.add([]string{end.line, describeExecution(x)}, "action %d was alive after its end had been told", x.Action)
			return
		}
	}
}

// granted: the log has a grant for each execution.
func granted(e *evidence, f *findings) {
	t, whole := e.whole(f)
	if !whole {
		return
	}
	for _, x := range e.Executions {
		g, ok := t.grants[token{x.Action, x.Attempt}]
		switch {
		case !ok:
			f.add(describeExecutions(x), "attempt %d of action %d was executed and never granted", x.Attempt, x.Action)
		case g.node != x.Node || g.incarnation != x.Incarnation:
			f.add(describeExecutions(x), "attempt %d of action %d was granted to %s in incarnation %d", x.Attempt, x.Action, g.node, g.incarnation)
		}
	}
}

// successes: an action that succeeded did its work, in the attempt that says so,
// and had no more attempts than it counts.
func successes(e *evidence, of map[uint64][]history.Execution, f *findings) {
	for _, a := range e.Final {
		done := slices.ContainsFunc(of[a.ID], func(x history.Execution) bool { return x.Attempt == a.Attempt && x.Complete })
		if a.State == "SUCCEEDED" && !done {
			f.add(append(describeExecutions(of[a.ID]...), describeFinal(a)), "action %d succeeded, and attempt %d did not complete its work", a.ID, a.Attempt)
		}
		for _, x := range of[a.ID] {
			if x.Attempt > a.Attempt {
				f.add([]string{describeExecution(x), describeFinal(a)}, "attempt %d of action %d was executed, and the action had %d", x.Attempt, a.ID, a.Attempt)
			}
		}
	}
}
