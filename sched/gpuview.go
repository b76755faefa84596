package sched

import (
	"cmp"
	"slices"

	"rota/fsm/state"
	"rota/sched/place"
	"rota/sched/place/chunk"
)

// gpuFleet are the usable nodes of a class that have free GPUs, as the allocator
// of chunks sees them.
type gpuFleet struct {
	nodes []gpuNode // by ID
	cut   bool      // there are more
	// A resident's variant is the number of its model here, from 1 on, and the size
	// of its chunk.
	models  []string
	numbers map[string]chunk.Variant // for look-up only, never ranged over
	// least is what a model counts for at least, of the memory of each GPU.
	least uint64
	// awaited counts, by the number of a model, the actions of the batch that are still to be
	// placed and name it; nil below feature level 3.
	awaited []int32
	// failures: engines have failed somewhere, or had.
	failures bool
}

type gpuNode struct {
	row *state.Node
	// Free ones of chunks belong to no group.
	chunks chunk.Node
	gaps   []gapChunk
	// failed are the chunks where engines have failed.
	failed []failedEngine
}

// failedEngine is a chunk on which the engine of a model has failed, as it is declared now.
type failedEngine struct {
	model string
	gpus  chunk.Set
}

// residentsPerGPU bounds what is remembered of a GPU: however little memory a
// model says it takes, it counts for this part of the largest GPU of its class.
const residentsPerGPU = 16

func newGPUFleet(v *state.State, q state.Queue) *gpuFleet {
	f := emptyGPUFleet(v, q)
	v.NodesByFreeGPUs(q, func(n *state.Node) bool {
		if n.GPUs.Free == 0 {
			return false
		}
		if f.cut = len(f.nodes) == gpuNodes; !f.cut {
			f.nodes = append(f.nodes, f.node(v, n))
		}
		return !f.cut
	})
	slices.SortFunc(f.nodes, func(a, b gpuNode) int { return cmp.Compare(a.row.ID, b.row.ID) })
	return f
}

// newGPUFleetOf returns a fleet of one node.
func newGPUFleetOf(v *state.State, q state.Queue, n *state.Node) *gpuFleet {
	f := emptyGPUFleet(v, q)
	f.nodes = []gpuNode{f.node(v, n)}
	return f
}

// emptyGPUFleet returns the fleet of a queue without its nodes.
func emptyGPUFleet(v *state.State, q state.Queue) *gpuFleet {
	f := &gpuFleet{numbers: make(map[string]chunk.Variant)}
	pool, class := q.GPUs()
	v.Shapes(pool, func(s *state.Shape) bool {
		if s.GPUs.Class == class {
			f.least = max(f.least, (s.GPUs.Memory+residentsPerGPU-1)/residentsPerGPU)
		}
		return true
	})
	return f
}

func (f *gpuFleet) node(v *state.State, n *state.Node) gpuNode {
	g := gpuNode{row: n, chunks: chunk.Node{ID: uint64(n.ID), Free: chunk.Set(n.GPUs.Free), Memory: n.GPUs.Memory}}
	if v.AnyMembers() {
		g.gaps = gapsOn(v, n)
		for _, c := range g.gaps {
			g.chunks.Free &^= chunk.Set(c.set)
		}
	}
	for _, m := range v.ModelsOn(n.ID) {
		at := chunk.Chunk{Start: uint8(m.Chunk.First), Level: levelOf(m.Chunk.Units)}
		g.chunks.Residents = append(g.chunks.Residents, chunk.Resident{Variant: f.variant(m.Model), Chunk: at, Bytes: m.Bytes, Worth: m.Worth, Used: m.UsedAt})
	}
	slices.SortStableFunc(g.chunks.Residents, func(a, b chunk.Resident) int { return cmp.Compare(a.Worth, b.Worth) })
	for _, e := range v.EnginesOn(n.ID) {
		if e.State != state.EngineFailed {
			continue
		}
		if declared := v.Engine(e.Model); declared != nil && declared.Generation == e.Generation {
			g.failed = append(g.failed, failedEngine{e.Model, chunk.Set(e.Chunk.GPUs())})
			f.failures = true
		}
	}
	return g
}

// hasFailed reports whether the engine of a model has failed on some chunk.
func (f *gpuFleet) hasFailed(model string) bool {
	return f.failures && model != "" && slices.ContainsFunc(f.nodes, func(n gpuNode) bool {
		return slices.ContainsFunc(n.failed, func(e failedEngine) bool { return e.model == model })
	})
}

