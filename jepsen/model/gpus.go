package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// GPUs: chunks of 1, 2, 4 or 8, aligned, one user each; models that stay where
// they were used until others need the memory.

const (
	gpusMax       = 64
	gpuClassesMax = 256
	modelsPerGPU  = 16
	modelBytesMax = 128
	setUpMax      = 30 * 24 * 3600 * 1_000_000_000
	usesMax       = 8              // of a resident model that count
	setUpDefault  = 10_000_000_000 // what a set-up counts as that is not known
)

// declares says whether a registration may have its GPUs, and puts them into the
// row.
func (m *Model) declares(v *verdict, row *state.Node, g *logv1.GpuInventory) {
	if g == nil {
		return
	}
	v.refuse(g.Class == "" || len(g.Class) > nameBytesMax || g.Count == 0 || g.Count > gpusMax || g.MemoryBytes == 0, "INVALID")
	id, known := m.gpuClasses[g.Class]
	v.refuse(!known && len(m.gpuClasses) >= gpuClassesMax, "TOO_MANY_GPU_CLASSES")
	if !known {
		id = state.GPUClassID(len(m.gpuClasses) + 1)
	}
	row.GPUs = state.GPUs{Class: id, Count: g.Count, Memory: g.MemoryBytes, Free: firstGPUs(g.Count)}
}

func firstGPUs(n uint32) (set state.GPUSet) {
	for i := range n {
		set |= 1 << i
	}
	return set
}

// asks says whether an action may ask for what it needs beside cores and memory.
func (m *Model) asks(v *verdict, a *logv1.Action) {
	n := a.Needs
	if n == nil {
		return
	}
	g := n.Gpus
	if g == nil {
		return
	}
	v.refuse(a.TrajectoryId != 0 || a.CoresMin != a.CoresMax || len(g.Degrees) == 0, "INVALID")
	v.refuse(len(g.Class) > nameBytesMax || len(g.Model) > modelBytesMax, "INVALID")
	v.refuse(g.SetupNs < 0 || g.SetupNs > setUpMax || g.SetupNs > 0 && g.Model == "", "INVALID")
	last := uint32(0)
	for _, k := range g.Degrees {
		v.refuse(k <= last || !slices.Contains([]uint32{1, 2, 4, 8}, k), "INVALID")
		last = k
	}
}

// needsOf is what the row of an action has of its needs.
func (m *Model) needsOf(p *pool, n *logv1.Needs) *state.Needs {
	if n == nil {
		return nil
	}
	out := &state.Needs{Cores: n.Cores, Bandwidth: n.BandwidthBps}
	if c := n.Profile; c != nil {
		out.Profile = &state.Profile{SingleNS: c.SingleNs, Serial: c.Serial, SerialPPM: c.SerialPpm}
		for _, point := range c.Points {
			out.Profile.Points = append(out.Profile.Points, state.CurvePoint{Units: point.Units, Ratio: point.RatioPpm})
		}
	}
	if g := n.Gpus; g != nil {
		class, _ := m.classFor(p, g.Class)
		out.GPUs = &state.GPUDemand{Class: class, Degrees: g.Degrees, Memory: g.MemoryBytes, Model: g.Model, SetUpNS: g.SetupNs}
	}
	return out
}

// classFor is the class that an action of a pool gets GPUs of, or why it cannot.
func (m *Model) classFor(p *pool, name string) (class state.GPUClassID, refusal string) {
	var there []state.GPUClassID
	for _, n := range p.nodes {
		if n.GPUs.Class != 0 && !slices.Contains(there, n.GPUs.Class) {
			there = append(there, n.GPUs.Class)
		}
	}
	class = m.gpuClasses[name]
	switch {
	case name == "" && len(there) == 1:
		return there[0], ""
	case name == "" && len(there) > 1:
		return 0, "INVALID"
	case slices.Contains(there, class), len(p.nodes) == 0 && class != 0:
		return class, ""
	}
	return 0, "UNSATISFIABLE"
}

// footprint is what an action takes of the memory of each of its GPUs: all, or
// what it says, and a sixteenth of the largest of its class at least.
func (n *node) footprint(a *action) uint64 {
	d := a.GPUs()
	if d.Memory == 0 {
		return n.GPUs.Memory
	}
	bytes := d.Memory
	for _, o := range n.pool.nodes {
		if o.GPUs.Class == d.Class {
			bytes = max(bytes, (o.GPUs.Memory+modelsPerGPU-1)/modelsPerGPU)
		}
	}
	return bytes
}

