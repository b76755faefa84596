package fsm

import (
	"cmp"
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/place"
)

// Limits of one action, checked again here because entries may come from another
// version of the server.
const (
	specBytesMax    = 64 << 10
	attemptsMaxMost = 100
	queueNSMax      = 30 * 24 * 3600 * 1_000_000_000
)

// submitActions queues actions: all of them, or none and a refusal.
func (x *execution) submitActions(c *logv1.SubmitActions) *logv1.Result {
	if r := x.replay(c.Request, x.named(c.Namespace), state.VerbSubmit, uint32(len(c.Actions))); r != nil {
		return r
	}
	ns, r := x.namespace(c.Namespace)
	if r != nil {
		return r
	}
	if len(c.Actions) == 0 {
		return refuse(codeInvalidArgument, "INVALID", "a submission needs at least one action")
	}
	if r := QueueFull(x.s, ns, c.Actions); r != nil {
		return &logv1.Result{Refusal: r}
	}
	x.requested = make(map[state.TrajectoryID]*state.Trajectory)
	rows := make([]state.Action, len(c.Actions))
	joins := x.joins(c.Actions)
	for i, a := range c.Actions {
		if r := x.newAction(&rows[i], ns, a, joins[a.TrajectoryId]); r != nil {
			r.Refusal.Message = "action " + itoa(i) + ": " + r.Refusal.Message
			return r
		}
	}
	if r := x.formGangs(rows, c.Actions); r != nil {
		return r
	}
	if r := x.classify(rows, c.Actions); r != nil {
		return r
	}
	m := *x.s.Meta()
	first := m.LastAction + 1
	m.LastAction += state.ActionID(len(rows))
	x.s.SetMeta(m)
	for i := range rows {
		rows[i].ID = first + state.ActionID(i)
	}
	numberGangs(rows)
	for i := range rows {
		x.enqueue(&rows[i])
	}
	x.remember(c.Request, ns, state.VerbSubmit, uint64(first), uint32(len(rows)))
	return &logv1.Result{FirstId: uint64(first), Count: uint32(len(rows))}
}

// joins counts the actions of a submission by the trajectory that they join, for look-up only. Below
// feature level 3, all actions of the submission count for each trajectory.
func (x *execution) joins(actions []*logv1.Action) map[uint64]int {
	joins, all := make(map[uint64]int), x.s.Meta().Level < sched.LevelResizing
	for _, a := range actions {
		switch {
		case a.TrajectoryId == 0:
		case all:
			joins[a.TrajectoryId] = len(actions)
		default:
			joins[a.TrajectoryId]++
		}
	}
	return joins
}

// newAction fills a row from a command, one of n for the same trajectory, or says why it cannot be
// accepted.
func (x *execution) newAction(row *state.Action, ns *state.Namespace, a *logv1.Action, n int) *logv1.Result {
	switch {
	case a.CoresMin == 0 && !mayBeCoreless(a.Needs) || a.CoresMax < a.CoresMin || a.CoresMax > state.CoresPerNodeMax:
		return refuse(codeInvalidArgument, "INVALID", "cores must be at least 1 (0 with quotas or GPUs), at most max_cores, and max_cores at most %d", state.CoresPerNodeMax)
	case a.AttemptsMax == 0 || a.AttemptsMax > attemptsMaxMost:
		return refuse(codeInvalidArgument, "INVALID", "max_attempts must be between 1 and %d", attemptsMaxMost)
	case a.QueueTimeoutNs < 0 || a.QueueTimeoutNs > queueNSMax || len(a.Spec) > specBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "queue_timeout must not be negative nor longer than 30 days, and the spec not above %d bytes", specBytesMax)
	}
	labels, r := labelsOf(a.Labels)
	if r != nil {
		return r
	}
	*row = state.Action{
		Namespace: ns.ID, State: state.ActionQueued, CoresMin: a.CoresMin, CoresMax: a.CoresMax, Fixed: a.Fixed, SizeHint: a.SizeHint,
		Memory: a.MemoryBytes, AttemptsMax: a.AttemptsMax, SubmittedAt: x.now(), Spec: a.Spec, Labels: labels,
	}
	if a.QueueTimeoutNs > 0 {
		row.QueueDeadline = x.now() + a.QueueTimeoutNs
	}
	if r := x.needs(row, a); r != nil {
		return r
	}
	if r := x.withinLimits(row); r != nil {
		return r
	}
	if a.TrajectoryId != 0 {
		return x.joinTrajectory(row, a, n)
	}
	return x.joinPool(row, a)
}

