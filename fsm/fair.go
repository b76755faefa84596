package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/order"
)

// Namespaces share what they compete for by weight (docs/scheduling.md, "Shares of namespaces").
// Each is charged for what it is granted, and what it really used is settled when that ends.

// windowUnitUS is what a unit of a quota with a window is charged: it is used up, however long
// the call takes.
const windowUnitUS = 1_000_000

// clocksPerStep is how many clocks are moved for as much as it costs to examine an action.
const clocksPerStep = 16

// updateNamespace changes the weight and the limits of a namespace.
func (x *execution) updateNamespace(c *logv1.UpdateNamespace) *logv1.Result {
	ns, r := x.namespace(c.Name)
	if r != nil {
		return r
	}
	s := *x.s.SettingsOf(ns.ID)
	if c.MemoryMax != nil {
		s.MemoryMax = *c.MemoryMax
	}
	for _, change := range []struct {
		to   *uint32
		said *uint32
	}{{&s.Weight, c.Weight}, {&s.QueuedMax, c.QueuedMax}, {&s.RunningMax, c.RunningMax}, {&s.CoresMax, c.CoresMax}, {&s.GPUsMax, c.GpusMax}, {&s.TrajectoriesMax, c.TrajectoriesMax}} {
		if change.said != nil {
			*change.to = *change.said
		}
	}
	if s.Weight == 0 || s.Weight > state.NamespaceWeightMax {
		return refuse(codeInvalidArgument, "INVALID", "the weight of a namespace is 1 to %d, not %d", state.NamespaceWeightMax, s.Weight)
	}
	x.s.PutSettings(&s)
	x.roomFreed.add(ns.ID)
	delete(x.roomAfter, ns.ID)
	x.mayGoOn.add(ns.ID)
	return &logv1.Result{Count: 1}
}

// keepToLimit gives up the nodes that are reserved for actions of a namespace whose limits forbid them
// now, because these are lower or because resumed attempts took what was left: nobody else could use
// the nodes, for as long as that lasts.
func (x *execution) keepToLimit(ns state.NamespaceID) {
	if !x.s.AnySettings() || x.s.HeldBy(ns).Promised == (state.Promised{}) {
		return
	}
	for _, id := range x.s.Reserving(ns) {
		x.budget--
		if a := x.s.Action(id); a.ReservedOn != 0 && sched.LimitOf(x.s, a) != order.NoLimit {
			x.dirty.add(x.unreserve(a).Queue())
		}
	}
}

// mayOpen refuses one more trajectory of a namespace than its limits allow for.
func (x *execution) mayOpen(ns *state.Namespace, memory uint64) *logv1.Result {
	if !x.s.AnySettings() {
		return nil
	}
	s := x.s.SettingsOf(ns.ID)
	if has, most := x.s.Opened(ns.ID).Trajectories, s.TrajectoriesMax; most > 0 && has >= int(most) {
		return &logv1.Result{Refusal: fullFor("NAMESPACE_TRAJECTORIES_FULL",
			"namespace %q has %d open trajectories, and may have %d; close some, or ask an operator to run: rota operator namespace set %s --max-trajectories N",
			ns.Name, has, most, ns.Name)}
	}
	if s.MemoryMax == 0 || memory == 0 {
		return nil
	}
	if memory > s.MemoryMax {
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "the trajectory asks for %d bytes of memory, and namespace %q may hold at most %d: "+raiseLimit, memory, ns.Name, s.MemoryMax)
	}
	if has := x.s.HeldBy(ns.ID).Memory; has > s.MemoryMax-memory {
		return &logv1.Result{Refusal: fullFor("NAMESPACE_MEMORY_FULL",
			"namespace %q holds %d of at most %d bytes of memory, and the trajectory asks for %d; close some, or ask an operator to run: rota operator namespace set %s --max-memory SIZE",
			ns.Name, has, s.MemoryMax, memory, ns.Name)}
	}
	return nil
}

const raiseLimit = "ask an operator to raise that with: rota operator namespace set"

