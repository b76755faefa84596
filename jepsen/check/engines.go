package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
	"rota/jepsen/history"
	"rota/jepsen/workload/witness"
)

// engines: an action that calls the engine of its model is answered by one of that model, on
// the action's own GPUs, which is not put to sleep meanwhile. Engines that are awake have no
// more memory of a GPU than there is. None outlives the lease of its node, nor the last
// declaration. An action is not started for want of its engine only if that was removed or
// has failed, and is told no address only if there is none. Declarations are in the log as
// they were acknowledged.
func engines(e *evidence, f *findings) {
	holds := make(map[place][]history.Serving)
	for _, s := range e.Servings {
		if !s.Awake {
			continue
		}
		for _, gpu := range s.GPUs {
			holds[place{s.Node, gpu}] = append(holds[place{s.Node, gpu}], s)
		}
	}
	lives := make(map[string]history.Serving)
	for _, s := range e.Servings {
		if !s.Awake {
			lives[s.Process] = s
		}
	}
	for _, x := range e.Executions {
		if x.Answer != nil {
			f.checked++
			answeredBy(x, holds, lives, f)
		}
	}
	memoryOfGPUs(e, holds, f)
	enginesOfLostNodes(e, f)
	enginesInTheEnd(e, f)
	declaredEngines(e, f)
	unservedActions(e, f)
}

// servingEnd is when a serving was over, by the witness.
func servingEnd(s history.Serving) int64 {
	if s.End == 0 {
		return 1<<63 - 1
	}
	return s.End
}

// servingAlive is a time at which a serving certainly went on, the last one that is known.
func servingAlive(s history.Serving) int64 {
	if s.End == 0 {
		return servingEnd(s)
	}
	return s.Alive
}

// answeredBy: the right engine has answered, was awake, and was not put to sleep while it was
// used. One whose process ended is another matter.
func answeredBy(x history.Execution, holds map[place][]history.Serving, lives map[string]history.Serving, f *findings) {
	a := x.Answer
	switch {
	case a.Model != x.Asked.Model:
		f.add(describeExecutions(x), "action %d needs model %s and was answered by an engine of model %s", x.Action, x.Asked.Model, a.Model)
		return
	case !slices.Equal(a.GPUs, x.GPUs):
		f.add(describeExecutions(x), "action %d has GPUs %v and was answered by an engine on GPUs %v", x.Action, x.GPUs, a.GPUs)
		return
	case len(x.GPUs) == 0:
		f.add(describeExecutions(x), "action %d has no GPUs and was answered by an engine", x.Action)
		return
	}
	seen := false
	for _, h := range holds[place{x.Node, x.GPUs[0]}] {
		same := h.Model == a.Model && h.Declaration == a.Declaration && slices.Equal(h.GPUs, a.GPUs)
		if !same || h.Start >= until(x) || servingEnd(h) <= x.Start {
			continue
		}
		seen = true
		asleep := servingEnd(h) < aliveAt(x) && servingAlive(lives[h.Process]) > servingEnd(h)+int64(observationLag)
		if asleep && lives[h.Process].Process != "" {
			f.add([]string{describeExecution(x), describeServing(h), describeServing(lives[h.Process])}, "the engine of action %d was put to sleep at %s while it was used", x.Action, at(h.End))
		}
	}
	if !seen {
		f.add(describeExecutions(x), "action %d was answered by an engine that nobody saw awake", x.Action)
	}
}

// memoryOfGPUs: what is awake fits, at every moment at which an engine takes memory.
func memoryOfGPUs(e *evidence, holds map[place][]history.Serving, f *findings) {
	has := e.GPUMemoryBytes
	takes := func(s history.Serving) uint64 {
		if s.MemoryBytes == 0 {
			return has
		}
		return s.MemoryBytes
	}
	order := func(a, b place) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.number, b.number)) }
	for _, p := range slices.SortedFunc(maps.Keys(holds), order) {
		list := holds[p]
		slices.SortStableFunc(list, func(a, b history.Serving) int { return cmp.Compare(a.Start, b.Start) })
		var awake []history.Serving
		for _, s := range list {
			awake = slices.DeleteFunc(awake, func(old history.Serving) bool { return servingEnd(old) <= s.Start })
			awake = append(awake, s)
			var sum uint64
			for _, other := range awake {
				sum += takes(other)
			}
			if sum > has {
				f.add(describeServings(awake...), "GPU %d of %s has %d MiB, and engines hold %d MiB at %s", p.number, p.node, has>>20, sum>>20, at(s.Start))
			}
		}
	}
}

// enginesOfLostNodes: when a node is lost, so are its engines.
func enginesOfLostNodes(e *evidence, f *findings) {
	for _, op := range e.Ops {
		if op.Verb != history.GetNode || op.Outcome != history.OK || op.State != "DOWN" {
			continue
		}
		for _, s := range e.Servings {
			if s.Node == op.Node && s.Start < op.Start && servingAlive(s) > op.End+int64(observationLag) {
				f.add([]string{describeOp(op), describeServing(s)}, "an engine of %s outlives the lease of its node", s.Model)
			}
		}
	}
}

