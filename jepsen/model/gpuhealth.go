package model

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// GPUs that are out of use: nothing starts on them, what runs there runs on, and models leave
// them.

const gpuReasonMax = 128

// out are the GPUs of a node that are out of use.
func (n *node) out() (set state.GPUSet) {
	for _, f := range n.Sick {
		if n.Trusted>>f.GPU&1 == 0 {
			set |= 1 << f.GPU
		}
	}
	for _, f := range n.Disabled {
		set |= 1 << f.GPU
	}
	return set
}

// couldGive: the node has a chunk of so many GPUs that are not out of use.
func (n *node) couldGive(units uint32, without state.GPUSet) bool {
	whole := node{Node: state.Node{GPUs: state.GPUs{Count: n.GPUs.Count, Free: firstGPUs(n.GPUs.Count)}}}
	return whole.hasChunk(units, without|n.out())
}

func (m *Model) reportGPUs(c *logv1.ReportGpus, got *logv1.Result) error {
	if m.level < levelResizing {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	n := m.nodes[c.Node]
	if n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp {
		return result(got, &logv1.Result{})
	}
	var sick []state.GPUFault
	bad := false
	for gpu := range uint32(64) {
		if c.Sick>>gpu&1 == 0 {
			continue
		}
		f := state.GPUFault{GPU: gpu}
		if len(sick) < len(c.Reasons) {
			f.Reason = c.Reasons[len(sick)]
		}
		bad = bad || gpu >= n.GPUs.Count || len(f.Reason) > gpuReasonMax
		sick = append(sick, f)
	}
	if bad || len(sick) != len(c.Reasons) {
		return refused(got, "INVALID")
	}
	trusted := state.GPUSet(0) // as long as the same is said
	for _, f := range sick {
		if slices.Contains(n.Sick, f) {
			trusted |= n.Trusted & (1 << f.GPU)
		}
	}
	return m.setGPUHealth(n, sick, n.Disabled, trusted, got)
}

// drainGPUs: an operator's word is the last.
func (m *Model) drainGPUs(n *node, c *logv1.DrainNode, got *logv1.Result) error {
	if n.GPUs.Count < 64 && c.Gpus>>n.GPUs.Count != 0 || len(c.Reason) > gpuReasonMax {
		return refused(got, "INVALID")
	}
	var disabled []state.GPUFault
	trusted := n.Trusted
	for gpu := range uint32(64) {
		named := c.Gpus>>gpu&1 == 1
		i := slices.IndexFunc(n.Disabled, func(f state.GPUFault) bool { return f.GPU == gpu })
		switch {
		case !named && i >= 0:
			disabled = append(disabled, n.Disabled[i])
		case named && c.Draining:
			disabled = append(disabled, state.GPUFault{GPU: gpu, Reason: c.Reason})
			trusted &^= 1 << gpu
		case named && slices.ContainsFunc(n.Sick, func(f state.GPUFault) bool { return f.GPU == gpu }):
			trusted |= 1 << gpu
		}
	}
	return m.setGPUHealth(n, n.Sick, disabled, trusted, got)
}

func (m *Model) setGPUHealth(n *node, sick, disabled []state.GPUFault, trusted state.GPUSet, got *logv1.Result) error {
	m.onlyArrivals = false
	m.touchNode(n)
	if slices.Equal(n.Sick, sick) && slices.Equal(n.Disabled, disabled) && n.Trusted == trusted {
		return result(got, &logv1.Result{Count: 1})
	}
	before := n.out()
	n.Sick, n.Disabled, n.Trusted = sick, disabled, trusted
	if err := m.expect(n.event()); err != nil {
		return err
	}
	if n.out() == before {
		return result(got, &logv1.Result{Count: 1})
	}
	if a := m.actions[n.ReservedFor]; a != nil && a.GPUs() != nil && n.out()&^before != 0 {
		m.free(a)
	}
	n.GPUs.Free = firstGPUs(n.GPUs.Count) &^ n.out()
	for _, a := range n.running {
		n.GPUs.Free &^= a.chunk.GPUs()
	}
	n.models = slices.DeleteFunc(slices.Clone(n.models), func(r state.Resident) bool { return r.Chunk.GPUs()&n.out() != 0 && !n.uses(&r) })
	if err := m.reviewNode(n.Name, false); err != nil {
		return err
	}
	return result(got, &logv1.Result{Count: 1})
}

// free takes from an action, and from its gang, what is reserved for it. The entry may reserve the same
// again after others have started.
func (m *Model) free(a *action) {
	a.freed = m.applied
	if first := m.actions[a.Gang]; first != nil {
		first.freed = m.applied
	}
}

// uses: an action that runs has the chunk for the model.
func (n *node) uses(r *state.Resident) bool {
	return slices.ContainsFunc(n.running, func(a *action) bool {
		return a.GPUs() != nil && a.GPUs().Model == r.Model && a.chunk == r.Chunk
	})
}

// returnsWith is what was said of the GPUs of a node that comes back.
func (n *node) returnsWith(row *state.Node) {
	for _, f := range n.Sick {
		if f.GPU < row.GPUs.Count {
			row.Sick = append(row.Sick, f)
			row.Trusted |= n.Trusted & (1 << f.GPU)
		}
	}
	for _, f := range n.Disabled {
		if f.GPU < row.GPUs.Count {
			row.Disabled = append(row.Disabled, f)
		}
	}
	again := node{Node: *row}
	row.GPUs.Free &^= again.out()
}
