package fsm

import (
	"cmp"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

const (
	nodesMax      = 65536
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
	if old != nil && x.comesLate(old, row, c) {
		return retryAfter(refuse(codeUnavailable, "NODE_TEARDOWN",
			"node %q has other resources than it registered since with; try again when the lease of what it runs has ended", c.Name), x.settings().LeaseNS)
	}
	if old == nil && x.s.NodeCount() >= nodesMax {
		return refuse(codeResourceExhausted, "TOO_MANY_NODES", "there are %d nodes already, which is the limit: remove some that are down with: rota node remove", nodesMax)
	}
	if r := x.mayJoinPool(c.Pool); r != nil {
		return r
	}
	if r := x.gpusOf(c); r != nil {
		return r
	}
	goesOn := old != nil && old.State == state.NodeUp && c.Incarnation <= old.Incarnation && sameMachine(old, x.asSent(row, c))
	settled := old == nil || goesOn || x.settled(old)
	if settled || x.s.Meta().Level < sched.LevelResizing { // below, a refusal leaves the pool and the class
		x.declareGPUs(row, c.Gpus)
		row.Pool = x.poolNamed(c.Pool)
	}
	if !settled {
		return retryAfter(refuse(codeUnavailable, "NODE_TEARDOWN", "what node %q ran before is still being settled; try again", c.Name), settleRetryNS)
	}
	row.RegisteredAt = x.now()
	if x.s.Meta().Level >= sched.LevelResizing {
		row.Resizes, row.CacheBytes, row.Containers = c.Resizes, c.CacheBytes, c.Containers
		row.ShareAfterNS = max(0, c.ShareAfterNs)
	}
	if goesOn {
		return x.refreshNode(old, row)
	}
	r = x.enterNode(x.s.NodeByName(c.Name), row)
	if old != nil && (old.Pool != row.Pool || old.GPUs.Class != row.GPUs.Class && x.s.Meta().Level >= sched.LevelResizing) {
		for _, q := range x.queuesOf(old) { // who waited behind those that only this node could take
			x.dirty.add(q)
		}
	}
	if old != nil && old.Pool != row.Pool {
		x.wakeGangs(old.Pool)
		x.leavePool(old.Pool)
	}
	return r
}

// comesLate reports whether a registration may have been sent before the one that its node
// is up by, when the machine was another: by an agent that had started nothing of the newest
// incarnation then. What runs of that by now must not be taken for lost. From feature level 3
// on.
func (x *execution) comesLate(old, row *state.Node, c *logv1.RegisterNode) bool {
	if x.s.Meta().Level < sched.LevelResizing || old.State != state.NodeUp || c.Incarnation >= old.Incarnation || old.Running == 0 {
		return false
	}
	return !sameMachine(old, x.asSent(row, c))
}

// asSent is a row with the pool and the GPUs that its agent names, as far as they exist.
func (x *execution) asSent(row *state.Node, c *logv1.RegisterNode) *state.Node {
	sent := *row
	if p := x.s.PoolByName(cmp.Or(c.Pool, defaultName)); p != nil {
		sent.Pool = p.ID
	}
	if g := c.Gpus; g != nil {
		sent.GPUs = state.GPUs{Count: g.Count, Memory: g.MemoryBytes}
		if class := x.s.GPUClassByName(g.Class); class != nil {
			sent.GPUs.Class = class.ID
		}
	}
	return &sent
}

// settleRetryNS is after what time a node may try to return whose earlier attempts were
// too many for one entry.
const settleRetryNS = 100_000_000

// settled settles what a node ran that has come back without it, and reports whether
// nothing of that is left.
func (x *execution) settled(old *state.Node) bool {
	done := x.tearDownNode(old, "its node came back without it")
	if !done {
		x.giveUpNode(old.ID, done)
	}
	return done
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
	x.s.NodeTrajectories(n.ID, func(t *state.Trajectory) bool {
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
// failure domains of what lives there change. Where attempts can no longer be resized,
// they keep the cores that they have.
func (x *execution) refreshNode(old, row *state.Node) *logv1.Result {
	if old.Resizes && !row.Resizes {
		old = x.fixAttempts(old)
	}
	n := *old
	n.Spare -= n.SharedSpare()
	n.Address, n.Runtime, n.Labels, n.Resizes = row.Address, row.Runtime, row.Labels, row.Resizes
	n.CacheBytes, n.Containers, n.ShareAfterNS = row.CacheBytes, row.Containers, row.ShareAfterNS
	n.Spare += n.SharedSpare()
	x.s.PutNode(&n)
	if n.ShareAfterNS != old.ShareAfterNS {
		x.divides(&n, n.Cores())
	}
	x.endChanged(n.ID)
	x.dirtyNodes.add(n.ID)
	if old.Containers != n.Containers {
		x.containersChanged(&n)
	}
	if !slices.Equal(old.Labels, n.Labels) {
		x.moveDomains(&n)
		x.reviewNode(n.Name, false)
	}
	return &logv1.Result{Incarnation: n.Incarnation}
}

// fixAttempts has the attempts on a node keep the cores that they have, and returns the
// node's row as it is then.
func (x *execution) fixAttempts(n *state.Node) *state.Node {
	for _, t := range x.attemptsOn(n.ID, int(n.Running)) {
		if t.Least > 0 {
			u := *t
			u.Least, u.Anchor = 0, 0
			x.s.PutAttempt(&u)
		}
	}
	m := *n
	m.Spare, m.DivideAt = m.SharedSpare(), 0
	x.s.PutNode(&m)
	return &m
}

// moveDomains counts the open trajectories of a node in the domains that it is in
// by its labels.
func (x *execution) moveDomains(n *state.Node) {
	var moved []*state.Trajectory
	x.s.NodeTrajectories(n.ID, func(t *state.Trajectory) bool {
		if domain := domainOn(n, t); t.State == state.TrajectoryOpen && domain != t.Spread.Domain {
			u := *t
			u.Spread.Domain = domain
			moved = append(moved, &u)
		}
		return true
	})
	for _, t := range moved {
		x.budget--
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
		row.ID, row.Draining, row.Trajectories = old.ID, old.OperatorDrains(), old.Trajectories
		row.FreeMemory -= x.reserved(old)
		carryGPUHealth(row, old)
	}
	row.Incarnation = m.LastIncarnation
	x.s.SetMeta(m)
	x.s.DeleteResidency(row.ID)
	x.s.DeleteNodeEngines(row.ID)
	x.putNode(row)
	x.reviewNode(row.Name, true)
	x.drainsChanged(x.s.Node(row.ID))
	return &logv1.Result{Incarnation: row.Incarnation}
}

// expireNode gives up a node whose lease has ended. The leader counted; a node
// that has a newer incarnation since is left alone.
func (x *execution) expireNode(c *logv1.ExpireNode) *logv1.Result {
	n := x.s.NodeByName(c.Name)
	if n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp {
		return &logv1.Result{}
	}
	x.giveUpNode(n.ID, x.tearDownNode(n, "the lease of its node ended"))
	return &logv1.Result{Count: 1}
}

// giveUpNode takes a lost node out of office. What it ran and is not settled yet goes on
// in later entries.
func (x *execution) giveUpNode(id state.NodeID, settled bool) {
	if n := x.s.Node(id); n.State == state.NodeUp {
		x.loseSnapshots(n)
		x.s.DeleteResidency(id)
		x.s.DeleteNodeEngines(id)
		m := *n
		m.State = state.NodeDown
		m.GPUs.Free |= m.Withheld & m.InUse()
		m.Withheld = 0
		x.putNode(&m)
		x.reviewNode(m.Name, true)
		x.usableChanged(&m)
	}
	if !settled {
		x.dirty.add(state.QueueOf(state.NodeTeardown, id))
	}
}

// lossCost is what it costs of an entry's budget to settle an action that is lost or
// canceled.
const lossCost = 4

// tearDownNode settles the attempts of a lost node as far as the budget goes, and lets
// go of an action it was reserved for. It reports whether all are settled. The trajectories
// on it end first, so that no action of theirs is queued again.
func (x *execution) tearDownNode(n *state.Node, why string) (done bool) {
	if a := x.s.Action(n.ReservedFor); a != nil {
		x.unreserve(a)
	}
	if n.Incarnation <= x.s.Meta().Origin.Incarnation {
		why = x.whyFenced()
	}
	x.loseSnapshots(n)
	for _, t := range x.openOn(n.ID, x.budget) {
		x.budget--
		x.beginClose(t, state.EndNodeLost)
	}
	for _, t := range x.attemptsOn(n.ID, x.budget/lossCost) {
		x.budget -= lossCost
		x.release(t)
		x.lost(x.s.Action(t.Action), &state.Result{Reason: state.EndNodeLost, Message: why})
	}
	return x.s.Node(n.ID).Running == 0 && len(x.openOn(n.ID, 1)) == 0
}

// openOn returns up to most of the trajectories on a node that are not being ended.
func (x *execution) openOn(id state.NodeID, most int) (open []*state.Trajectory) {
	x.s.NodeTrajectories(id, func(t *state.Trajectory) bool {
		if t.State == state.TrajectoryOpen && len(open) < most {
			open = append(open, t)
		}
		return len(open) < most
	})
	return open
}

// attemptsOn returns up to most of the attempts on a node.
func (x *execution) attemptsOn(id state.NodeID, most int) (live []*state.Attempt) {
	x.s.Attempts(id, func(t *state.Attempt) bool {
		if len(live) < most {
			live = append(live, t)
		}
		return len(live) < most
	})
	return live
}

// drainNode stops or allows new work on a node.
func (x *execution) drainNode(c *logv1.DrainNode) *logv1.Result {
	n := x.s.NodeByName(c.Name)
	if n == nil {
		return refuse(codeNotFound, "NODE_NOT_FOUND", "node %q is not registered; see: rota node list", c.Name)
	}
	if c.Gpus != 0 {
		return x.drainGPUs(n, c)
	}
	x.setDrains(n, c.Draining, n.LowDisk)
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
	case n.Trajectories > 0 || n.Running > 0:
		return refuse(codeUnavailable, "NODE_TEARDOWN", "what lived on node %q is still being ended; try again", c.Name)
	}
	x.s.DeleteNode(n.ID)
	x.endChanged(n.ID)
	x.reviewNode(c.Name, true)
	return &logv1.Result{Count: 1}
}

// putNode stores a node whose state changed, with the event. If it was the last usable one of its
// shape, those first in line for units of quotas may have nobody left who could serve them.
func (x *execution) putNode(n *state.Node) {
	old := x.s.Node(n.ID)
	x.s.AddEvent(state.Event{Kind: state.EventNode, Subject: uint64(n.ID), Node: n.ID, State: uint8(n.State)})
	x.s.PutNode(n)
	x.dirtyNodes.add(n.ID)
	x.endChanged(n.ID)
	if old != nil && old.Usable() && x.s.UsableAlike(old) == 0 {
		x.judgeQuotas()
	}
}