func (x *execution) joinTrajectory(row *state.Action, a *logv1.Action, n int) *logv1.Result {
	t := x.s.Trajectory(state.TrajectoryID(a.TrajectoryId))
	switch {
	case t == nil || t.Namespace != row.Namespace:
		return refuse(codeNotFound, "TRAJECTORY_NOT_FOUND", "trajectory %d does not exist in this namespace", a.TrajectoryId)
	case t.State >= state.TrajectoryClosing:
		return refuse(codeFailedPrecondition, "TRAJECTORY_ENDED", "trajectory %d has ended; open another", t.ID)
	case int(t.Live)+n > trajectoryLiveMax:
		return refuse(codeResourceExhausted, "TRAJECTORY_FULL", "trajectory %d has %d live actions, and the submission adds %d: at most %d are allowed; submit more when some have ended",
			t.ID, t.Live, n, trajectoryLiveMax)
	case a.Pool != "":
		return refuse(codeInvalidArgument, "INVALID", "an action of a trajectory runs in the trajectory's pool; leave pool empty")
	case a.MemoryBytes > t.Memory:
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "the action asks for %d bytes of memory, its trajectory has %d", a.MemoryBytes, t.Memory)
	}
	if n := x.s.Node(t.Node); n != nil && n.Cores().Len() < int(a.CoresMin) {
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "the action asks for %d cores, node %s of its trajectory has %d", a.CoresMin, n.Name, n.Cores().Len())
	} else if n != nil && n.Bandwidth < row.Bandwidth() {
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "the action asks for %d bit/s, node %s of its trajectory has %d", row.Bandwidth(), n.Name, n.Bandwidth)
	}
	row.Trajectory, row.Pool, row.Node = t.ID, t.Pool, t.Node
	if t.State == state.TrajectoryPending { // its node has to do for all its actions
		requested := x.requestedBy(t)
		addRequest(requested, row)
		return x.satisfiable(x.s.Pool(t.Pool), place.Whole(requested), t.Container)
	}
	return nil
}

// requestedBy returns a copy of a pending trajectory's row for the actions of a submission
// to be added to, as if they had been accepted.
func (x *execution) requestedBy(t *state.Trajectory) *state.Trajectory {
	if x.requested[t.ID] == nil {
		u := *t
		x.requested[t.ID] = &u
	}
	return x.requested[t.ID]
}

// addRequest notes what an action asks of the node of its trajectory.
func addRequest(t *state.Trajectory, a *state.Action) {
	t.RequestedCores = max(t.RequestedCores, a.CoresMin)
	t.RequestedBandwidth = max(t.RequestedBandwidth, a.Bandwidth())
}

// stillLivable has a pending trajectory looked at if no usable node does for it any more, so that it
// holds up nobody. It is so from feature level 3 on.
func (x *execution) stillLivable(t *state.Trajectory) {
	if x.s.Meta().Level < sched.LevelResizing {
		return
	}
	ok, steps := sched.CouldLive(x.s, t)
	if x.budget -= steps; !ok && !t.Aside {
		x.dirty.add(state.QueueOf(state.PoolQueue, t.Pool))
	}
}

func (x *execution) joinPool(row *state.Action, a *logv1.Action) *logv1.Result {
	p, r := x.pool(a.Pool)
	if r != nil {
		return r
	}
	row.Pool = p.ID
	if row.GPUs() != nil {
		if r := x.chooseClass(row, p, a.Needs.Gpus.Class); r != nil {
			return r
		}
	}
	return x.satisfiable(p, row, false)
}

