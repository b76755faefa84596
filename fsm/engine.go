package fsm

import (
	"bytes"
	"cmp"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// engineReportsMax bounds the reports of one command.
const engineReportsMax = 256

// registerEngine declares how a model is served. Said again, nothing changes.
func (x *execution) registerEngine(c *logv1.RegisterEngine) *logv1.Result {
	switch {
	case c.Model == "" || len(c.Model) > modelBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "an engine needs a model, with a name of at most %d bytes", modelBytesMax)
	case len(c.Spec) == 0 || len(c.Spec) > state.EngineSpecBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "the engine of model %q is declared with %d bytes; it must be 1 to %d", c.Model, len(c.Spec), state.EngineSpecBytesMax)
	}
	e := state.Engine{Model: c.Model}
	switch old := x.s.Engine(c.Model); {
	case old != nil && bytes.Equal(old.Spec, c.Spec):
		return &logv1.Result{}
	case old != nil:
		e = *old
	case x.s.EngineCount() >= state.EnginesMax:
		return refuse(codeResourceExhausted, "TOO_MANY_ENGINES", "there are %d engines already, which is the limit: remove some with: rota engine remove", state.EnginesMax)
	}
	m := *x.s.Meta()
	m.LastGeneration++
	x.s.SetMeta(m)
	e.Generation, e.Spec = m.LastGeneration, c.Spec
	x.s.PutEngine(&e)
	x.engineChanged(c.Model)
	return &logv1.Result{Count: 1}
}

// removeEngine forgets how a model is served. What nodes have said of it stays until they say
// that it is gone.
func (x *execution) removeEngine(c *logv1.RemoveEngine) *logv1.Result {
	if x.s.Engine(c.Model) == nil {
		return refuse(codeNotFound, "ENGINE_NOT_FOUND", "model %q has no engine; see: rota engine list", c.Model)
	}
	x.s.DeleteEngine(c.Model)
	x.engineChanged(c.Model)
	return &logv1.Result{Count: 1}
}

// engineChanged tells the nodes on which a model is resident, or an engine of it exists.
func (x *execution) engineChanged(model string) {
	x.s.Residencies(func(r *state.Residency) bool {
		if slices.ContainsFunc(r.Models, func(m state.Resident) bool { return m.Model == model }) {
			x.dirtyNodes.add(r.Node)
		}
		return true
	})
	x.s.AllNodeEngines(func(r *state.NodeEngines) bool {
		if slices.ContainsFunc(r.Instances, func(e state.EngineInstance) bool { return e.Model == model }) {
			x.dirtyNodes.add(r.Node)
		}
		return true
	})
}

// reportEngines takes down what a node says of its engines. A report of an old incarnation is
// a no-op: those engines are gone.
func (x *execution) reportEngines(c *logv1.ReportEngines) *logv1.Result {
	if len(c.Reports) > engineReportsMax {
		return refuse(codeInvalidArgument, "INVALID", "node %q reports %d engines at once; at most %d are allowed", c.Node, len(c.Reports), engineReportsMax)
	}
	n := x.s.NodeByName(c.Node)
	if n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp {
		return &logv1.Result{}
	}
	for _, r := range c.Reports {
		if refusal := checkEngineReport(n, r); refusal != nil {
			return refusal
		}
	}
	known := slices.Clone(x.s.EnginesOn(n.ID))
	for _, r := range c.Reports {
		known = x.reportEngine(known, r)
	}
	x.s.PutNodeEngines(&state.NodeEngines{Node: n.ID, Instances: known})
	for _, r := range c.Reports {
		x.evictFailed(n, chunkOf(r), r.Model)
		if !r.Gone && x.s.Engine(r.Model) == nil { // the node has to hear that it was removed
			x.dirtyNodes.add(n.ID)
		}
	}
	return &logv1.Result{Count: uint32(len(c.Reports))}
}

// checkEngineReport refuses what cannot be said of an engine on a node.
func checkEngineReport(n *state.Node, r *logv1.EngineReport) *logv1.Result {
	said := state.EngineState(min(r.State, uint32(state.EngineFailed)+1))
	switch {
	case r.Model == "" || len(r.Model) > modelBytesMax || len(r.Message) > state.EngineMessageBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "the report of an engine needs a model of at most %d bytes, and a message of at most %d", modelBytesMax, state.EngineMessageBytesMax)
	case !chunkOf(r).Aligned(n.GPUs.Count):
		return refuse(codeInvalidArgument, "INVALID", "the engine of model %q is said to be on GPUs %d+%d, which is no chunk of node %q with %d GPUs", r.Model, r.First, r.Gpus, n.Name, n.GPUs.Count)
	case !r.Gone && (said < state.EngineWaiting || said > state.EngineFailed):
		return refuse(codeInvalidArgument, "INVALID", "the engine of model %q is said to be in state %d, which is none", r.Model, r.State)
	case r.SetUpNs < 0 || r.SetUpNs > setUpMax:
		return refuse(codeInvalidArgument, "INVALID", "the set-up of model %q must not be negative nor longer than 30 days", r.Model)
	}
	return nil
}

