package fsm

import (
	"slices"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

const (
	classBytesMax = 128
	modelBytesMax = 128
	setUpMax      = state.SetUpMax
)

// gpuDemand checks what an action asks for of GPUs. Its class is looked up when
// its pool is known.
func gpuDemand(a *logv1.Action) (*state.GPUDemand, *logv1.Result) {
	g := a.Needs.Gpus
	switch {
	case a.TrajectoryId != 0:
		return nil, refuse(codeInvalidArgument, "INVALID", "an action of a trajectory cannot have GPUs; submit it without the trajectory")
	case a.CoresMin != a.CoresMax:
		return nil, refuse(codeInvalidArgument, "INVALID", "an action with GPUs has a fixed number of cores; leave out max_cores and allowed_cores")
	case len(g.Degrees) == 0 || len(g.Class) > classBytesMax || len(g.Model) > modelBytesMax:
		return nil, refuse(codeInvalidArgument, "INVALID", "GPUs need their allowed numbers, and names of class and model of at most %d bytes", classBytesMax)
	case g.SetupNs < 0 || g.SetupNs > setUpMax || g.SetupNs > 0 && g.Model == "":
		return nil, refuse(codeInvalidArgument, "INVALID", "a set-up must not be negative nor longer than 30 days, and needs a model")
	}
	for i, k := range g.Degrees {
		if !(state.Chunk{Units: k}).Aligned(state.GPUsPerNodeMax) || i > 0 && k <= g.Degrees[i-1] {
			return nil, refuse(codeInvalidArgument, "INVALID", "numbers of GPUs must ascend and be of 1, 2, 4 and 8, not %d", k)
		}
	}
	return &state.GPUDemand{Degrees: g.Degrees, Memory: g.MemoryBytes, Model: g.Model, SetUpNS: g.SetupNs}, nil
}

// chooseClass looks up the class of GPUs that an action asks for: the only one of
// the pool if it names none.
func (x *execution) chooseClass(row *state.Action, p *state.Pool, name string) *logv1.Result {
	known, nodes := x.classesOf(p)
	var names []string
	for _, c := range known {
		if c.Name == name || name == "" && len(known) == 1 {
			row.Needs.GPUs.Class = c.ID
			return nil
		}
		names = append(names, c.Name)
	}
	there := strings.Join(names, ", ")
	c := x.s.GPUClassByName(name)
	switch {
	case name == "" && len(known) > 0:
		return refuse(codeInvalidArgument, "INVALID", "pool %q has GPUs of several classes: name one of %s", p.Name, there)
	case !nodes && c != nil: // a pool without nodes may still get them
		row.Needs.GPUs.Class = c.ID
		return nil
	case len(known) > 0:
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "no node of pool %q has GPUs of class %q; there are %s", p.Name, name, there)
	}
	return refuse(codeInvalidArgument, "UNSATISFIABLE", "no node of pool %q has GPUs", p.Name)
}

// classesOf returns the classes of GPUs in a pool, and whether it has nodes.
func (x *execution) classesOf(p *state.Pool) (classes []*state.GPUClass, nodes bool) {
	x.s.Shapes(p.ID, func(s *state.Shape) bool {
		nodes = true
		if c := x.s.GPUClass(s.GPUs.Class); c != nil && !slices.Contains(classes, c) {
			classes = append(classes, c)
		}
		return true
	})
	slices.SortFunc(classes, func(a, b *state.GPUClass) int { return strings.Compare(a.Name, b.Name) })
	return classes, nodes
}

// gpusOf checks what an agent says of its GPUs.
func (x *execution) gpusOf(c *logv1.RegisterNode) *logv1.Result {
	g := c.Gpus
	switch {
	case g == nil:
		return nil
	case g.Class == "" || len(g.Class) > classBytesMax || g.Count == 0 || g.Count > state.GPUsPerNodeMax || g.MemoryBytes == 0:
		return refuse(codeInvalidArgument, "INVALID", "GPUs need a class of at most %d bytes, memory, and be 1 to %d", classBytesMax, state.GPUsPerNodeMax)
	}
	classes := 0
	x.s.GPUClasses(func(*state.GPUClass) bool { classes++; return true })
	if classes >= state.GPUClassesMax && x.s.GPUClassByName(g.Class) == nil {
		return refuse(codeResourceExhausted, "TOO_MANY_GPU_CLASSES", "there are %d classes of GPUs, which is the most; use one of them", classes)
	}
	return nil
}

// declareGPUs puts the GPUs of an agent into its row. Their class comes into being
// with its first node.
func (x *execution) declareGPUs(row *state.Node, g *logv1.GpuInventory) {
	if g == nil {
		return
	}
	c := x.s.GPUClassByName(g.Class)
	if c == nil {
		c = &state.GPUClass{ID: 1, Name: g.Class}
		x.s.GPUClasses(func(other *state.GPUClass) bool { c.ID = other.ID + 1; return true })
		x.s.PutGPUClass(c)
	}
	row.GPUs = state.GPUs{Class: c.ID, Count: g.Count, Memory: g.MemoryBytes, Free: state.AllGPUs(g.Count)}
}

