package model

import (
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Node groups and training jobs: who may be where. Which group a job gets, and from
// when, the model takes over and judges (reservations.go).

const (
	nodeGroupsMax     = 1024
	groupNodesMax     = 1 << 24 // of all groups together
	jobsMax           = 4096
	jobDeploymentsMax = 64
	jobTurnsMax       = 1024
	segmentsMax       = 64
	operationLast     = 15
	ranMax            = 64 // turns of a cycle that are remembered
	million           = 1_000_000
)

// Changes of a job.
const (
	suspendJob  = logv1.JobChange_JOB_CHANGE_SUSPEND
	resumeJob   = logv1.JobChange_JOB_CHANGE_RESUME
	completeJob = logv1.JobChange_JOB_CHANGE_COMPLETE
	deleteJob   = logv1.JobChange_JOB_CHANGE_DELETE
)

type (
	// ledger has the node groups, and who shares them.
	ledger struct {
		lastGroup state.GroupID
		lastJob   state.JobID
		lastTurn  state.TurnID
		lastToken uint64
		halted    bool         // where jobs are placed
		groups    []*nodeGroup // in the order of creation
		jobs      map[jobName]*job
		jobByID   map[state.JobID]*job
		turns     map[state.TurnID]*turn

		touchedJobs  []*job
		touchedTurns []*turn
	}
	nodeGroup struct {
		state.NodeGroup
		jobs []*job // that run on it
		turn *turn  // the one that holds it
		// moved: reservations on it may have changed in this entry.
		moved bool
	}
	jobName struct {
		namespace state.NamespaceID
		name      string
	}
	job struct {
		state.Job
		group       *nodeGroup         // nil unless it runs
		reservation *state.Reservation // nil: none
		was         *state.Reservation // before this entry, if it has moved
		turns       []*turn            // that live, in the order of arrival
		// What happened to it in this entry: a cycle was finished, maybe the first; it
		// was placed, or moved.
		finished, profiled, placed bool
		ran                        []state.Ran // of the cycle that was finished
		touched                    bool
	}
	turn struct {
		state.Turn
		job     *job
		touched bool
	}
)

func newLedger() ledger {
	return ledger{jobs: make(map[jobName]*job), jobByID: make(map[state.JobID]*job), turns: make(map[state.TurnID]*turn)}
}

func (j *job) event() state.Event {
	return state.Event{Kind: state.EventJob, Subject: uint64(j.ID), State: uint8(j.State), Namespace: j.Namespace}
}

func (t *turn) event() state.Event {
	return state.Event{Kind: state.EventTurn, Subject: uint64(t.ID), Namespace: t.job.Namespace, State: uint8(t.State)}
}

func (m *Model) touchJob(j *job) {
	if !j.touched {
		j.touched = true
		m.touchedJobs = append(m.touchedJobs, j)
	}
}

func (m *Model) touchTurn(t *turn) {
	if !t.touched {
		t.touched = true
		m.touchedTurns = append(m.touchedTurns, t)
	}
}

// tellJob and tellTurn expect the event of what a row has become.
func (m *Model) tellJob(j *job) error {
	m.touchJob(j)
	err := m.expect(j.event())
	j.Revision = m.revision
	return err
}

func (m *Model) tellTurn(t *turn) error {
	m.touchTurn(t)
	err := m.expect(t.event())
	t.Revision = m.revision
	return err
}

func (m *Model) nodeGroupNamed(name string) *nodeGroup {
	i := slices.IndexFunc(m.groups, func(g *nodeGroup) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return m.groups[i]
}

func (m *Model) nodeGroup(id state.GroupID) *nodeGroup {
	i := slices.IndexFunc(m.groups, func(g *nodeGroup) bool { return g.ID == id })
	if i < 0 {
		return nil
	}
	return m.groups[i]
}

func (m *Model) createNodeGroup(c *logv1.CreateNodeGroup, got *logv1.Result) error {
	if m.level < levelResizing && (len(c.Members) > 0 || c.Selector != nil) {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	var v verdict
	g := &nodeGroup{}
	with, nodes := m.members(&v, g, c.Nodes, c.Members, c.Selector)
	all := nodes
	for _, g := range m.groups {
		all += g.Nodes
	}
	v.refuse(c.Name == "" || len(c.Name) > nameBytesMax, "INVALID")
	v.refuse(nodes < 1 || nodes > groupNodesMax || all > groupNodesMax, "INVALID")
	v.refuse(len(c.HookPool) > nameBytesMax, "INVALID")
	v.refuse(m.nodeGroupNamed(c.Name) != nil, "NODE_GROUP_EXISTS")
	v.refuse(len(m.groups) >= nodeGroupsMax, "TOO_MANY_NODE_GROUPS")
	v.refuse(m.pools[orDefault(c.HookPool)] == nil, "POOL_NOT_FOUND")
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.lastGroup++
	g.NodeGroup = state.NodeGroup{ID: m.lastGroup, Name: c.Name, Nodes: nodes, HookPool: c.HookPool}
	m.groups = append(m.groups, g)
	m.joinMembers(g, with)
	return result(got, &logv1.Result{FirstId: uint64(m.lastGroup), Count: 1})
}

func (m *Model) deleteNodeGroup(c *logv1.DeleteNodeGroup, got *logv1.Result) error {
	g := m.nodeGroupNamed(c.Name)
	switch {
	case g == nil:
		return refused(got, "NODE_GROUP_NOT_FOUND")
	case len(g.jobs) > 0 || g.turn != nil || g.ContextSwitch != nil:
		return refused(got, "NODE_GROUP_IN_USE")
	}
	m.groups = remove(m.groups, g)
	m.onlyArrivals = m.onlyArrivals && !g.hasMembers()
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) resumeLedger(got *logv1.Result) error {
	count := uint32(0)
	for _, g := range m.groups {
		if g.Halted != "" {
			count++
		}
		g.Halted = ""
	}
	if m.halted {
		count++
	}
	m.halted = false
	return result(got, &logv1.Result{Count: count})
}

// inSlots is a declared cycle in slots, which covers what was declared.
func inSlots(c *logv1.Cycle, slot int64) (out state.Cycle) {
	up := func(ns int64) int64 {
		n := ns / slot
		if n*slot < ns {
			n++
		}
		return n
	}
	if c == nil {
		return out
	}
	end := int64(0)
	for _, s := range c.Segments {
		first, before := s.OffsetNs/slot, end
		end = up(s.OffsetNs + s.LengthNs)
		if first < before { // both have a part of that slot
			last := &out.Segments[len(out.Segments)-1]
			last.Length, last.Nodes = end-last.Offset, max(last.Nodes, s.Nodes)
			continue
		}
		out.Segments = append(out.Segments, state.Segment{Offset: first, Length: end - first, Nodes: s.Nodes})
	}
	out.Period = max(up(c.PeriodNs), end)
	return out
}

// soundCycle: segments ascend, do not overlap and end within the period, as they were
// declared and as slots.
func (m *Model) soundCycle(c *logv1.Cycle) bool {
	if len(c.Segments) == 0 || len(c.Segments) > segmentsMax || c.PeriodNs <= 0 {
		return false
	}
	end := int64(0)
	for _, s := range c.Segments {
		if s.OffsetNs < end || s.LengthNs <= 0 || s.OffsetNs+s.LengthNs > c.PeriodNs || s.OffsetNs+s.LengthNs < 0 || s.Nodes < 1 || s.Nodes > groupNodesMax {
			return false
		}
		end = s.OffsetNs + s.LengthNs
	}
	slots := inSlots(c, m.settings.LedgerSlotNS)
	return slots.Period >= 1 && slots.Period <= m.settings.LedgerSlots
}

func widest(c *logv1.Cycle) (nodes int64) {
	for _, s := range c.GetSegments() {
		nodes = max(nodes, s.Nodes)
	}
	return nodes
}

func (m *Model) submitJob(c *logv1.SubmitJob, got *logv1.Result) error {
	if m.level < levelResizing && len(c.Labels) > 0 {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	if done, err := m.replayed(c.Request, m.namespaces[orDefault(c.Namespace)], state.VerbSubmitJob, 1, got); done {
		return err
	}
	ns := m.namespaces[orDefault(c.Namespace)]
	name := jobName{ns, c.Name}
	wide := len(m.groups) == 0
	for _, g := range m.groups {
		wide = wide || g.Nodes >= c.Nodes
	}
	var v verdict
	v.refuse(ns == 0, "NAMESPACE_NOT_FOUND")
	v.refuse(c.Name == "" || len(c.Name) > nameBytesMax || c.Nodes < 1 || c.SetUpNs < 0, "INVALID")
	v.refuse(c.Backfill && c.Cycle != nil || !soundHooks(c.Hooks) || !labelsAllowed(c.Labels), "INVALID")
	v.refuse(c.Cycle != nil && (!m.soundCycle(c.Cycle) || widest(c.Cycle) > c.Nodes), "INVALID")
	v.refuse(m.jobs[name] != nil, "JOB_EXISTS")
	v.refuse(!wide, "UNSATISFIABLE")
	v.refuse(len(m.jobs) >= jobsMax, "TOO_MANY_JOBS")
	v.refuse(!m.knowsQuotas(c.Hooks), "QUOTA_NOT_FOUND")
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.lastJob++
	j := &job{Job: state.Job{
		ID: m.lastJob, Namespace: ns, Name: c.Name, State: state.JobQueued, Backfill: c.Backfill, Nodes: c.Nodes,
		Cycle: inSlots(c.Cycle, m.settings.LedgerSlotNS), SetUpNS: c.SetUpNs, SubmittedAt: m.now,
		Deployments: declared(c.Hooks), Labels: state.Labels(labelsText(c.Labels)),
	}}
	m.jobs[name], m.jobByID[j.ID] = j, j
	if err := m.tellJob(j); err != nil {
		return err
	}
	m.remember(c.Request, ns, state.VerbSubmitJob, uint64(j.ID), 1)
	return result(got, &logv1.Result{FirstId: uint64(j.ID), Count: 1})
}

// knowsQuotas reports whether every quota that hooks name exists.
func (m *Model) knowsQuotas(hooks []*logv1.DeploymentHooks) bool {
	for _, h := range hooks {
		for _, a := range []*logv1.Action{h.Sleep, h.Wake, h.Prefetch} {
			for _, u := range a.GetNeeds().GetQuotas() {
				if m.quotas[u.Quota] == nil {
					return false
				}
			}
		}
	}
	return true
}

// jobOf returns a job that a command names, and refuses what does not exist.
func (m *Model) jobOf(namespace, name string, v *verdict) *job {
	ns := m.namespaces[orDefault(namespace)]
	v.refuse(ns == 0, "NAMESPACE_NOT_FOUND")
	j := m.jobs[jobName{ns, name}]
	v.refuse(j == nil, "JOB_NOT_FOUND")
	return j
}

func (m *Model) changeJob(c *logv1.ChangeJob, got *logv1.Result) error {
	var v verdict
	j := m.jobOf(c.Namespace, c.Name, &v)
	v.refuse(c.Change < suspendJob || c.Change > deleteJob, "INVALID")
	if j != nil {
		over := j.State == state.JobCompleted
		v.refuse(over && (c.Change == suspendJob || c.Change == resumeJob), "JOB_STATE")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	count := uint32(1)
	switch {
	case c.Change == suspendJob && j.State == state.JobSuspended,
		c.Change == resumeJob && j.State != state.JobSuspended,
		c.Change == completeJob && j.State == state.JobCompleted,
		c.Change == deleteJob && j.Deleting:
		count = 0
	default:
		if err := m.change(j, c.Change); err != nil {
			return err
		}
	}
	return result(got, &logv1.Result{Count: count})
}

func (m *Model) change(j *job, change logv1.JobChange) error {
	switch change {
	case suspendJob:
		return m.leaveGroup(j, state.JobSuspended)
	case resumeJob:
		j.State = state.JobQueued
		return m.tellJob(j)
	}
	j.Deleting = change == deleteJob
	if j.State != state.JobCompleted {
		if err := m.complete(j); err != nil {
			return err
		}
	}
	m.touchJob(j)
	return m.forgetDeleted(j)
}

// complete ends a job: who holds a group is to stop, and what waits is canceled.
func (m *Model) complete(j *job) error {
	j.EndedAt = m.now
	if err := m.leaveGroup(j, state.JobCompleted); err != nil {
		return err
	}
	for _, t := range slices.Clone(j.turns) {
		if t.State == state.TurnWaiting {
			m.endTurnAs(t, state.TurnCanceled)
			if err := m.tellTurn(t); err != nil {
				return err
			}
		}
	}
	m.keepCompleted(j)
	return nil
}

// leaveGroup returns the reservation of a job at once. Who holds the group is to stop.
func (m *Model) leaveGroup(j *job, s state.JobState) error {
	if j.group != nil {
		if err := m.keepProfile(j); err != nil {
			return err
		}
		j.group.jobs = remove(j.group.jobs, j)
		j.group, j.Group, j.reservation = nil, 0, nil
		j.settle()
	}
	j.State, j.Message = s, ""
	if err := m.tellJob(j); err != nil {
		return err
	}
	for _, t := range j.turns {
		if t.held() && !t.Stop {
			t.Stop = true
			return m.tellTurn(t)
		}
	}
	return nil
}

// forgetDeleted drops a job that is to be deleted and has no live turn left.
func (m *Model) forgetDeleted(j *job) error {
	if !j.Deleting || len(j.turns) > 0 {
		return nil
	}
	return m.dropJob(j)
}

func (m *Model) dropJob(j *job) error {
	e := j.event()
	e.State = uint8(state.JobDeleted)
	delete(m.jobs, jobName{j.Namespace, j.Name})
	delete(m.jobByID, j.ID)
	return m.expect(e)
}

// moveJob: the plan was made elsewhere. Whether it still holds is taken over, and what
// it leads to is judged with the reservations.
func (m *Model) moveJob(c *logv1.MoveJob, got *logv1.Result) error {
	j := m.jobByID[state.JobID(c.JobId)]
	var v verdict
	v.refuse(j == nil, "JOB_NOT_FOUND")
	v.tolerate(j == nil, "MOVE_REFUSED")
	if j != nil {
		v.refuse(j.reservation == nil || j.Group != state.GroupID(c.From) || j.reservation.Dedicated || slices.ContainsFunc(j.turns, (*turn).held), "MOVE_REFUSED")
		to := m.nodeGroup(state.GroupID(c.To))
		v.refuse(to == nil || to == j.group || to.Period != c.Was, "MOVE_REFUSED")
	}
	v.refuse(c.Transfer < 0 || c.Was < 0 || c.Period < 1, "INVALID")
	v.tolerate(true, "MOVE_REFUSED")
	if ok, err := v.judge(got); !ok {
		return err
	}
	from, to := j.group, m.nodeGroup(state.GroupID(c.To))
	from.jobs = remove(from.jobs, j)
	from.moved = true
	m.joinGroup(j, to)
	to.Period = c.Period // another move of the same entry may be planned upon it
	if !slices.ContainsFunc(from.jobs, func(o *job) bool { return o.reservation != nil }) {
		from.Period = 0
	}
	if err := m.tellJob(j); err != nil {
		return err
	}
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) joinGroup(j *job, g *nodeGroup) {
	j.group, j.Group, j.placed = g, g.ID, true
	g.jobs = append(g.jobs, j)
	g.moved = true
	m.touchJob(j)
}

func (t *turn) held() bool { return t.State == state.TurnHeld }

func (m *Model) dropTurn(id state.TurnID) error {
	delete(m.turns, id)
	if m.s.Turn(id) != nil {
		return fmt.Errorf("turn %d ended more than %d ns ago and is still kept", id, m.settings.RetentionNS)
	}
	return nil
}