// hasChunk: so many free GPUs in a row, aligned.
func (n *node) hasChunk(units uint32, without state.GPUSet) bool {
	for first := uint32(0); first+units <= n.GPUs.Count; first += units {
		if gpus := (state.Chunk{First: first, Units: units}).GPUs(); (n.GPUs.Free&^without)&gpus == gpus {
			return true
		}
	}
	return false
}

// fitsGPUs: the chunk is free, aligned, and one of the sizes that the action can
// use; the set-up is charged exactly if the model is not resident there.
func (m *Model) fitsGPUs(a *action, n *node, at *state.Attempt) error {
	d, c := a.GPUs(), at.Chunk
	if d == nil {
		if c.Units != 0 || at.SetUpNS != 0 {
			return fmt.Errorf("action %d was granted chunk %+v and asks for no GPUs", a.ID, c)
		}
		return nil
	}
	charge := m.setUpOf(a)
	if n.residentAt(d.Model, c) >= 0 {
		charge = 0
	}
	switch {
	case d.Class != n.GPUs.Class || n.footprint(a) > n.GPUs.Memory:
		return fmt.Errorf("action %d was granted GPUs of node %s, which are not what it asks for", a.ID, n.Name)
	case !slices.Contains(d.Degrees, c.Units) || c.First%c.Units != 0 || c.First+c.Units > n.GPUs.Count:
		return fmt.Errorf("action %d was granted chunk %+v of the %d GPUs of node %s, which is not aligned or of no size it can use", a.ID, c, n.GPUs.Count, n.Name)
	case c.GPUs()&^n.GPUs.Free != 0:
		return fmt.Errorf("action %d was granted GPUs %v of node %s, where only %v are free", a.ID, c.GPUs().Slice(), n.Name, n.GPUs.Free.Slice())
	case at.SetUpNS != charge:
		return fmt.Errorf("action %d was charged %d ns for model %q on chunk %+v of node %s, must be %d", a.ID, at.SetUpNS, d.Model, c, n.Name, charge)
	}
	if failed := m.failedGPUs(a, n); c.GPUs()&failed != 0 && n.hasChunk(c.Units, m.groupGPUs(n)|failed) {
		return fmt.Errorf("action %d was granted GPUs %v of node %s, where the engine of model %q has failed on %v and other GPUs are free",
			a.ID, c.GPUs().Slice(), n.Name, d.Model, failed.Slice())
	}
	return m.mayHaveGPUs(a, n, c)
}

func (n *node) residentAt(model string, c state.Chunk) int {
	return slices.IndexFunc(n.models, func(r state.Resident) bool { return model != "" && r.Model == model && r.Chunk == c })
}

// takeGPUs gives a chunk to an action and its memory to the action's model. Of what is
// resident there stays what still has room: what is worth most first, and of what is worth the
// same, the most recently used.
func (m *Model) takeGPUs(n *node, a *action, c state.Chunk) {
	d := a.GPUs()
	if d == nil {
		return
	}
	a.chunk = c
	n.GPUs.Free &^= c.GPUs()
	if n.residentAt(d.Model, c) < 0 {
		before := n.models
		n.makeRoom(a, c)
		for _, r := range before {
			if !slices.Contains(n.models, r) {
				m.gpuAges[n.GPUs.Class] = max(m.gpuAges[n.GPUs.Class], r.Worth)
			}
		}
		if d.Model != "" {
			n.models = append(n.models, state.Resident{Model: d.Model, Chunk: c, Bytes: n.footprint(a)})
		}
	}
	if i := n.residentAt(d.Model, c); i >= 0 {
		n.models[i].UsedAt = m.now
		if m.level >= levelResizing {
			n.models[i].Uses = min(n.models[i].Uses+1, usesMax)
		}
		m.value(n, a, i)
	}
	n.sortModels()
}

// value says what a model is worth after a use: nothing until it was used at the feature level
// that models have a worth from.
func (m *Model) value(n *node, a *action, i int) {
	r := &n.models[i]
	if r.Uses == 0 {
		return
	}
	ns := m.setUpOf(a)
	if ns == 0 {
		ns = setUpDefault
	}
	us := uint64(ns / 1000)
	if ns%1000 > 0 {
		us++
	}
	r.Worth = m.gpuAges[n.GPUs.Class] + us*uint64(r.Uses)
}

