package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/ledger"
)

const nodeGroupsMax = 1024

// createNodeGroup makes a group that training jobs may take turns on.
func (x *execution) createNodeGroup(c *logv1.CreateNodeGroup) *logv1.Result {
	all := int64(0)
	x.s.NodeGroups(func(g *state.NodeGroup) bool { all += g.Nodes; return true })
	switch {
	case c.Name == "" || len(c.Name) > nameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "a node group needs a name of at most %d bytes", nameBytesMax)
	case c.Members == nil && (c.Nodes < 1 || c.Nodes > ledger.NodesMax-all):
		return refuse(codeInvalidArgument, "INVALID", "a node group must have 1 to %d nodes, not %d", ledger.NodesMax-all, c.Nodes)
	case len(c.HookPool) > nameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "hook_pool must be at most %d bytes", nameBytesMax)
	case x.s.NodeGroupByName(c.Name) != nil:
		return refuse(codeAlreadyExists, "NODE_GROUP_EXISTS", "node group %q exists already", c.Name)
	case x.s.NodeGroupCount() >= nodeGroupsMax:
		return refuse(codeResourceExhausted, "TOO_MANY_NODE_GROUPS", "there are %d node groups already, which is the limit; delete some", nodeGroupsMax)
	}
	if _, r := x.pool(c.HookPool); r != nil {
		return r
	}
	m := *x.s.Meta()
	m.LastGroup++
	g := &state.NodeGroup{ID: m.LastGroup, Name: c.Name, HookPool: c.HookPool}
	if r := x.chooseMembers(g, c.Nodes, c.Members, c.Selector); r != nil {
		return r
	}
	if r := x.mayHaveNodes(g); r != nil {
		return r
	}
	x.s.SetMeta(m)
	x.joinMembers(g)
	if len(g.Members.List) > 0 {
		x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))
	}
	x.placeAgain()
	return &logv1.Result{FirstId: uint64(m.LastGroup), Count: 1}
}

// deleteNodeGroup forgets a group that no job is on.
func (x *execution) deleteNodeGroup(c *logv1.DeleteNodeGroup) *logv1.Result {
	g := x.s.NodeGroupByName(c.Name)
	if g == nil {
		return refuse(codeNotFound, "NODE_GROUP_NOT_FOUND", "node group %q does not exist; see: rota node-group list", c.Name)
	}
	var on *state.Job
	x.s.GroupJobs(g.ID, func(j *state.Job) bool { on = j; return false })
	switch {
	case on != nil:
		return refuse(codeFailedPrecondition, "NODE_GROUP_IN_USE", "job %q is on node group %q: suspend, complete or move it first", on.Name, g.Name)
	case g.Turn != 0:
		return refuse(codeFailedPrecondition, "NODE_GROUP_IN_USE", "turn %d holds node group %q: wait until it yields", g.Turn, g.Name)
	case g.ContextSwitch != nil:
		return refuse(codeFailedPrecondition, "NODE_GROUP_IN_USE", "hooks run for node group %q: wait until they have ended", g.Name)
	}
	x.leaveToActions(g)
	g = x.s.NodeGroup(g.ID)
	x.s.DeleteNodeGroup(g.ID)
	x.offerMembers(g.Members.List)
	return &logv1.Result{Count: 1}
}

// resumeLedger goes on with what was halted after a failed decision.
func (x *execution) resumeLedger() *logv1.Result {
	r := &logv1.Result{}
	x.s.NodeGroups(func(g *state.NodeGroup) bool {
		if g.Halted != "" {
			h := *g
			h.Halted = ""
			x.s.PutNodeGroup(&h)
			x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))
			r.Count++
		}
		return true
	})
	if m := *x.s.Meta(); m.PlacementHalted != "" {
		m.PlacementHalted = ""
		x.s.SetMeta(m)
		r.Count++
	}
	x.placeAgain()
	return r
}

// nextTurn does what a group has to do: its next turn, if it is free or is to become
// so.
func (x *execution) nextTurn(id state.GroupID) {
	g := x.s.NodeGroup(id)
	if g == nil {
		return
	}
	x.reviewBusy(g)
	x.replaceLost(g)
	for {
		d := sched.NextTurn(x.s, x.s.NodeGroup(id))
		x.budget -= 1 + d.Examined
		switch {
		case d.Grant != nil:
			x.grantTurn(d.Grant, x.s.NodeGroup(id))
			x.withhold(x.s.NodeGroup(id))
			continue
		case d.Stop != nil:
			x.askToStop(d.Stop)
			continue
		}
		x.settleGroup(id, d.GapUntil, d.NextAt, d.Waits)
		x.wakeGroupAt(x.s.NodeGroup(id), d.WakeAt)
		return
	}
}

// wakeGroupAt has a group looked at again at a log time; 0: not before something
// happens.
func (x *execution) wakeGroupAt(g *state.NodeGroup, ns int64) {
	if g.WakeAt != ns {
		h := *g
		h.WakeAt = ns
		x.s.PutNodeGroup(&h)
	}
}
