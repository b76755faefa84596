package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// GPUs that are out of use: their agent has found them sick, or an operator has disabled them.
// Nothing new is given them, as if they did not exist; what runs on them runs on.

// reportGPUs takes over which GPUs of a node are sick. What an operator vouched for is trusted
// no longer once the node says something else of it.
func (x *execution) reportGPUs(c *logv1.ReportGpus) *logv1.Result {
	n := x.s.NodeByName(c.Node)
	if n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp {
		return &logv1.Result{}
	}
	gpus := state.GPUSet(c.Sick).Slice()
	if len(gpus) != len(c.Reasons) || state.GPUSet(c.Sick)&^state.AllGPUs(n.GPUs.Count) != 0 {
		return refuse(codeInvalidArgument, "INVALID", "node %q with %d GPUs reports GPUs %v as sick, with %d reasons", n.Name, n.GPUs.Count, gpus, len(c.Reasons))
	}
	sick, trusted := []state.GPUFault(nil), n.Trusted
	for i, gpu := range gpus {
		if len(c.Reasons[i]) > state.GPUReasonMax {
			return refuse(codeInvalidArgument, "INVALID", "the reason why GPU %d of node %q is sick has more than %d bytes", gpu, n.Name, state.GPUReasonMax)
		}
		sick = append(sick, state.GPUFault{GPU: gpu, Reason: c.Reasons[i]})
		if was, known := state.FaultOf(n.Sick, gpu); !known || was != c.Reasons[i] {
			trusted &^= 1 << gpu
		}
	}
	x.setGPUHealth(n, sick, n.Disabled, trusted&state.SetOf(sick))
	return &logv1.Result{Count: 1}
}

// drainGPUs takes GPUs of a node out of use or brings them back, by an operator's word.
func (x *execution) drainGPUs(n *state.Node, c *logv1.DrainNode) *logv1.Result {
	set := state.GPUSet(c.Gpus)
	switch {
	case set&^state.AllGPUs(n.GPUs.Count) != 0:
		return refuse(codeInvalidArgument, "INVALID", "node %q has %d GPUs, counted from 0, so not all of %v; see: rota gpu list", n.Name, n.GPUs.Count, set.Slice())
	case len(c.Reason) > state.GPUReasonMax:
		return refuse(codeInvalidArgument, "INVALID", "a reason has at most %d bytes, not %d", state.GPUReasonMax, len(c.Reason))
	}
	disabled := slices.DeleteFunc(slices.Clone(n.Disabled), func(f state.GPUFault) bool { return set&(1<<f.GPU) != 0 })
	if !c.Draining {
		x.setGPUHealth(n, n.Sick, disabled, n.Trusted|set&state.SetOf(n.Sick))
		return &logv1.Result{Count: 1}
	}
	for _, gpu := range set.Slice() {
		disabled = append(disabled, state.GPUFault{GPU: gpu, Reason: c.Reason})
	}
	slices.SortFunc(disabled, func(a, b state.GPUFault) int { return int(a.GPU) - int(b.GPU) })
	x.setGPUHealth(n, n.Sick, disabled, n.Trusted&^set)
	return &logv1.Result{Count: 1}
}

// setGPUHealth stores what is said of the GPUs of a node, and has all looked at that depends on
// which are out of use.
func (x *execution) setGPUHealth(n *state.Node, sick, disabled []state.GPUFault, trusted state.GPUSet) {
	if slices.Equal(n.Sick, sick) && slices.Equal(n.Disabled, disabled) && n.Trusted == trusted {
		return
	}
	before := n.OutOfUse()
	m := *n
	m.Sick, m.Disabled, m.Trusted = sick, disabled, trusted
	out := m.OutOfUse()
	if a := x.s.Action(n.ReservedFor); a != nil && a.GPUs() != nil && out&^before != 0 {
		x.unreserve(a)
		m.ReservedFor, m.Alone = 0, false
	}
	if out != before {
		m.GPUs.Free = m.InUse() &^ x.heldGPUs(&m) &^ m.Withheld
	}
	x.putNode(&m)
	if out == before {
		return
	}
	x.evictOutOfUse(&m)
	x.reviewNode(m.Name, false)
	x.gpusChanged(x.s.Node(m.ID))
}

// carryGPUHealth keeps what was said of the GPUs of a node that comes back: what an operator
// said holds, and the agent says at once what is sick now.
func carryGPUHealth(row, old *state.Node) {
	there := func(faults []state.GPUFault) []state.GPUFault {
		return slices.DeleteFunc(slices.Clone(faults), func(f state.GPUFault) bool { return f.GPU >= row.GPUs.Count })
	}
	row.Sick, row.Disabled = there(old.Sick), there(old.Disabled)
	row.Trusted = old.Trusted & state.SetOf(row.Sick)
	row.GPUs.Free &= row.InUse()
}

// heldGPUs returns the GPUs of a node that attempts hold.
func (x *execution) heldGPUs(n *state.Node) (held state.GPUSet) {
	x.s.Attempts(n.ID, func(t *state.Attempt) bool {
		x.budget--
		held |= t.Chunk.GPUs()
		return true
	})
	return held
}

// evictOutOfUse forgets which models are resident on GPUs that are out of use, except those
// that attempts use: they leave when these have ended.
func (x *execution) evictOutOfUse(n *state.Node) {
	kept := &state.Residency{Node: n.ID}
	for _, m := range x.s.ModelsOn(n.ID) {
		if m.Chunk.GPUs()&n.OutOfUse() == 0 || x.uses(n, &m) {
			kept.Models = append(kept.Models, m)
		}
	}
	if len(kept.Models) < len(x.s.ModelsOn(n.ID)) {
		x.s.PutResidency(kept)
	}
}

// gpusChanged has the actions looked at that wait for GPUs of a node of which others are out of
// use now. Those that no node can serve any more go aside, and those that it can come back.
func (x *execution) gpusChanged(n *state.Node) {
	if n.Usable() && x.s.UsableAlike(n) == 1 {
		x.recall(n.GPUQueue().Aside())
		x.recallUnits()
	}
	x.gangsRecalled(n)
	x.dirty.add(n.GPUQueue())
	x.nodeFreed(n)
}