// makeRoom evicts what has no room beside the model of an action on a chunk.
func (n *node) makeRoom(a *action, c state.Chunk) {
	slices.SortStableFunc(n.models, func(a, b state.Resident) int { return cmp.Compare(a.Worth, b.Worth) })
	used := make(map[uint32]uint64)
	for _, gpu := range c.GPUs().Slice() {
		used[gpu] = n.footprint(a)
	}
	var kept []state.Resident
	for _, r := range slices.Backward(n.models) {
		shared, room := (r.Chunk.GPUs() & c.GPUs()).Slice(), true
		for _, gpu := range shared {
			room = room && used[gpu]+r.Bytes <= n.GPUs.Memory
		}
		if !room {
			continue
		}
		for _, gpu := range shared {
			used[gpu] += r.Bytes
		}
		kept = append(kept, r)
	}
	n.models = kept
}

func (m *Model) giveBackGPUs(n *node, a *action) {
	d := a.GPUs()
	if d == nil {
		return
	}
	n.GPUs.Free |= a.chunk.GPUs() &^ n.out()
	if i := n.residentAt(d.Model, a.chunk); i >= 0 {
		n.models[i].UsedAt = m.now
		m.value(n, a, i)
		if n.engines[place{a.chunk, d.Model}].State == engineFailed || a.chunk.GPUs()&n.out() != 0 {
			n.models = slices.Delete(n.models, i, i+1)
		}
	}
	n.sortModels()
	a.chunk, a.setUp = state.Chunk{}, 0
}

// sortModels puts what is resident in order of last use, and where that is the
// same by place and name.
func (n *node) sortModels() {
	slices.SortFunc(n.models, func(a, b state.Resident) int {
		return cmp.Or(cmp.Compare(a.UsedAt, b.UsedAt), cmp.Compare(a.Chunk.First, b.Chunk.First),
			cmp.Compare(a.Chunk.Units, b.Chunk.Units), strings.Compare(a.Model, b.Model))
	})
}

// gpuQueue is the queue of a class in a pool.
func (p *pool) gpuQueue(class state.GPUClassID) *queue {
	if p.gpuQueues == nil {
		p.gpuQueues = make(map[state.GPUClassID]*queue)
	}
	if p.gpuQueues[class] == nil {
		p.gpuQueues[class] = &queue{}
	}
	return p.gpuQueues[class]
}

// isItsTurnForGPUs: first come, first served, with bounded bypass, in the queue of
// the class; and those that wait for cores, memory or bandwidth of the node are
// not bypassed more often either.
func (m *Model) isItsTurnForGPUs(a *action, n *node, at *state.Attempt) error {
	if m.keptForIt(a) || m.sharing() && m.gangs.seen {
		return nil
	}
	var head *action
	unsure := false // who was the oldest before one joined is not told
	ahead := 0
	for _, older := range m.queueOf(a).waiting {
		if older.ID >= a.ID {
			break
		}
		if m.sharing() && older.Namespace != a.Namespace {
			continue
		}
		if m.aside(older) {
			unsure = unsure || m.cameBack(older)
			continue
		}
		ahead++
		if m.justJoined(older) || m.released(older) {
			unsure = true
			continue
		}
		if a.ReservedOn == 0 && ahead > window && !m.somebodyIsElastic(a) {
			return fmt.Errorf("action %d was granted with more than %d older ones waiting", a.ID, window)
		}
		if older.asksForNoMore(a, at) && a.ReservedOn == 0 && at.Chunk.GPUs()&m.groupGPUs(n) == 0 {
			return fmt.Errorf("action %d was granted on node %s before action %d, which is older and asks for no more", a.ID, n.Name, older.ID)
		}
		if head == nil && older.ReservedOn == 0 && !unsure {
			head = older
		}
	}
	if m.sharing() {
		return m.isItsNamespacesTurn(a, n, func(o *action) bool {
			return a.ReservedOn == 0 && o.asksForNoMore(a, at) && at.Chunk.GPUs()&m.groupGPUs(n) == 0 && !m.somebodyIsElastic(a)
		})
	}
	if head != nil {
		if err := m.pass(head, a, n); err != nil {
			return err
		}
	}
	if err := m.passGang(a, n); err != nil {
		return err
	}
	if a.CoresMin == 0 && a.reserves() == 0 && a.Bandwidth() == 0 {
		return nil
	}
	if head := m.waitsForNode(n); head != nil && head.ID < a.ID {
		return m.pass(head, a, n)
	}
	return nil
}

// released: the node that was reserved for it is not any more, maybe since before what is
// judged.
func (m *Model) released(a *action) bool {
	row := m.s.Action(a.ID)
	return a.freed == m.applied || a.ReservedOn != 0 && (row == nil || row.ReservedOn != a.ReservedOn)
}

