package sched

import (
	"rota/fsm/state"
	"rota/sched/place"
	"rota/sched/place/chunk"
	"rota/sched/scale"
)

const (
	// gpuStates bounds the states of the operator over chunks, and with it the time
	// that a plan takes.
	gpuStates = 1024
	// gpuRunning bounds the running actions whose ends a plan looks at.
	gpuRunning = 512
)

// planned is a waiting action and how many GPUs it is to get; 0 if it is to wait
// for the sake of those before it.
type planned struct {
	action   *state.Action
	units    uint32
	promised bool // counted in what those before it leave
}

// plan says how many GPUs each of a batch is to get, and what that makes
// together: the least where no action is known to be elastic, else as ARL-Tangram's
// Algorithms 1 and 4 have it.
func (p *gpuPass) plan(ids []state.ActionID) (batch []planned, rest chunk.Counts) {
	left, elastic := gpuView{fleet: p.nodes, open: true}.Free(), false
	var candidates []int
	for i, id := range ids {
		a := p.view.Action(id)
		least := a.GPUs().Degrees[0]
		batch = append(batch, planned{action: a, units: least})
		if a.ReservedOn != 0 || !p.nodes.hasFor(a) {
			continue
		}
		if after, _, ok := left.Take(levelOf(least)); ok {
			left, candidates = after, append(candidates, i)
			elastic = elastic || len(a.GPUs().Degrees) > 1 && (a.Needs.Profile != nil || a.Class != 0)
		}
	}
	if elastic {
		p.arrange(batch, candidates)
	}
	if p.explores {
		p.explore(batch, candidates)
	}
	for _, i := range candidates {
		if b := &batch[i]; b.units > 0 {
			b.promised = true
			rest[levelOf(b.units)]++
		}
	}
	return batch, rest
}

// hasFor reports whether some node that is not reserved has a chunk for the
// action, and all else that it needs.
func (f *gpuFleet) hasFor(a *state.Action) bool {
	level := levelOf(a.GPUs().Degrees[0])
	for i := range f.nodes {
		n := &f.nodes[i]
		if n.row.ReservedFor != 0 || !place.Fits(n.row, a) {
			continue
		}
		if _, ok := n.chunks.Free.Allocate(level); ok {
			return true
		}
	}
	return false
}

// arrange chooses the degrees of the candidates of a batch, and which of them
// wait.
func (p *gpuPass) arrange(batch []planned, candidates []int) {
	resident := p.nodes.idle()
	g := scale.Input{Candidates: len(candidates), Behind: max(0, p.view.QueueLen(p.queue)-len(candidates))}
	degrees := make([]chunk.Degrees, len(candidates))
	for j, i := range candidates {
		a := batch[i].action
		d := withSetUp(p.demands.of(a), a.GPUs(), p.view.SetUpNS(a.GPUs()), resident)
		dops := d.DoPSet()
		g.Queue = append(g.Queue, d)
		degrees[j] = chunk.Degrees{Least: int(dops.Least()), Most: int(dops.Most())}
	}
	free := gpuView{fleet: p.nodes, open: true}.Free()
	op, ok := chunk.NewOperator(free, degrees, gpuStates)
	if !ok {
		return
	}
	g.Topology, g.Free = op, free.Units()
	g.Running = p.ends(g.Queue)
	var e scale.Elastic
	units := e.Decide(g)
	for j, i := range candidates {
		batch[i].units = 0
		if j < len(units) {
			batch[i].units = uint32(units[j])
		}
	}
}

// warm is a variant that is resident on a free chunk.
type warm struct {
	model string
	units uint32
}

// idle are the variants that are resident on free chunks.
func (f *gpuFleet) idle() map[warm]bool {
	variants := make(map[warm]bool)
	for i := range f.nodes {
		n := &f.nodes[i].chunks
		for _, r := range n.Residents {
			if n.Free.Holds(r.Chunk) {
				variants[warm{f.models[r.Variant-1], uint32(r.Chunk.Units())}] = true
			}
		}
	}
	return variants
}

// withSetUp adds the set-up of an action's model, in nanoseconds, where that is not resident. A
// number of GPUs with which it would then take longer than with fewer is left out.
func withSetUp(d scale.Demand, g *state.GPUDemand, setUp int64, resident map[warm]bool) scale.Demand {
	var units []int32
	var ns []int64
	for i, k := range g.Degrees {
		t, known := d.DurationAt(i)
		if !known {
			break
		}
		if g.Model != "" && !resident[warm{g.Model, k}] {
			t = min(t+setUp, scale.DurationMax)
		}
		if n := len(ns); n == 0 || t <= ns[n-1] {
			units, ns = append(units, int32(k)), append(ns, t)
		}
	}
	if len(ns) == 0 {
		return d
	}
	dops, err := scale.Set(units...)
	state.Assert(err == nil, "numbers of GPUs %v: %v", units, err)
	demand, err := scale.NewDemand(dops, ns)
	state.Assert(err == nil, "durations %v: %v", ns, err)
	return demand
}

// ends is in how long what runs on the class will end. What is not known is the
// mean of those that wait.
func (p *gpuPass) ends(queue []scale.Demand) (ends []int64) {
	mean, now, nodes := scale.Mean(queue), p.view.Meta().Now, gpuNodes
	p.view.NodesByFreeGPUs(p.queue, func(n *state.Node) bool {
		if n.GPUs.Free == n.InUse() {
			return true
		}
		p.view.Attempts(n.ID, func(t *state.Attempt) bool {
			if t.Chunk.Units > 0 {
				ends = append(ends, t.StartedAt+t.SetUpNS+p.expected(t, mean)-now)
			}
			return len(ends) < gpuRunning
		})
		nodes--
		return nodes > 0 && len(ends) < gpuRunning
	})
	return ends
}

// expected is how long an attempt takes once its model is resident.
func (p *gpuPass) expected(t *state.Attempt, unknown int64) int64 {
	a := p.view.Action(t.Action)
	if ns, known := p.demands.duration(a, int32(t.Chunk.Units)); known {
		return ns
	}
	return unknown
}