// variant returns the number of a model, 0 for none.
func (f *gpuFleet) variant(model string) chunk.Variant {
	if model == "" {
		return 0
	}
	v, known := f.numbers[model]
	if !known {
		f.models = append(f.models, model)
		v = chunk.Variant(len(f.models))
		f.numbers[model] = v
	}
	return v
}

// await notes that so many actions more, or fewer, of the batch are still to be placed that name
// a model.
func (f *gpuFleet) await(model string, more int32) {
	v := f.variant(model)
	for len(f.awaited) <= int(v) {
		f.awaited = append(f.awaited, 0)
	}
	f.awaited[v] += more
}

// reload reads a node again that a decision was about.
func (f *gpuFleet) reload(v *state.State, id state.NodeID) {
	if i, known := f.find(id); known {
		f.nodes[i] = f.node(v, v.Node(id))
	}
}

func (f *gpuFleet) find(id state.NodeID) (i int, known bool) {
	return slices.BinarySearchFunc(f.nodes, id, func(n gpuNode, id state.NodeID) int { return cmp.Compare(n.row.ID, id) })
}

func (f *gpuFleet) knows(id state.NodeID) bool {
	_, known := f.find(id)
	return known
}

// insert adds a node that it does not know.
func (f *gpuFleet) insert(v *state.State, n *state.Node) {
	i, _ := f.find(n.ID)
	f.nodes = slices.Insert(f.nodes, i, f.node(v, n))
}

func (f *gpuFleet) anyFree() bool {
	return slices.ContainsFunc(f.nodes, func(n gpuNode) bool { return n.chunks.Free != 0 || len(n.gaps) > 0 })
}

// footprint is what an action takes of the memory of each of its GPUs; 0 is all.
func (f *gpuFleet) footprint(bytes uint64) uint64 {
	if bytes == 0 {
		return 0
	}
	return max(bytes, f.least)
}

// request is the chunk that an action needs.
func (f *gpuFleet) request(v *state.State, d *state.GPUDemand, units uint32) chunk.Request {
	return chunk.Request{Variant: f.variant(d.Model), Level: levelOf(units), Bytes: f.footprint(d.Memory), SetUp: v.SetUpNS(d), Awaited: f.awaited}
}

// shortOfOthers returns a node whose free GPUs would do for an action, and which
// lacks something else that what runs there gives back when it ends; of several
// the one with the most available cores.
func (f *gpuFleet) shortOfOthers(v *state.State, a *state.Action) (hit *state.Node) {
	level := levelOf(a.GPUs().Degrees[0])
	for i := range f.nodes {
		n := &f.nodes[i]
		_, has := n.chunks.Free.Allocate(level)
		if !has || n.row.ReservedFor != 0 || place.Fits(n.row, a) || !place.CouldRun(v, n.row, a) {
			continue
		}
		if hit == nil || n.row.Available() > hit.Available() {
			hit = n.row
		}
	}
	return hit
}

// gpuView is what one action may choose from. It implements chunk.View.
type gpuView struct {
	fleet  *gpuFleet
	action *state.Action
	// open leaves out what is reserved for anybody.
	open bool
	// until is when the action ends if it starts now, at the latest; 0: members of groups are
	// left out.
	until int64
	// avoid leaves out the GPUs on which the engine of the action's model has failed.
	avoid bool
}

// chunks is what the action may choose from on a node.
func (w gpuView) chunks(n *gpuNode) *chunk.Node {
	c := w.withGaps(n)
	if !w.avoid || len(n.failed) == 0 {
		return c
	}
	fewer := *c
	for _, e := range n.failed {
		if e.model == w.action.GPUs().Model {
			fewer.Free &^= e.gpus
		}
	}
	return &fewer
}

func (w gpuView) withGaps(n *gpuNode) *chunk.Node {
	if w.until == 0 || len(n.gaps) == 0 {
		return &n.chunks
	}
	wider := n.chunks
	for _, c := range n.gaps {
		if w.until <= c.until {
			wider.Free |= chunk.Set(c.set & n.row.GPUs.Free)
		}
	}
	return &wider
}

func (w gpuView) may(n *gpuNode) bool {
	return !(w.open && n.row.ReservedFor != 0) && place.Fits(n.row, w.action)
}