// satisfiable refuses a demand that no node of the pool could ever meet. A pool
// that has no nodes yet may still get them. The nodes of a container run containers.
func (x *execution) satisfiable(p *state.Pool, a *state.Action, container bool) *logv1.Result {
	known, fits, out, most := false, false, false, state.Shape{}
	x.s.Shapes(p.ID, func(s *state.Shape) bool {
		known, fits = true, place.Holds(s, a) && (s.Containers || !container)
		most.Containers = most.Containers || s.Containers
		most.Cores, most.Memory, most.Bandwidth = max(most.Cores, s.Cores), max(most.Memory, s.Memory), max(most.Bandwidth, s.Bandwidth)
		if g := a.GPUs(); g != nil && g.Class == s.GPUs.Class {
			out = out || s.Chunk < g.Degrees[0] && s.GPUs.Count >= g.Degrees[0]
			most.GPUs.Count, most.GPUs.Memory = max(most.GPUs.Count, s.GPUs.Count), max(most.GPUs.Memory, s.GPUs.Memory)
		}
		return !fits
	})
	if !known || fits {
		return nil
	}
	if container && !most.Containers {
		return refuse(codeInvalidArgument, "UNSATISFIABLE", "no node of pool %q runs containers: start an agent there with --containerd", p.Name)
	}
	need := fmt.Sprintf("%d cores and %d bytes of memory", a.CoresMin, place.Reserves(a))
	have := fmt.Sprintf("%d and %d", most.Cores, most.Memory)
	if b := a.Bandwidth(); b > 0 {
		need, have = fmt.Sprintf("%s, %d bit/s", need, b), fmt.Sprintf("%s, %d", have, most.Bandwidth)
	}
	if g := a.GPUs(); g != nil {
		need = fmt.Sprintf("%s, %d GPUs with %d bytes each", need, g.Degrees[0], g.Memory)
		have = fmt.Sprintf("%s, %d with %d", have, most.GPUs.Count, most.GPUs.Memory)
	}
	if container {
		need += " and containers"
	}
	if out {
		have += "; GPUs are out of use, see: rota gpu list"
	}
	return refuse(codeInvalidArgument, "UNSATISFIABLE", "no node of pool %q could ever hold %s together (the most are %s)", p.Name, need, have)
}

// enqueue stores a new action and has its queue looked at.
func (x *execution) enqueue(a *state.Action) {
	a.Aside = x.held(a.Trajectory)
	x.putAction(a)
	if a.Trajectory != 0 {
		t := *x.s.Trajectory(a.Trajectory)
		if t.Live++; t.Live == 1 {
			x.gapChanged(t.ID)
		}
		if t.State == state.TrajectoryPending {
			addRequest(&t, a)
			x.stillLivable(&t)
		}
		x.s.PutTrajectory(&t)
	}
	if q := a.Queue(); q != (state.Queue{}) && !a.Aside {
		x.dirty.add(q)
	}
}

// namespace looks a namespace up by name; empty is "default".
func (x *execution) namespace(name string) (*state.Namespace, *logv1.Result) {
	name = cmp.Or(name, defaultName)
	if ns := x.named(name); ns != nil {
		return ns, nil
	}
	return nil, refuse(codeNotFound, "NAMESPACE_NOT_FOUND", "namespace %q does not exist; create it with: rota operator namespace create %s", name, name)
}

// named is namespace for a request that may have been accepted before it was deleted; nil: there is
// none.
func (x *execution) named(namespace string) *state.Namespace {
	return x.s.NamespaceByName(cmp.Or(namespace, defaultName))
}

// pool looks a pool up by name; empty is "default".
func (x *execution) pool(name string) (*state.Pool, *logv1.Result) {
	if name == "" {
		name = defaultName
	}
	if p := x.s.PoolByName(name); p != nil {
		return p, nil
	}
	return nil, refuse(codeNotFound, "POOL_NOT_FOUND", "pool %q does not exist; a pool comes into being when its first node registers", name)
}
