package model

import (
	"bytes"
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// What agents and operators say of nodes, and what agents report.

func (m *Model) register(c *logv1.RegisterNode, got *logv1.Result) error {
	row, valid := describedNode(c)
	if !valid {
		return refused(got, "INVALID")
	}
	old := m.nodes[c.Name]
	var v verdict
	if old != nil {
		v.refuse(old.State == state.NodeUp && old.JournalID != c.JournalId, "NODE_NAME_TAKEN")
		v.refuse(old.reservedBytes() > c.MemoryBytes, "NODE_TEARDOWN")
		v.refuse(m.comesLate(old, row, c), "NODE_TEARDOWN")
	}
	v.refuse(old == nil && len(m.nodes) >= nodesMax, "TOO_MANY_NODES")
	v.refuse(m.pools[orDefault(c.Pool)] == nil && len(m.pools) >= poolsMax, "TOO_MANY_POOLS")
	m.declares(&v, &row, c.Gpus)
	if ok, err := v.judge(got); !ok {
		return err
	}
	if c.Gpus != nil {
		m.gpuClasses[c.Gpus.Class] = row.GPUs.Class
	}
	p := m.poolNamed(c.Pool)
	row.Pool, row.RegisteredAt = p.id, m.now
	if m.level >= levelResizing {
		row.Resizes, row.CacheBytes, row.Containers = c.Resizes, c.CacheBytes, c.Containers
		row.ShareAfterNS = max(0, c.ShareAfterNs)
	}
	if old != nil && old.goesOn(row, c.Incarnation) {
		relabeled := !slices.Equal(old.Labels, row.Labels)
		old.Address, old.Runtime, old.Labels, old.CacheBytes = row.Address, row.Runtime, row.Labels, row.CacheBytes
		old.Containers, old.ShareAfterNS = row.Containers, row.ShareAfterNS
		old.canResize(row.Resizes)
		m.touchNode(old)
		m.relabel(old)
		if relabeled {
			if err := m.reviewNode(old.Name, false); err != nil {
				return err
			}
		}
		return result(got, &logv1.Result{Incarnation: old.Incarnation})
	}
	var left *pool
	if old != nil {
		left = old.pool
		if err := m.expectAll(m.loseNode(old)); err != nil {
			return err
		}
	}
	m.lastIncarnation++
	row.Incarnation = m.lastIncarnation
	n := m.enter(old, row, p)
	if err := m.expect(n.event()); err != nil {
		return err
	}
	if err := m.reviewNode(n.Name, true); err != nil {
		return err
	}
	if left != nil && left != p && !m.inUse(left) {
		m.forgetPool(left)
	}
	return result(got, &logv1.Result{Incarnation: row.Incarnation})
}

// comesLate: the registration may be older than that by which the node is up, and of another
// machine; what runs there by now is not lost.
func (m *Model) comesLate(old *node, row state.Node, c *logv1.RegisterNode) bool {
	if p := m.pools[orDefault(c.Pool)]; p != nil {
		row.Pool = p.id
	}
	if g := c.Gpus; g != nil {
		row.GPUs = state.GPUs{Class: m.gpuClasses[g.Class], Count: g.Count, Memory: g.MemoryBytes}
	}
	return m.level >= levelResizing && old.State == state.NodeUp && len(old.running) > 0 && c.Incarnation < old.Incarnation && !old.goesOn(row, c.Incarnation)
}

// describedNode is the row of a registration, if it is valid.
func describedNode(c *logv1.RegisterNode) (row state.Node, valid bool) {
	valid = c.Name != "" && len(c.Name) <= nameBytesMax && c.JournalId != "" && len(c.JournalId) <= nameBytesMax &&
		len(c.Address) <= addressBytesMax && len(c.Runtime) <= addressBytesMax &&
		len(c.Labels) <= labelsMax && len(c.NumaNodes) <= numaNodesMax
	row = state.Node{
		Name: c.Name, JournalID: c.JournalId, State: state.NodeUp, Address: c.Address, Runtime: c.Runtime,
		Memory: c.MemoryBytes, FreeMemory: c.MemoryBytes, Bandwidth: c.BandwidthBps, FreeBandwidth: c.BandwidthBps,
	}
	for _, numa := range c.NumaNodes {
		var cores state.CoreSet
		for _, cpu := range numa.Cpus {
			if cpu >= coresMax || row.Free.Has(int(cpu)) {
				return row, false
			}
			cores.Add(int(cpu))
			row.Free.Add(int(cpu))
		}
		row.NUMA = append(row.NUMA, cores)
	}
	for _, l := range c.Labels {
		valid = valid && len(l.Key)+len(l.Value) <= labelBytesMax
		row.Labels = append(row.Labels, state.Label{Key: l.Key, Value: l.Value})
	}
	return row, valid
}

// goesOn: nothing can have been lost. The node was never given up, it is the
// same machine with the same journal, and its agent knows the incarnation or has
// not begun.
func (n *node) goesOn(row state.Node, incarnation uint64) bool {
	return n.State == state.NodeUp && n.JournalID == row.JournalID && n.Pool == row.Pool &&
		n.Memory == row.Memory && slices.Equal(n.NUMA, row.NUMA) &&
		n.GPUs.Class == row.GPUs.Class && n.GPUs.Count == row.GPUs.Count && n.GPUs.Memory == row.GPUs.Memory &&
		n.Bandwidth == row.Bandwidth && incarnation <= n.Incarnation
}

// enter makes a node available, with nothing on it but trajectories that are
// being ended.
func (m *Model) enter(n *node, row state.Node, p *pool) *node {
	if n == nil {
		m.lastNode++
		n = &node{}
		row.ID = m.lastNode
		m.nodes[row.Name], m.nodeByID[row.ID] = n, n
	} else {
		row.ID, row.Draining, row.Trajectories = n.ID, n.OperatorDrains(), n.Trajectories
		row.ReservedFor = n.ReservedFor // until it is learned that it is no more
		row.FreeMemory -= n.reservedBytes()
		n.returnsWith(&row)
		m.touchPool(n.pool)
		n.pool.nodes = remove(n.pool.nodes, n)
		if n.State == state.NodeUp {
			m.counts.NodesUp--
		}
	}
	n.Node, n.pool, n.models, n.engines = row, p, nil, nil
	p.nodes = append(p.nodes, n)
	m.counts.NodesUp++
	m.onlyArrivals = false
	m.touchNode(n)
	return n
}

func (m *Model) expireNode(c *logv1.ExpireNode, got *logv1.Result) error {
	n := m.nodes[c.Name]
	if n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp {
		return result(got, &logv1.Result{})
	}
	changes := m.loseNode(n)
	n.State, n.models, n.engines = state.NodeDown, nil, nil
	m.counts.NodesUp--
	m.onlyArrivals = false
	m.touchNode(n)
	if err := m.expectAll(append(changes, change{n.event(), nil})); err != nil {
		return err
	}
	if err := m.reviewNode(n.Name, true); err != nil {
		return err
	}
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) drain(c *logv1.DrainNode, got *logv1.Result) error {
	if c.Gpus != 0 && m.level < levelResizing {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	n := m.nodes[c.Name]
	if n == nil {
		return refused(got, "NODE_NOT_FOUND")
	}
	if c.Gpus != 0 {
		return m.drainGPUs(n, c, got)
	}
	return m.setDrains(n, c.Draining, n.LowDisk, got)
}

// reportDisk counts only from the incarnation that the node has.
func (m *Model) reportDisk(c *logv1.ReportDisk, got *logv1.Result) error {
	n := m.nodes[c.Name]
	if n == nil || n.Incarnation != c.Incarnation {
		return result(got, &logv1.Result{})
	}
	return m.setDrains(n, n.OperatorDrains(), c.Low, got)
}

// setDrains: a node gets no new work if its operator or its disk is against it.
func (m *Model) setDrains(n *node, operator, lowDisk bool, got *logv1.Result) error {
	m.onlyArrivals = false
	m.touchNode(n)
	if n.OperatorDrains() != operator || n.LowDisk != lowDisk {
		n.Draining, n.LowDisk, n.Drained = operator || lowDisk, lowDisk, operator && lowDisk
		if err := m.expect(n.event()); err != nil {
			return err
		}
		if err := m.reviewNode(n.Name, false); err != nil {
			return err
		}
	}
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) removeNode(c *logv1.RemoveNode, got *logv1.Result) error {
	n := m.nodes[c.Name]
	if n == nil {
		return refused(got, "NODE_NOT_FOUND")
	}
	var v verdict
	v.refuse(n.State == state.NodeUp, "NODE_UP")
	v.refuse(len(n.hosted) > 0, "NODE_TEARDOWN")
	if ok, err := v.judge(got); !ok {
		return err
	}
	delete(m.nodes, n.Name)
	delete(m.nodeByID, n.ID)
	n.pool.nodes = remove(n.pool.nodes, n)
	if err := m.reviewNode(n.Name, true); err != nil {
		return err
	}
	return result(got, &logv1.Result{Count: 1})
}

// report settles what agents say has ended. A report counts only with the token
// of the live attempt: its number, on this node, in this incarnation.
func (m *Model) report(c *logv1.ReportAttempts, got *logv1.Result) error {
	n := m.nodes[c.Node]
	if m.level < levelResizing && slices.ContainsFunc(c.Reports, tellsOfQuotas) {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	if n == nil {
		return refused(got, "NODE_NOT_FOUND")
	}
	count := uint32(0)
	for _, r := range c.Reports {
		a := m.actions[state.ActionID(r.ActionId)]
		if a == nil || a.State != state.ActionRunning || a.Node != n.ID || a.Attempt != r.Attempt || a.incarnation != c.Incarnation {
			continue
		}
		count++
		m.learn(a, r)
		m.hearsProvider(a, r)
		m.hearsUsage(a, r)
		m.release(a)
		if err := m.emit(a, m.settle(a, r)); err != nil {
			return fmt.Errorf("report of action %d: %w", a.ID, err)
		}
	}
	return result(got, &logv1.Result{Count: count})
}

// settle ends an attempt as it was reported.
func (m *Model) settle(a *action, r *logv1.AttemptReport) state.Event {
	reason := state.EndReason(r.Reason)
	if r.Reason < uint32(state.EndExited) || r.Reason > uint32(state.EndSupervisorLost) {
		reason = state.EndStartFailed // of a newer agent
	}
	res := &state.Result{
		Reason: reason, ExitCode: r.ExitCode, Signal: r.Signal, Message: r.Message[:min(len(r.Message), tailBytesMax)],
		ExecNS: r.ExecNs, CPUNS: r.CpuNs, MemoryPeak: r.MemoryPeakBytes,
	}
	res.Stdout, res.Stderr = m.tails(a, r)
	if a.GangEndedBy != 0 && res.Message == "" && (reason != state.EndExited || r.ExitCode != 0) {
		res.Message = gangWords(a)
	}
	switch {
	case reason == state.EndNodeLost || reason == state.EndSupervisorLost:
		return m.lose(a, reason, res)
	case reason == state.EndExited && r.ExitCode == 0:
		return m.end(a, state.ActionSucceeded, res)
	case reason == state.EndExited:
		return m.end(a, state.ActionFailed, res)
	case a.CancelReason != 0:
		res.Reason = a.CancelReason
		return m.end(a, state.ActionCanceled, res)
	case reason == state.EndCanceled:
		return m.end(a, state.ActionCanceled, res)
	}
	return m.end(a, state.ActionFailed, res)
}

// tails returns what is kept of the two outputs: their ends, as the state has
// them, if these are the ends and as much as may be kept of both together.
func (m *Model) tails(a *action, r *logv1.AttemptReport) (out, errs []byte) {
	row := m.s.Action(a.ID)
	if row == nil || row.Result == nil {
		return r.StdoutTail, r.StderrTail
	}
	out, errs = row.Result.Stdout, row.Result.Stderr
	kept, all := len(out)+len(errs), len(r.StdoutTail)+len(r.StderrTail)
	if kept != min(all, tailBytesMax) || !bytes.HasSuffix(r.StdoutTail, out) || !bytes.HasSuffix(r.StderrTail, errs) {
		return r.StdoutTail, r.StderrTail // which is then found to differ
	}
	return out, errs
}