func chunkOf(r *logv1.EngineReport) state.Chunk { return state.Chunk{First: r.First, Units: r.Gpus} }

// reportEngine takes one report into what is known of the engines of a node, and returns that.
func (x *execution) reportEngine(known []state.EngineInstance, r *logv1.EngineReport) []state.EngineInstance {
	said := state.EngineInstance{
		Model: r.Model, Chunk: chunkOf(r), State: state.EngineState(r.State), Generation: r.Generation, Message: r.Message,
		Starts: r.Starts, Wakes: r.Wakes, Sleeps: r.Sleeps, Failures: r.Failures,
	}
	at, found := slices.BinarySearchFunc(known, said, func(a, b state.EngineInstance) int { return a.Compare(&b) })
	was := state.EngineInstance{}
	if found {
		was = known[at]
		known = slices.Delete(known, at, at+1)
	}
	if r.Gone {
		return known
	}
	if said.State == state.EngineReady && r.SetUpNs > 0 && !repeats(&was, &said) {
		x.measure(r.Model, r.SetUpNs)
	}
	if said.ChangedAt = was.ChangedAt; said != was {
		said.ChangedAt = x.now()
	}
	return withoutOldest(slices.Insert(known, at, said))
}

// repeats reports whether a node says again that an engine is ready, as when the first answer
// was lost: its set-up is measured already.
func repeats(was, said *state.EngineInstance) bool {
	return was.State == said.State && was.Starts == said.Starts && was.Wakes == said.Wakes
}

// withoutOldest forgets the engine that has not changed for longest, if there are too many.
func withoutOldest(known []state.EngineInstance) []state.EngineInstance {
	if len(known) <= state.NodeEnginesMax {
		return known
	}
	oldest := slices.MinFunc(known, func(a, b state.EngineInstance) int {
		return cmp.Or(cmp.Compare(a.ChangedAt, b.ChangedAt), a.Compare(&b))
	})
	return slices.DeleteFunc(known, func(e state.EngineInstance) bool { return e == oldest })
}

// measure takes a set-up of so many nanoseconds into what is known of a model's engine.
func (x *execution) measure(model string, ns int64) {
	if e := x.s.Engine(model); e != nil {
		x.s.PutEngine(e.Measured(ns))
	}
}

// engineFailed reports whether the engine of a model on a chunk of a node has failed there.
func (x *execution) engineFailed(id state.NodeID, m *state.Resident) bool {
	return slices.ContainsFunc(x.s.EnginesOn(id), func(e state.EngineInstance) bool {
		return e.State == state.EngineFailed && e.Model == m.Model && e.Chunk == m.Chunk
	})
}

// evictFailed forgets that a model is resident on a chunk of a node if its engine has failed
// there, so that the next action chooses where to go. If an action holds the chunk for it, that is
// left to the action's end.
func (x *execution) evictFailed(n *state.Node, c state.Chunk, model string) {
	failed := state.Resident{Model: model, Chunk: c}
	if !x.engineFailed(n.ID, &failed) || x.uses(n, &failed) {
		return
	}
	kept := &state.Residency{Node: n.ID}
	for _, m := range x.s.ModelsOn(n.ID) {
		if !m.Same(&failed) {
			kept.Models = append(kept.Models, m)
		}
	}
	if len(kept.Models) < len(x.s.ModelsOn(n.ID)) {
		x.s.PutResidency(kept)
		x.dirtyNodes.add(n.ID)
	}
}

// uses reports whether an attempt on a node holds a chunk for the model that is resident there.
func (x *execution) uses(n *state.Node, m *state.Resident) (used bool) {
	if m.Chunk.GPUs()&^n.GPUs.Free == 0 {
		return false
	}
	x.s.Attempts(n.ID, func(t *state.Attempt) bool {
		used = t.Chunk == m.Chunk && x.s.Action(t.Action).GPUs().Model == m.Model
		return !used
	})
	return used
}

// setUpWithin is how much of the time that an attempt ran was its model's set-up, in nanoseconds:
// what it was charged. Where the model has an engine, the node sets it up before the attempt
// starts.
func (x *execution) setUpWithin(a *state.Action, t *state.Attempt) int64 {
	if g := a.GPUs(); g != nil && x.s.Engine(g.Model) != nil {
		return 0
	}
	return t.SetUpNS
}