// enginesInTheEnd: all declarations were removed, and nothing runs without one. That all that
// should run did before is for recovery to say.
func enginesInTheEnd(e *evidence, f *findings) {
	if e.Healing.Settled == 0 {
		return // nobody looked
	}
	for _, s := range e.Servings {
		if servingAlive(s) > e.Healing.Settled+int64(observationLag) {
			f.add(describeServings(s), "an engine of model %s is left in the end", s.Model)
		}
	}
}

// declaredEngines: declarations that were acknowledged are in the log, and those that were
// refused are not.
func declaredEngines(e *evidence, f *findings) {
	t, whole := e.whole(f)
	if !whole {
		return
	}
	for _, op := range e.Ops {
		if op.Verb != history.RegisterEngine || op.Outcome == history.Unknown {
			continue
		}
		in := slices.ContainsFunc(t.engines[op.Model], func(d declared) bool { return d.declaration == op.Declaration })
		if in != (op.Outcome == history.OK) {
			f.add(describeOps(op), "a declaration of the engine of model %s was answered %s, and is in the log: %v", op.Model, op.Outcome, in)
		}
	}
}

// unservedActions: only the removal of an engine, or its failure, keeps an action from it.
func unservedActions(e *evidence, f *findings) {
	t, whole := e.whole(f)
	if !whole {
		return
	}
	for _, x := range e.Executions {
		g := t.grants[token{x.Action, x.Attempt}]
		switch missing, there := t.engineDuring(x.Asked.Model, g); {
		case x.Unserved && !missing:
			f.add(describeExecutions(x), "action %d was told no address of the engine of model %s, which was declared all the time", x.Action, x.Asked.Model)
		case x.Answer != nil && !there:
			f.add(describeExecutions(x), "action %d was answered by the engine of model %s, which was not declared at any time", x.Action, x.Asked.Model)
		}
	}
	for _, a := range e.Final {
		g := t.grants[token{a.ID, a.Attempt}]
		if a.Reason != "START_FAILED" || len(t.engines[g.model]) == 0 {
			continue
		}
		if missing, _ := t.engineDuring(g.model, g); !missing && !t.failing[engineOn{g.node, g.model}] {
			f.add([]string{describeFinal(a)}, "action %d was not started on %s, and the engine of model %s was neither removed nor did it ever fail there", a.ID, g.node, g.model)
		}
	}
}

// declared is that an engine was declared at an entry of the log, under a name; empty: that it
// was removed.
type declared struct {
	index       uint64
	declaration string
}

// engineOn is the engine of a model on a node.
type engineOn struct{ node, model string }

// engineDuring says whether the engine of a model was not declared at some time between the
// grant of an attempt and its end, and whether it was.
func (t *truth) engineDuring(model string, g grant) (missing, there bool) {
	list := t.engines[model]
	for i := -1; i < len(list); i++ {
		from, to, now := uint64(0), uint64(1<<64-1), ""
		if i >= 0 {
			from, now = list[i].index, list[i].declaration
		}
		if i+1 < len(list) {
			to = list[i+1].index
		}
		if from <= g.endOrNever() && to >= g.index {
			missing, there = missing || now == "", there || now != ""
		}
	}
	return missing, there
}

// endOrNever is the entry that ended an attempt.
func (g grant) endOrNever() uint64 {
	if g.ended == 0 {
		return 1<<64 - 1
	}
	return g.ended
}

// learnEngines notes which engines were declared and removed, and which have failed.
func (r *replayer) learnEngines(index uint64, commands []*logv1.Command, results []*logv1.Result) {
	for i, c := range commands {
		if i >= len(results) || results[i].Refusal != nil {
			continue
		}
		switch v := c.Verb.(type) {
		case *logv1.Command_RegisterEngine:
			var spec rotav1.EngineSpec
			if err := spec.UnmarshalVT(v.RegisterEngine.Spec); err != nil {
				r.findings.add(nil, "entry %d declares an engine that cannot be decoded: %v", index, err)
				continue
			}
			name := cmp.Or(witness.DeclarationOf(spec.Command), "?")
			r.engines[spec.Model] = append(r.engines[spec.Model], declared{index, name})
		case *logv1.Command_RemoveEngine:
			r.engines[v.RemoveEngine.Model] = append(r.engines[v.RemoveEngine.Model], declared{index, ""})
		case *logv1.Command_ReportEngines:
			for _, report := range v.ReportEngines.Reports {
				if report.Failures > 0 || report.State == uint32(state.EngineFailed) {
					r.failing[engineOn{v.ReportEngines.Node, report.Model}] = true
				}
			}
		}
	}
}

func describeServing(s history.Serving) string {
	to, how := "still there", "alive"
	if s.End != 0 {
		to = fmt.Sprintf("to %s (certain until %s)", at(s.End), at(s.Alive))
	}
	if s.Awake {
		how = fmt.Sprintf("awake with %d MiB of each GPU", s.MemoryBytes>>20)
	}
	return fmt.Sprintf("%s %s: the engine of %s, declared as %s, process %s, on GPUs %v of %s, is %s", at(s.Start), to, s.Model, s.Declaration, s.Process, s.GPUs, s.Node, how)
}

func describeServings(list ...history.Serving) (lines []string) {
	for _, s := range list {
		lines = append(lines, describeServing(s))
	}
	return lines
}
