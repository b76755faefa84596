package model

import (
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// What clients ask for: submissions, cancels, trajectories.

// replayed answers a request that was accepted before, or that cannot be
// remembered; done says that there is nothing left to do.
func (m *Model) replayed(q *logv1.Request, ns state.NamespaceID, verb state.Verb, count uint32, got *logv1.Result) (done bool, err error) {
	if q.GetId() == "" {
		return false, nil
	}
	switch {
	case len(q.Id) > requestIDBytesMax:
		return true, refused(got, "INVALID")
	case q.ExpireNs != 0 && q.ExpireNs <= m.now:
		return true, refused(got, "REQUEST_EXPIRED")
	case q.ExpireNs > m.now+requestAheadMax+requestAheadMargin:
		return true, refused(got, "INVALID")
	}
	old := m.requests[q.Id]
	switch {
	case old == nil && len(m.requests) >= int(m.settings.RequestsMax):
		return true, refused(got, "TOO_MANY_REQUESTS")
	case old == nil && ns != 0 && m.takesTooMuch(int(m.settings.RequestsMax), len(m.requests), m.requestsOf[ns]):
		return true, refused(got, "TOO_MANY_REQUESTS")
	case old == nil:
		return false, nil
	case old.verb != verb || old.count != count || old.digest != q.Digest:
		return true, refused(got, "REQUEST_MISMATCH")
	}
	if e := m.expiry(q); e > old.expires {
		old.expires = e
		m.due.push(deadline{at: e, kind: forgetRequest, request: q.Id})
		m.touchedRequests = append(m.touchedRequests, q.Id)
	}
	return true, result(got, &logv1.Result{FirstId: old.first, Count: old.count, Replayed: true})
}

// takesTooMuch: a namespace that has some of what all share would have more than the others could.
func (m *Model) takesTooMuch(most, all, own int) bool {
	return m.level >= levelResizing && len(m.namespaces) > 1 && own >= most-all
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (m *Model) remember(q *logv1.Request, ns state.NamespaceID, verb state.Verb, first uint64, count uint32) {
	if q.GetId() == "" {
		return
	}
	if m.level < levelResizing {
		ns = 0
	}
	m.requestsOf[ns]++
	r := &request{namespace: ns, expires: m.expiry(q), verb: verb, digest: q.Digest, first: first, count: count}
	m.requests[q.Id] = r
	m.due.push(deadline{at: r.expires, kind: forgetRequest, request: q.Id})
	m.touchedRequests = append(m.touchedRequests, q.Id)
}

// expiry: a request is known for as long as it, or a repetition, may be repeated.
func (m *Model) expiry(q *logv1.Request) int64 {
	if q.ExpireNs == 0 {
		return m.now + requestKept
	}
	return q.ExpireNs
}

func (m *Model) submit(c *logv1.SubmitActions, got *logv1.Result) error {
	n := uint32(len(c.Actions))
	if m.level < levelResizing && slices.ContainsFunc(c.Actions, func(a *logv1.Action) bool {
		return a.Fixed || a.SizeHint != 0 || a.GangSize != 0 || a.GangSpread || len(a.Labels) > 0
	}) {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	if done, err := m.replayed(c.Request, m.namespaces[orDefault(c.Namespace)], state.VerbSubmit, n, got); done {
		return err
	}
	ns := m.namespaces[orDefault(c.Namespace)]
	if ok, err := m.admits(c, ns).judge(got); !ok {
		return err
	}
	first := m.lastAction + 1
	if err := result(got, &logv1.Result{FirstId: uint64(first), Count: n}); err != nil {
		return err
	}
	m.lastAction += state.ActionID(n)
	all := make([]*action, n)
	for i, r := range c.Actions {
		all[i] = m.newAction(first+state.ActionID(i), ns, r)
	}
	formGangs(all, c.Actions)
	for _, a := range all {
		if err := m.emit(a, m.enqueue(a)); err != nil {
			return err
		}
	}
	m.remember(c.Request, ns, state.VerbSubmit, uint64(first), n)
	return nil
}

// admits says why a submission must or may be refused.
func (m *Model) admits(c *logv1.SubmitActions, ns state.NamespaceID) *verdict {
	v := &verdict{}
	v.refuse(len(c.Actions) == 0, "INVALID")
	v.refuse(ns == 0, "NAMESPACE_NOT_FOUND")
	specs, n := uint64(0), len(c.Actions)
	for _, a := range c.Actions {
		specs += uint64(len(a.Spec))
	}
	full := m.counts.Queued+n > int(m.settings.QueueActionsMax) || m.queueSize+specs > m.settings.QueueBytesMax
	never := m.level >= levelResizing && (n > int(m.settings.QueueActionsMax) || specs > m.settings.QueueBytesMax)
	v.refuse(never, "UNSATISFIABLE")
	v.refuse(full && !never, "QUEUE_FULL")
	v.tolerate(m.queueSize+specs+uint64(n)*actionOverhead > m.settings.QueueBytesMax, "QUEUE_FULL")
	m.mayBeQueued(v, ns, c.Actions)
	classes, own := m.newClasses(ns, c.Actions)
	v.refuse(classes > classesMax || classes > 0 && m.takesTooMuch(classesMax, classes-1, own-1), "TOO_MANY_CLASSES")
	var joining map[uint64]*joiners
	for _, a := range c.Actions {
		m.namesQuotas(v, a)
		v.refuse(a.CoresMax < a.CoresMin || a.CoresMax > coresMax, "INVALID")
		v.refuse(a.AttemptsMax == 0 || a.AttemptsMax > attemptsMax, "INVALID")
		v.refuse(!wellKnown(a), "INVALID")
		v.refuse(a.QueueTimeoutNs < 0 || a.QueueTimeoutNs > timeoutMax || len(a.Spec) > specBytesMax || !labelsAllowed(a.Labels), "INVALID")
		m.asks(v, a)
		if a.TrajectoryId == 0 {
			m.joinsPool(v, a)
			continue
		}
		if joining == nil {
			joining = make(map[uint64]*joiners)
		}
		if joining[a.TrajectoryId] == nil {
			joining[a.TrajectoryId] = new(joiners)
		}
		m.joinsTrajectory(v, a, ns, joining[a.TrajectoryId], n)
	}
	for i := 0; i < n; {
		i += m.joinsGang(v, c.Actions, i)
	}
	return v
}

// joinsPool refuses what no node of a pool could ever hold. A pool without nodes
// may still get them.
func (m *Model) joinsPool(v *verdict, a *logv1.Action) {
	p := m.pools[orDefault(a.Pool)]
	if p == nil {
		v.refuse(true, "POOL_NOT_FOUND")
		return
	}
	row := state.Action{CoresMin: a.CoresMin, Memory: a.MemoryBytes, Needs: m.needsOf(p, a.Needs)}
	if g := a.Needs.GetGpus(); g != nil {
		if _, reason := m.classFor(p, g.Class); reason != "" {
			v.refuse(true, reason)
			return
		}
		if len(g.Degrees) == 0 {
			return // which is refused already
		}
	}
	for _, n := range p.nodes {
		if n.couldHold(&row) {
			return
		}
	}
	v.refuse(len(p.nodes) > 0, "UNSATISFIABLE")
}

// joiners are the actions of a submission for one trajectory, as far as they were read.
type joiners struct {
	n         int
	cores     uint32
	bandwidth uint64
}

// joinsTrajectory: a is one more action of a submission for its trajectory; the
// submission has all.
func (m *Model) joinsTrajectory(v *verdict, a *logv1.Action, ns state.NamespaceID, j *joiners, all int) {
	j.n++
	j.cores, j.bandwidth = max(j.cores, a.CoresMin), max(j.bandwidth, a.Needs.GetBandwidthBps())
	t := m.trajectories[state.TrajectoryID(a.TrajectoryId)]
	if t == nil || t.Namespace != ns {
		v.refuse(true, "TRAJECTORY_NOT_FOUND")
		return
	}
	v.refuse(t.State >= state.TrajectoryClosing, "TRAJECTORY_ENDED")
	v.refuse(len(t.live)+j.n > trajectoryLiveMax, "TRAJECTORY_FULL")
	v.tolerate(m.level < levelResizing && len(t.live)+all > trajectoryLiveMax, "TRAJECTORY_FULL")
	v.refuse(a.Pool != "", "INVALID")
	v.refuse(a.MemoryBytes > t.Memory, "UNSATISFIABLE")
	if n := m.nodeByID[t.Node]; n != nil {
		v.refuse(n.Cores().Len() < int(a.CoresMin) || n.Bandwidth < a.Needs.GetBandwidthBps(), "UNSATISFIABLE")
		return
	}
	hosts := slices.ContainsFunc(t.pool.nodes, func(n *node) bool {
		return n.hosts(t) && n.Cores().Len() >= int(j.cores) && n.Bandwidth >= j.bandwidth
	})
	v.refuse(len(t.pool.nodes) > 0 && !hosts, "UNSATISFIABLE")
}

func (m *Model) newAction(id state.ActionID, ns state.NamespaceID, r *logv1.Action) *action {
	a := &action{Action: state.Action{
		ID: id, Namespace: ns, CoresMin: r.CoresMin, CoresMax: r.CoresMax, Fixed: r.Fixed, SizeHint: r.SizeHint,
		Memory: r.MemoryBytes, AttemptsMax: r.AttemptsMax, SubmittedAt: m.now, Spec: r.Spec, Labels: state.Labels(labelsText(r.Labels)),
	}}
	a.uses = m.usesOf(r.Needs)
	if r.QueueTimeoutNs > 0 {
		a.QueueDeadline = m.now + r.QueueTimeoutNs
	}
	if t := m.trajectories[state.TrajectoryID(r.TrajectoryId)]; t != nil {
		a.Trajectory, a.Node, a.pool = t.ID, t.Node, t.pool
		t.live = append(t.live, a)
		t.Live++
		m.touchTrajectory(t)
		m.onlyArrivals = false // the pass is over the trajectory's node
	} else {
		a.pool = m.pools[orDefault(r.Pool)]
	}
	a.Pool, a.Needs = a.pool.id, m.needsOf(a.pool, r.Needs)
	for _, u := range a.uses {
		a.Needs.Quotas = append(a.Needs.Quotas, state.QuotaUse{Quota: u.quota.id, Units: u.units})
	}
	m.join(a, r.Class)
	m.actions[id] = a
	return a
}

func (m *Model) cancelActions(c *logv1.CancelActions, got *logv1.Result) error {
	for _, id := range c.Ids {
		if m.actions[state.ActionID(id)] == nil {
			return refused(got, "ACTION_NOT_FOUND")
		}
	}
	count := uint32(0)
	for _, id := range c.Ids {
		changed, err := m.cancel(m.actions[state.ActionID(id)], state.EndCanceled)
		if err != nil {
			return fmt.Errorf("cancel of %d: %w", id, err)
		}
		if changed {
			count++
		}
	}
	return result(got, &logv1.Result{Count: count})
}

func (m *Model) open(c *logv1.OpenTrajectory, got *logv1.Result) error {
	if m.level < levelResizing && (c.Objective != 0 || len(c.Spec) > 0 || c.TimeoutNs != 0 || c.Rollout != nil || c.Generation != nil || len(c.Labels) > 0 || c.Container || c.SnapshotId != 0 || c.PauseAtTimeout) {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	if done, err := m.replayed(c.Request, m.namespaces[orDefault(c.Namespace)], state.VerbOpenTrajectory, 1, got); done {
		return err
	}
	ns := m.namespaces[orDefault(c.Namespace)]
	var v verdict
	v.refuse(ns == 0, "NAMESPACE_NOT_FOUND")
	v.refuse(len(c.Name) > nameBytesMax || c.IdleTimeoutNs < 0 || badTimeout(c.TimeoutNs) || c.PauseAtTimeout && c.TimeoutNs == 0, "INVALID")
	v.refuse(m.counts.OpenTrajectories >= int(m.settings.TrajectoriesMax), "TOO_MANY_TRAJECTORIES")
	m.mayOpen(&v, ns, c.MemoryBytes)
	m.joinsPool(&v, &logv1.Action{Pool: c.Pool, CoresMin: 1, MemoryBytes: c.MemoryBytes})
	m.asksForContainer(&v, c)
	m.asksToSpread(&v, ns, c)
	v.refuse(c.Objective > 1 || len(c.Spec) > 4096 || !labelsAllowed(c.Labels), "INVALID")
	r, group := m.joins(&v, ns, c.Rollout)
	m.generates(&v, c.Generation)
	v.refuse(r != nil && c.Generation != nil && r.Policy != c.Generation.Policy, "INVALID")
	on := m.forks(&v, ns, c)
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.lastTrajectory++
	p := m.pools[orDefault(c.Pool)]
	t := &trajectory{pool: p, Trajectory: state.Trajectory{
		ID: m.lastTrajectory, Namespace: ns, Pool: p.id, Name: c.Name, State: state.TrajectoryPending,
		Memory: c.MemoryBytes, IdleTimeoutNS: c.IdleTimeoutNs, OpenedAt: m.now,
		Spread: state.Spread{Group: c.SpreadGroup, Label: c.SpreadLabel}, Objective: state.Objective(c.Objective),
		Deadline: m.in(c.TimeoutNs), Container: c.Container,
		Spec: string(c.Spec), Labels: state.Labels(labelsText(c.Labels)), Rollout: state.RolloutID(c.Rollout.GetRolloutId()), Group: c.Rollout.GetGroup(),
	}}
	if c.PauseAtTimeout {
		t.PauseNS = c.TimeoutNs
	}
	m.trajectories[t.ID] = t
	p.pending = append(p.pending, t)
	m.counts.OpenTrajectories++
	m.openGeneration(t.ID, c.Generation)
	m.alive(t)
	m.watchDeadline(t)
	m.touchTrajectory(t)
	m.touchPool(p)
	if err := m.expect(t.event()); err != nil {
		return err
	}
	if err := m.joinRollout(r, group, t); err != nil {
		return err
	}
	if on != nil {
		t.Snapshot, m.onlyArrivals = state.FileSnapshotID(c.SnapshotId), false
		if err := m.moveIn(t, on); err != nil {
			return err
		}
	}
	m.remember(c.Request, ns, state.VerbOpenTrajectory, uint64(t.ID), 1)
	return result(got, &logv1.Result{FirstId: uint64(t.ID), Count: 1})
}

func (m *Model) close(c *logv1.CloseTrajectory, got *logv1.Result) error {
	t := m.trajectories[state.TrajectoryID(c.Id)]
	if t == nil {
		return refused(got, "TRAJECTORY_NOT_FOUND")
	}
	if t.State < state.TrajectoryClosing {
		if err := m.expect(m.beginClose(t, state.EndTrajectoryEnded)); err != nil {
			return err
		}
	}
	return result(got, &logv1.Result{FirstId: c.Id, Count: 1})
}