// Free implements chunk.View. What others were promised may be where this action
// cannot run.
func (w gpuView) Free() (sum chunk.Counts) {
	for i := range w.fleet.nodes {
		if n := &w.fleet.nodes[i]; w.open && n.row.ReservedFor == 0 || !w.open && w.may(n) {
			sum = sum.Add(w.chunks(n).Free.Counts())
		}
	}
	return sum
}

// Holders implements chunk.View.
func (w gpuView) Holders(v chunk.Variant, visit func(*chunk.Node) bool) {
	w.visit(visit, func(n *chunk.Node) bool {
		return slices.ContainsFunc(n.Residents, func(r chunk.Resident) bool { return r.Variant == v })
	})
}

// Offering implements chunk.View.
func (w gpuView) Offering(l chunk.Level, visit func(*chunk.Node) bool) {
	w.visit(visit, func(n *chunk.Node) bool { return n.Free.Counts()[l] > 0 })
}

func (w gpuView) visit(visit, which func(*chunk.Node) bool) {
	for i := range w.fleet.nodes {
		n := &w.fleet.nodes[i]
		if c := w.chunks(n); c.Free != 0 && which(c) && w.may(n) && !visit(c) {
			return
		}
	}
}

// choose picks the node and the chunk for an action that is to get a number of GPUs,
// or fewer if there are none. GPUs on which the engine of its model has failed are chosen
// if there are no others: there it would probably fail again.
func (p *gpuPass) choose(a *state.Action, units uint32) (*state.Node, *GPUs, bool) {
	if p.nodes.hasFailed(a.GPUs().Model) {
		if n, there, ok := p.chooseFrom(gpuView{fleet: p.nodes, action: a, avoid: true}, units); ok {
			return n, there, true
		}
	}
	return p.chooseFrom(gpuView{fleet: p.nodes, action: a}, units)
}

// chooseFrom picks from all that a view has. What younger ones were promised the action may
// take if it fits nowhere else: it is older.
func (p *gpuPass) chooseFrom(all gpuView, units uint32) (*state.Node, *GPUs, bool) {
	a, open := all.action, all
	open.open = true
	d := a.GPUs()
	for i := len(d.Degrees) - 1; i >= 0; i-- {
		k := d.Degrees[i]
		if k > units {
			continue
		}
		request := p.nodes.request(p.view, d, k)
		if k == units && a.ReservedOn == 0 {
			request.Rest = p.rest
			if c, ok := chunk.Choose(open, request); ok {
				return p.taken(c, request)
			}
			request.Rest = chunk.Counts{}
		}
		if c, ok := chunk.Choose(all, request); ok {
			return p.taken(c, request)
		}
		if until := p.nodes.endsBy(p, a, k); until > 0 {
			gaps := all
			gaps.until = until
			if c, ok := chunk.Choose(gaps, request); ok {
				return p.taken(c, request)
			}
		}
	}
	return nil, nil, false
}

// endsBy returns when an action with some GPUs ends if it starts now, at the latest; 0 if that
// is not known, or if no node has members of groups.
func (f *gpuFleet) endsBy(p *gpuPass, a *state.Action, units uint32) int64 {
	if !slices.ContainsFunc(f.nodes, func(n gpuNode) bool { return len(n.gaps) > 0 }) {
		return 0
	}
	ns, known := p.demands.atMost(a, units)
	if !known {
		return 0
	}
	return state.Saturated(p.view.Meta().Now, ns)
}

// taken puts the allocator's decision into the words of the state.
func (p *gpuPass) taken(c chunk.Decision, request chunk.Request) (*state.Node, *GPUs, bool) {
	chunkOf := func(c chunk.Chunk) state.Chunk {
		return state.Chunk{First: uint32(c.Start), Units: uint32(c.Units())}
	}
	n := p.view.Node(state.NodeID(c.Node))
	g := &GPUs{Chunk: chunkOf(c.Chunk), Hit: c.Hit, SetUpNS: c.SetUp, Bytes: request.Bytes}
	if g.Bytes == 0 {
		g.Bytes = n.GPUs.Memory
	}
	for _, r := range c.Evict {
		gone := state.Resident{Model: p.nodes.models[r.Variant-1], Chunk: chunkOf(r.Chunk)}
		models := p.view.ModelsOn(n.ID)
		i := slices.IndexFunc(models, func(m state.Resident) bool { return m.Same(&gone) })
		state.Assert(i >= 0, "model %q is to be evicted from node %s, where it is not", gone.Model, n.Name)
		g.Evict = append(g.Evict, models[i])
	}
	return n, g, true
}
