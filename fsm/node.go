package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

const (
	numaNodesMax  = 64
	labelsMax     = 64
	labelBytesMax = 512 // of key and value together
)

// registerNode admits a node, new or come back. It keeps its incarnation only if
// nothing can have been lost: same journal, same resources, never given up, and
// an agent that either knows the incarnation or has started nothing of it yet. An
// agent that names an older one, or none, has not: it writes its incarnation down
// before it starts anything. Or this is a registration that comes late, and the
// agent works by now: it must not be fenced for that.
func (x *execution) registerNode(c *logv1.RegisterNode) *logv1.Result {
	row, r := nodeRow(c)
	if r != nil {
		return r
	}
	old := x.s.NodeByName(c.Name)
	if old != nil {
		if r := x.mayReturn(old, c); r != nil {
			return r
		}
	}
	if r := x.gpusOf(c); r != nil {
		return r
	}
	x.declareGPUs(row, c.Gpus)
	row.Pool = x.poolNamed(c.Pool)
	row.RegisteredAt = x.now()
	if old != nil && old.State == state.NodeUp && sameMachine(old, row) && c.Incarnation <= old.Incarnation {
		return x.refreshNode(old, row)
	}
	if old != nil {
		x.loseAttempts(old, "its node came back without it")
	}
	return x.enterNode(x.s.NodeByName(c.Name), row)
}

// mayReturn refuses a registration under a name that another agent holds, or
// whose earlier work has not been settled.
func (x *execution) mayReturn(old *state.Node, c *logv1.RegisterNode) *logv1.Result {
	if old.State == state.NodeUp && old.JournalID != c.JournalId {
		return retryAfter(refuse(codeFailedPrecondition, "NODE_NAME_TAKEN",
			"another agent holds the name %q; stop it, give this one another name, or wait for its lease to end", c.Name), x.settings().LeaseNS)
	}
	if x.reserved(old) > c.MemoryBytes {
		return retryAfter(refuse(codeUnavailable, "NODE_TEARDOWN",
			"what lives on node %q has reserved more memory than it now has; try again when that has ended", c.Name), x.settings().LeaseNS)
	}
	return nil
}

// reserved returns the bytes that trajectories hold on a node.
func (x *execution) reserved(n *state.Node) (bytes uint64) {
	x.s.Residents(n.ID, func(t *state.Trajectory) bool {
		bytes += t.Memory
		return true
	})
	return bytes
}

// nodeRow validates what an agent says of its node.
func nodeRow(c *logv1.RegisterNode) (*state.Node, *logv1.Result) {
	if c.Name == "" || len(c.Name) > nameBytesMax || c.JournalId == "" || len(c.JournalId) > nameBytesMax ||
		len(c.Address) > 256 || len(c.Runtime) > 256 || len(c.Labels) > labelsMax || len(c.NumaNodes) > numaNodesMax {
		return nil, refuse(codeInvalidArgument, "INVALID", "a node needs a name and a journal ID of at most %d bytes, at most %d labels and %d NUMA nodes", nameBytesMax, labelsMax, numaNodesMax)
	}
	row := &state.Node{
		Name: c.Name, JournalID: c.JournalId, State: state.NodeUp, Address: c.Address, Runtime: c.Runtime,
		Memory: c.MemoryBytes, FreeMemory: c.MemoryBytes, Bandwidth: c.BandwidthBps, FreeBandwidth: c.BandwidthBps,
	}
	for _, n := range c.NumaNodes {
		var cores state.CoreSet
		for _, cpu := range n.Cpus {
			if cpu >= state.CoresPerNodeMax || row.Free.Has(int(cpu)) {
				return nil, refuse(codeInvalidArgument, "INVALID", "CPU %d of node %q is listed twice or not below %d", cpu, c.Name, state.CoresPerNodeMax)
			}
			cores.Add(int(cpu))
			row.Free.Add(int(cpu))
		}
		row.NUMA = append(row.NUMA, cores)
	}
	for _, l := range c.Labels {
		if len(l.Key)+len(l.Value) > labelBytesMax {
			return nil, refuse(codeInvalidArgument, "INVALID", "label %.40q of node %q is longer than %d bytes", l.Key, c.Name, labelBytesMax)
		}
		row.Labels = append(row.Labels, state.Label{Key: l.Key, Value: l.Value})
	}
	return row, nil
}

func sameMachine(a, b *state.Node) bool {
	return a.JournalID == b.JournalID && a.Pool == b.Pool && a.Memory == b.Memory && slices.Equal(a.NUMA, b.NUMA) &&
		sameGPUs(a.GPUs, b.GPUs) && a.Bandwidth == b.Bandwidth
}

// refreshNode updates what may change while a node goes on. With its labels, the
// failure domains of what lives there change.
func (x *execution) refreshNode(old, row *state.Node) *logv1.Result {
	n := *old
	n.Address, n.Runtime, n.Labels = row.Address, row.Runtime, row.Labels
	x.s.PutNode(&n)
	x.dirtyNodes.add(n.ID)
	if !slices.Equal(old.Labels, n.Labels) {
		x.moveDomains(&n)
	}
	return &logv1.Result{Incarnation: n.Incarnation}
}