// withinLimits refuses an action, or a gang by its first action, that its namespace could never run.
func (x *execution) withinLimits(a *state.Action) *logv1.Result {
	if !x.s.AnySettings() {
		return nil
	}
	s := x.s.SettingsOf(a.Namespace)
	name := x.s.Namespace(a.Namespace).Name
	what, n := "action", uint32(1)
	if a.GangSize > 0 {
		what, n = "gang", a.GangSize
	}
	switch order.Exceeds(s, state.Held{}, a) {
	case order.RunningLimit:
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "the %s has %d actions, and namespace %q may run at most %d at once: "+raiseLimit, what, n, name, s.RunningMax)
	case order.CoresLimit:
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "the %s asks for %d cores, and namespace %q may hold at most %d: "+raiseLimit, what, n*a.CoresMin, name, s.CoresMax)
	case order.GPUsLimit:
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "the %s asks for %d GPUs, and namespace %q may hold at most %d: "+raiseLimit, what, n*a.GPUs().Degrees[0], name, s.GPUsMax)
	case order.MemoryLimit:
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "the %s asks for %d bytes of memory, and namespace %q may hold at most %d: "+raiseLimit, what, uint64(n)*a.Memory, name, s.MemoryMax)
	}
	return nil
}

// room is a walk through the queues in which actions of a namespace wait that holds less than
// before, or may hold more.
type room struct {
	namespace state.NamespaceID // 0: no walk has begun
	after     state.ActionID    // the oldest action in the queue that was visited last
}

// nextWithRoom returns the next queue in which an action may start since its namespace holds less.
// The queue with the oldest action comes first, and the walk ends when the namespace can run
// nothing more. So the end of one action costs one pass, or a few, in however many queues others
// wait.
func (x *execution) nextWithRoom() (state.Queue, bool) {
	for x.budget > 0 {
		if x.room.namespace == 0 {
			ns, ok := x.roomFreed.pop()
			if !ok {
				return state.Queue{}, false
			}
			x.room = room{namespace: ns, after: x.roomAfter[ns]}
			delete(x.roomAfter, ns)
		}
		id, q, ok := x.s.NextHead(x.room.namespace, x.room.after)
		if !ok || x.runsAllItMay(x.room.namespace) {
			x.room = room{}
			continue
		}
		x.budget--
		x.room.after = id
		if x.mayStartIn(q, x.s.Action(id)) {
			return q, true
		}
	}
	return state.Queue{}, false
}

func (x *execution) runsAllItMay(ns state.NamespaceID) bool {
	s := x.s.SettingsOf(ns)
	return s.RunningMax > 0 && x.s.HeldBy(ns).Running >= int(s.RunningMax)
}

// mayStartIn reports whether a pass over a queue could start an action of a namespace, by its
// oldest there. Behind an action that exceeds a limit, others of its namespace wait too.
func (x *execution) mayStartIn(q state.Queue, oldest *state.Action) bool {
	if q.Kind == state.NodeQueue {
		if n := x.s.Node(state.NodeID(q.ID)); n != nil && n.Spare == 0 && n.Free == (state.CoreSet{}) {
			return false // it is looked at when a core comes free
		}
	}
	return sched.LimitOf(x.s, oldest) == order.NoLimit
}

// leaveRoom leaves to later entries what there was no budget for.
func (x *execution) leaveRoom() {
	leave := func(ns state.NamespaceID, after state.ActionID) {
		x.s.PutWorkAfter(state.QueueOf(state.NamespaceRoom, ns), uint64(after))
	}
	if x.room.namespace != 0 {
		leave(x.room.namespace, x.room.after)
	}
	for _, ns := range x.roomFreed.items {
		leave(ns, x.roomAfter[ns])
	}
	for _, ns := range x.mayGoOn.items {
		x.s.PutWork(state.QueueOf(state.NamespaceRoom, ns))
	}
}