// asksForNoMore: it could have had what a younger one was given.
func (a *action) asksForNoMore(younger *action, at *state.Attempt) bool {
	mine, its := a.GPUs(), younger.GPUs()
	return mine.Degrees[0] <= at.Chunk.Units && a.CoresMin <= younger.CoresMin && a.reserves() <= younger.reserves() &&
		a.Bandwidth() <= younger.Bandwidth() && (its.Memory == 0 || mine.Memory <= its.Memory)
}

// waitsForNode is the oldest action without GPUs that waits for a node, or for any
// that could hold it, and has none reserved for it.
func (m *Model) waitsForNode(n *node) (oldest *action) {
	oldest = m.oldestOf(n.queue.waiting, n)
	for _, a := range m.inLine(n.pool.queue.waiting, window) {
		if a.ReservedOn == 0 && n.couldHold(&a.Action) && !m.defers(a, n) {
			if oldest == nil || a.ID < oldest.ID {
				oldest = a
			}
			break
		}
	}
	return m.unlessNew(oldest)
}

// elastic: it is known how much faster the action is with more GPUs, or where its
// model is.
func (m *Model) elastic(a *action) bool {
	d := a.GPUs()
	return d != nil && len(d.Degrees) > 1 && a.timed() && (a.hasCurve() || a.widthsSeen() > 1 || m.setUpOf(a) > 0)
}

// somebodyIsElastic: one that waits or runs on the class of an action is known to
// gain from more GPUs, so that others may be let wait.
func (m *Model) somebodyIsElastic(a *action) bool {
	if slices.ContainsFunc(a.pool.gpuQueue(a.GPUs().Class).waiting, m.elastic) {
		return true
	}
	return slices.ContainsFunc(a.runOnItsClass(), m.elastic)
}

// runOnItsClass are the actions that run on the GPUs that an action waits for.
func (a *action) runOnItsClass() (running []*action) {
	for _, n := range a.pool.nodes {
		for _, r := range n.running {
			if d := r.GPUs(); d != nil && d.Class == a.GPUs().Class {
				running = append(running, r)
			}
		}
	}
	return running
}

// noGPUsForgotten: what waits for GPUs could not start; but the elastic algorithm
// may let it wait for the sake of older ones, until they have ended.
func (m *Model) noGPUsForgotten(p *pool) error {
	for _, q := range p.gpuQueues {
		if m.sharing() && len(q.waiting) > window {
			continue // the oldest are not the first in line
		}
		for _, a := range m.inLine(q.waiting, window) {
			n := m.startsOn(a, p)
			if n == nil || m.limited(a.Namespace) {
				continue
			}
			forAnother := slices.ContainsFunc(a.runOnItsClass(), func(r *action) bool {
				return r.ID < a.ID || m.sharing() && r.Namespace != a.Namespace // whose turn it was
			})
			if !forAnother || !m.somebodyIsElastic(a) {
				return fmt.Errorf("action %d waits for %d GPUs, node %s has %v free and is reserved for nobody else", a.ID, a.GPUs().Degrees[0], n.Name, n.GPUs.Free.Slice())
			}
		}
	}
	return nil
}

// startsOn is a node on which an action that waits for GPUs could start. It need not start on
// those of groups.
func (m *Model) startsOn(a *action, p *pool) *node {
	for _, n := range p.nodes {
		kept := n.ReservedFor != 0 && n.ReservedFor != a.ID
		if n.usable() && !kept && n.GPUs.Class == a.GPUs().Class && n.hasChunk(a.GPUs().Degrees[0], m.groupGPUs(n)) && n.footprint(a) <= n.GPUs.Memory &&
			n.available() >= int(a.CoresMin) && n.FreeMemory >= a.reserves() && n.FreeBandwidth >= a.Bandwidth() {
			return n
		}
	}
	return nil
}

// compareModels compares what is resident on a node, and how old its class is.
func (m *Model) compareModels(n *node) error {
	if got := m.s.ModelsOn(n.ID); !slices.Equal(got, n.models) {
		return fmt.Errorf("on node %s models %+v are resident, must be %+v", n.Name, got, n.models)
	}
	if c := m.s.GPUClass(n.GPUs.Class); c != nil && c.Age != m.gpuAges[c.ID] {
		return fmt.Errorf("GPU class %q has an age of %d us, must be %d", c.Name, c.Age, m.gpuAges[c.ID])
	}
	return nil
}