// moveDomains counts the open trajectories of a node in the domains that it is in
// by its labels.
func (x *execution) moveDomains(n *state.Node) {
	var moved []*state.Trajectory
	x.s.Residents(n.ID, func(t *state.Trajectory) bool {
		if domain := domainOn(n, t); t.State == state.TrajectoryOpen && domain != t.Spread.Domain {
			u := *t
			u.Spread.Domain = domain
			moved = append(moved, &u)
		}
		return true
	})
	for _, t := range moved {
		x.s.PutTrajectory(t)
	}
}

// enterNode makes a node available under a new incarnation, with nothing on it
// but what is being ended.
func (x *execution) enterNode(old, row *state.Node) *logv1.Result {
	m := *x.s.Meta()
	m.LastIncarnation++
	if old == nil {
		m.LastNode++
		row.ID = m.LastNode
	} else {
		row.ID, row.Draining, row.Trajectories = old.ID, old.Draining, old.Trajectories
		row.FreeMemory -= x.reserved(old)
	}
	row.Incarnation = m.LastIncarnation
	x.s.SetMeta(m)
	x.s.DeleteResidency(row.ID)
	x.putNode(row)
	x.nodeFreed(row)
	x.dirty.add(state.PoolInstance(row.Pool))
	x.wakeCoreless(row.Pool)
	return &logv1.Result{Incarnation: row.Incarnation}
}

// expireNode gives up a node whose lease has ended. The leader counted; a node
// that has a newer incarnation since is left alone.
func (x *execution) expireNode(c *logv1.ExpireNode) *logv1.Result {
	n := x.s.NodeByName(c.Name)
	if n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp {
		return &logv1.Result{}
	}
	x.loseAttempts(n, "the lease of its node ended")
	x.s.DeleteResidency(n.ID)
	m := *x.s.Node(n.ID)
	m.State = state.NodeDown
	x.putNode(&m)
	return &logv1.Result{Count: 1}
}

// loseAttempts settles every attempt on a node as lost and lets go of an action
// it was kept for.
func (x *execution) loseAttempts(n *state.Node, why string) {
	if a := x.s.Action(n.HeldFor); a != nil {
		x.unhold(a)
	}
	var live []*state.Attempt
	x.s.Attempts(n.ID, func(t *state.Attempt) bool {
		live = append(live, t)
		return true
	})
	// Its trajectories end first, so that no action of theirs is queued again.
	x.loseResidents(n)
	for _, t := range live {
		x.release(t)
		x.lost(x.s.Action(t.Action), &state.Result{Reason: state.EndNodeLost, Message: why})
	}
}

// loseResidents begins the end of the trajectories of a lost node.
func (x *execution) loseResidents(n *state.Node) {
	var open []*state.Trajectory
	x.s.Residents(n.ID, func(t *state.Trajectory) bool {
		open = append(open, t)
		return true
	})
	for _, t := range open {
		x.beginClose(t, state.EndNodeLost)
	}
}

// drainNode stops or allows new work on a node.
func (x *execution) drainNode(c *logv1.DrainNode) *logv1.Result {
	n := x.s.NodeByName(c.Name)
	if n == nil {
		return refuse(codeNotFound, "NODE_NOT_FOUND", "node %q is not registered; see: rota node list", c.Name)
	}
	if a := x.s.Action(n.HeldFor); a != nil && c.Draining {
		x.unhold(a)
		n = x.s.Node(n.ID)
	}
	if n.Draining != c.Draining {
		m := *n
		m.Draining = c.Draining
		x.putNode(&m)
		x.nodeFreed(&m)
		x.dirty.add(state.PoolInstance(n.Pool))
		x.wakeCoreless(n.Pool)
	}
	return &logv1.Result{Count: 1}
}

// removeNode forgets a node that is down and empty.
func (x *execution) removeNode(c *logv1.RemoveNode) *logv1.Result {
	n := x.s.NodeByName(c.Name)
	switch {
	case n == nil:
		return refuse(codeNotFound, "NODE_NOT_FOUND", "node %q is not registered; see: rota node list", c.Name)
	case n.State == state.NodeUp:
		return refuse(codeFailedPrecondition, "NODE_UP", "node %q is up; stop its agent and wait for its lease to end", c.Name)
	case n.Trajectories > 0:
		return refuse(codeUnavailable, "NODE_TEARDOWN", "what lived on node %q is still being ended; try again", c.Name)
	}
	x.s.DeleteNode(n.ID)
	return &logv1.Result{Count: 1}
}

// putNode stores a node whose state changed, with the event.
func (x *execution) putNode(n *state.Node) {
	x.s.AddEvent(state.Event{Kind: state.EventNode, Subject: uint64(n.ID), Node: n.ID, State: uint8(n.State)})
	x.s.PutNode(n)
	x.dirtyNodes.add(n.ID)
}
