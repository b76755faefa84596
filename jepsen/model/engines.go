package model

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Engines: how models are served, what nodes say of it, and what follows: a set-up that was
// measured is charged, and what has failed is not resident.

const (
	enginesMax          = 4096
	engineSpecBytesMax  = 32 << 10
	engineMessageMax    = 512
	engineReportsMax    = 256
	enginesOnNodeMax    = 256
	engineReady         = 4
	engineFailed        = 7
	engineMeasuredShare = 8
)

// engine is a declaration and the mean of its set-ups.
type engine struct {
	generation uint64
	spec       []byte
	setUp      int64
	setUps     uint64
}

// place is where a node has an engine, and of what.
type place struct {
	chunk state.Chunk
	model string
}

func (m *Model) registerEngine(c *logv1.RegisterEngine, got *logv1.Result) error {
	if m.level < levelResizing {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	var v verdict
	old := m.engines[c.Model]
	v.refuse(c.Model == "" || len(c.Model) > modelBytesMax || len(c.Spec) == 0 || len(c.Spec) > engineSpecBytesMax, "INVALID")
	v.refuse(old == nil && len(m.engines) >= enginesMax, "TOO_MANY_ENGINES")
	if ok, err := v.judge(got); !ok {
		return err
	}
	if old != nil && bytes.Equal(old.spec, c.Spec) {
		return result(got, &logv1.Result{})
	}
	if old == nil {
		old = &engine{}
		m.engines[c.Model] = old
	}
	m.lastGeneration++
	old.generation, old.spec = m.lastGeneration, c.Spec
	m.touchEngine(c.Model)
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) removeEngine(c *logv1.RemoveEngine, got *logv1.Result) error {
	switch {
	case m.level < levelResizing:
		return refused(got, "LEVEL_NOT_ACTIVE")
	case m.engines[c.Model] == nil:
		return refused(got, "ENGINE_NOT_FOUND")
	}
	delete(m.engines, c.Model)
	m.touchEngine(c.Model)
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) touchEngine(name string) {
	if !slices.Contains(m.touchedEngines, name) {
		m.touchedEngines = append(m.touchedEngines, name)
	}
}

// reportEngines counts only from the incarnation that the node has.
func (m *Model) reportEngines(c *logv1.ReportEngines, got *logv1.Result) error {
	n := m.nodes[c.Node]
	switch {
	case m.level < levelResizing:
		return refused(got, "LEVEL_NOT_ACTIVE")
	case len(c.Reports) > engineReportsMax:
		return refused(got, "INVALID")
	case n == nil:
		return result(got, &logv1.Result{})
	}
	m.touchNode(n)
	if n.State != state.NodeUp || n.Incarnation != c.Incarnation {
		return result(got, &logv1.Result{})
	}
	var v verdict
	for _, r := range c.Reports {
		v.refuse(r.Model == "" || len(r.Model) > modelBytesMax || len(r.Message) > engineMessageMax || r.SetUpNs < 0 || r.SetUpNs > setUpMax, "INVALID")
		v.refuse(!r.Gone && (r.State < 1 || r.State > engineFailed), "INVALID")
		v.refuse(!slices.Contains([]uint32{1, 2, 4, 8}, r.Gpus) || r.First%max(1, r.Gpus) != 0 || uint64(r.First)+uint64(r.Gpus) > uint64(n.GPUs.Count), "INVALID")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	for _, r := range c.Reports {
		m.hearsOfEngine(n, r)
	}
	for where, e := range n.engines {
		if e.State == engineFailed {
			n.evict(where)
		}
	}
	return result(got, &logv1.Result{Count: uint32(len(c.Reports))})
}

// hearsOfEngine takes over what a node says of one engine.
func (m *Model) hearsOfEngine(n *node, r *logv1.EngineReport) {
	where := place{state.Chunk{First: r.First, Units: r.Gpus}, r.Model}
	was, known := n.engines[where]
	delete(n.engines, where)
	m.touchEngine(r.Model)
	if r.Gone {
		return
	}
	now := state.EngineInstance{
		Model: r.Model, Chunk: where.chunk, State: state.EngineState(r.State), Generation: r.Generation, Message: r.Message,
		Starts: r.Starts, Wakes: r.Wakes, Sleeps: r.Sleeps, Failures: r.Failures, ChangedAt: was.ChangedAt,
	}
	again := known && was.State == engineReady && was.Starts == r.Starts && was.Wakes == r.Wakes
	if e := m.engines[r.Model]; e != nil && r.State == engineReady && r.SetUpNs > 0 && !again {
		if e.setUps++; e.setUps == 1 {
			e.setUp = r.SetUpNs
		} else {
			e.setUp += (r.SetUpNs - e.setUp) / engineMeasuredShare
		}
	}
	if !known || now != was {
		now.ChangedAt = m.now
	}
	if n.engines == nil {
		n.engines = make(map[place]state.EngineInstance)
	}
	if n.engines[where] = now; len(n.engines) > enginesOnNodeMax {
		delete(n.engines, n.oldestEngine())
	}
}

// oldestEngine is the one that has not changed for longest.
func (n *node) oldestEngine() (oldest place) {
	first := true
	for where, e := range n.engines {
		o := n.engines[oldest]
		if first || e.ChangedAt < o.ChangedAt || e.ChangedAt == o.ChangedAt && e.Compare(&o) < 0 {
			oldest, first = where, false
		}
	}
	return oldest
}

// evict: where the engine of a model has failed the model is not resident, unless an action
// that runs there holds the chunk for it.
func (n *node) evict(where place) {
	if slices.ContainsFunc(n.running, func(a *action) bool {
		return a.GPUs() != nil && a.GPUs().Model == where.model && a.chunk == where.chunk
	}) {
		return
	}
	if i := n.residentAt(where.model, where.chunk); i >= 0 {
		n.models = slices.Delete(n.models, i, i+1)
	}
}

// failedGPUs are those of a node on which the engine of an action's model has failed, with the
// declaration that there is now.
func (m *Model) failedGPUs(a *action, n *node) (set state.GPUSet) {
	declared := m.engines[a.GPUs().Model]
	for where, e := range n.engines {
		if declared != nil && where.model == a.GPUs().Model && e.State == engineFailed && e.Generation == declared.generation {
			set |= where.chunk.GPUs()
		}
	}
	return set
}

// setUpOf is what it takes to make the model of an action resident: what the action says, else
// what was measured.
func (m *Model) setUpOf(a *action) int64 {
	d := a.GPUs()
	if e := m.engines[d.Model]; e != nil && d.SetUpNS == 0 && d.Model != "" {
		return e.setUp
	}
	return d.SetUpNS
}

// setUpInside is what of the time that an attempt ran was the set-up of its model: nothing where
// the node sets up the engine before the attempt starts.
func (m *Model) setUpInside(a *action) int64 {
	if d := a.GPUs(); d != nil && m.engines[d.Model] != nil {
		return 0
	}
	return a.setUp
}

// compareEngines compares the declarations that an entry changed.
func (m *Model) compareEngines(models []string) error {
	for _, model := range models {
		got, want := m.s.Engine(model), m.engines[model]
		if (got == nil) != (want == nil) {
			return fmt.Errorf("model %q has an engine: %v, must be %v", model, got != nil, want != nil)
		}
		if got != nil && (got.Generation != want.generation || !bytes.Equal(got.Spec, want.spec) || got.SetUpNS != want.setUp || got.SetUps != want.setUps) {
			return fmt.Errorf("the engine of model %q has generation %d, %d bytes and %d set-ups of %d ns, must be %d, %d, %d and %d",
				model, got.Generation, len(got.Spec), got.SetUps, got.SetUpNS, want.generation, len(want.spec), want.setUps, want.setUp)
		}
	}
	return nil
}

// compareInstances compares what is known of the engines on a node.
func (m *Model) compareInstances(n *node) error {
	want := slices.SortedFunc(maps.Values(n.engines), func(a, b state.EngineInstance) int { return a.Compare(&b) })
	if got := m.s.EnginesOn(n.ID); !slices.Equal(got, want) {
		return fmt.Errorf("node %s has engines %+v, must be %+v", n.Name, got, want)
	}
	return nil
}