func sameGPUs(a, b state.GPUs) bool {
	return a.Class == b.Class && a.Count == b.Count && a.Memory == b.Memory
}

// takeGPUs gives a chunk of a node to an attempt, and its memory to the model of
// the action.
func (x *execution) takeGPUs(n *state.Node, a *state.Action, g *sched.GPUs) {
	c := g.Chunk
	state.Assert(c.Aligned(n.GPUs.Count) && c.GPUs()&^n.GPUs.Free == 0,
		"chunk %+v of node %s granted to action %d is not free, or none", c, n.Name, a.ID)
	n.GPUs.Free &^= c.GPUs()
	use := state.Resident{Model: a.GPUs().Model, Chunk: c, Bytes: g.Bytes, UsedAt: x.now()}
	kept := &state.Residency{Node: n.ID}
	hit, evicted, dearest := false, 0, uint64(0)
	for _, m := range x.s.ModelsOn(n.ID) {
		switch {
		case use.Model != "" && m.Same(&use):
			hit, use.Bytes, use.Uses = true, m.Bytes, m.Uses
		case slices.Contains(g.Evict, m):
			evicted++
			dearest = max(dearest, m.Worth)
		default:
			kept.Models = append(kept.Models, m)
		}
	}
	state.Assert(hit == g.Hit && evicted == len(g.Evict), "what is resident on node %s is not what action %d was granted for", n.Name, a.ID)
	x.ageGPUs(n, dearest)
	use.Uses = min(use.Uses+1, state.UsesMax)
	x.putResidency(kept, x.valued(n, a, use))
}

// ageGPUs raises the age of a node's class to the worth of the dearest model that was evicted
// (GreedyDual): what stays and is not used is worth less and less beside what is.
func (x *execution) ageGPUs(n *state.Node, evicted uint64) {
	if c := x.s.GPUClass(n.GPUs.Class); evicted > c.Age {
		older := *c
		older.Age = evicted
		x.s.PutGPUClass(&older)
	}
}

// valued returns the resident that an action uses with what it is worth now: nothing below
// feature level 3.
func (x *execution) valued(n *state.Node, a *state.Action, use state.Resident) state.Resident {
	if use.Uses == 0 || x.s.Meta().Level < sched.LevelResizing {
		use.Uses, use.Worth = 0, 0
		return use
	}
	return use.Valued(x.s.GPUClass(n.GPUs.Class).Age, x.s.SetUpNS(a.GPUs()))
}

// putResidency stores what is resident on a node, with one use more.
func (x *execution) putResidency(r *state.Residency, use state.Resident) {
	if use.Model != "" {
		at, _ := slices.BinarySearchFunc(r.Models, use, func(m, use state.Resident) int { return m.Compare(&use) })
		r.Models = slices.Insert(r.Models, at, use)
	}
	x.s.PutResidency(r)
}

// releaseGPUs takes a chunk back. The model stays, and was last used now, unless its engine
// there has failed or GPUs of the chunk are out of use. Of a node that is down nothing is known to be resident.
func (x *execution) releaseGPUs(n *state.Node, t *state.Attempt) {
	if t.Chunk.Units == 0 {
		return
	}
	state.Assert(n.GPUs.Free&t.Chunk.GPUs() == 0, "GPUs of action %d on node %s are free already", t.Action, n.Name)
	n.GPUs.Free |= t.Chunk.GPUs() & n.InUse()
	a := x.s.Action(t.Action)
	use := state.Resident{Model: a.GPUs().Model, Chunk: t.Chunk}
	if use.Model == "" || n.State != state.NodeUp {
		return
	}
	kept, found := &state.Residency{Node: n.ID}, false
	for _, m := range x.s.ModelsOn(n.ID) {
		if m.Same(&use) {
			found, use.Bytes, use.UsedAt, use.Uses = true, m.Bytes, x.now(), m.Uses
			continue
		}
		kept.Models = append(kept.Models, m)
	}
	state.Assert(found, "model %q of action %d is not resident on node %s", use.Model, t.Action, n.Name)
	if x.engineFailed(n.ID, &use) || t.Chunk.GPUs()&n.OutOfUse() != 0 {
		x.s.PutResidency(kept)
		return
	}
	x.putResidency(kept, x.valued(n, a, use))
}

// nodeFreed looks at the queues of a node that something was given back on.
func (x *execution) nodeFreed(n *state.Node) {
	x.dirty.add(state.QueueOf(state.NodeQueue, n.ID))
	if q := n.GPUQueue(); q != (state.Queue{}) && x.s.QueueLen(q) > 0 {
		x.dirty.add(q)
	}
	x.wakeGangs(n.Pool)
}