// goOnWithRoom goes on with a namespace where an earlier entry left it.
func (x *execution) goOnWithRoom(q state.Queue) {
	ns, after := state.NamespaceID(q.ID), state.ActionID(x.s.WorkAfter(q))
	x.mayGoOn.add(ns)
	if x.room.namespace == ns || x.roomFreed.has(ns) {
		return // it holds less since, and is looked at from the beginning
	}
	if x.roomAfter == nil {
		x.roomAfter = make(map[state.NamespaceID]state.ActionID)
	}
	x.roomFreed.add(ns)
	x.roomAfter[ns] = after
}

// chargeAttempt charges a namespace for an attempt that starts, and returns what: nothing if it is
// the only one.
func (x *execution) chargeAttempt(a *state.Action, g uint32) (us uint64) {
	q := a.KeyResource()
	if !x.s.Shares() || q == (state.Queue{}) {
		return 0
	}
	units := uint64(a.CoresMin)
	if a.GPUs() != nil {
		units = uint64(g)
	}
	return x.charge(q, a.Namespace, units)
}

func (x *execution) charge(q state.Queue, ns state.NamespaceID, units uint64) uint64 {
	clocks, us := order.Grant(x.s, x.s.Clocks(q), q, ns, units)
	x.s.PutClocks(clocks)
	x.budget -= len(clocks.Clocks) / clocksPerStep // each of them moves
	return us
}

// mayHoldMore has those of a namespace with limits looked at that waited for it to hold less, or
// behind one of it that does not wait there any more.
func (x *execution) mayHoldMore(ns state.NamespaceID) {
	if x.leavesRoom(ns) {
		x.mayGoOn.add(ns)
	}
}

// leavesRoom has queued actions of a namespace looked at that waited for its limits.
func (x *execution) leavesRoom(ns state.NamespaceID) (limited bool) {
	if limited = x.s.AnySettings() && x.s.SettingsOf(ns).Limits(); limited {
		x.roomFreed.add(ns)
		delete(x.roomAfter, ns)
	}
	return limited
}

// settleAttempt corrects what was charged for an attempt that ends now, and has those looked at that
// waited for its namespace to hold less.
func (x *execution) settleAttempt(t *state.Attempt) {
	a := x.s.Action(t.Action)
	x.mayHoldMore(a.Namespace)
	if t.ChargedUS == 0 {
		return
	}
	if clocks := x.s.Clocks(a.KeyResource()); clocks != nil {
		held := uint64(max(0, x.now()-t.StartedAt)) / 1000
		used := t.Used(x.now()) / 1000
		if a.GPUs() != nil {
			used = held * uint64(t.Chunk.Units)
		}
		x.s.PutClocks(order.Settle(x.s, clocks, a.Namespace, t.ChargedUS, used, max(1, held)))
	}
}

// chargeQuota charges a namespace for units of a quota that an action is given, and returns the
// action's charges with that.
func (x *execution) chargeQuota(a *state.Action, q *state.Quota, units uint32) []uint64 {
	if !x.s.Shares() {
		return a.ChargedUS
	}
	us := x.charge(state.QueueOf(state.QuotaQueue, q.ID), a.Namespace, uint64(units))
	charged := slices.Clone(a.ChargedUS)
	for len(charged) < len(a.QuotaKeys) { // it was given some while nobody shared
		charged = append(charged, 0)
	}
	return append(charged, us)
}

// settleQuota corrects what an action was charged for the i-th quota that it gives back: for a
// limit of concurrency by how long it ran, for a window by what stays in it. One that never ran says
// nothing of how long others are held.
func (x *execution) settleQuota(a *state.Action, i int, q *state.Quota, ran bool, used uint32) {
	clocks := x.s.Clocks(state.QueueOf(state.QuotaQueue, q.ID))
	if i >= len(a.ChargedUS) || a.ChargedUS[i] == 0 || clocks == nil {
		return
	}
	held, us := uint64(windowUnitUS), uint64(used)*windowUnitUS
	if !q.Windowed() {
		held, us = 0, 0
		if ran {
			held = max(1, uint64(max(0, x.now()-a.StartedAt))/1000)
			us = order.Charge(uint64(a.Needs.Quotas[i].Units), held)
		}
	}
	x.s.PutClocks(order.Settle(x.s, clocks, a.Namespace, a.ChargedUS[i], us, held))
}
