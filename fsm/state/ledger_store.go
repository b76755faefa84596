package state

// NodeGroup returns a group, nil if there is none.
func (s *State) NodeGroup(id GroupID) *NodeGroup { return db(s).nodeGroups.get(id) }

// NodeGroupByName returns a group, nil if there is none.
func (s *State) NodeGroupByName(name string) *NodeGroup {
	id, _ := db(s).index.nodeGroupNames.Get(name)
	return db(s).nodeGroups.get(id)
}

// NodeGroups visits all groups in the order of creation.
func (s *State) NodeGroups(fn func(*NodeGroup) bool) { db(s).nodeGroups.scan(0, fn) }

// NodeGroupsAfter visits the groups that were made after one.
func (s *State) NodeGroupsAfter(after GroupID, fn func(*NodeGroup) bool) {
	db(s).nodeGroups.scan(after+1, fn)
}

// NodeGroupCount returns how many groups there are.
func (s *State) NodeGroupCount() int { return db(s).nodeGroups.rows.Len() }

// Job returns a job, nil if there is none.
func (s *State) Job(id JobID) *Job { return db(s).jobs.get(id) }

// JobByName returns a job of a namespace, nil if there is none.
func (s *State) JobByName(ns NamespaceID, name string) *Job {
	k, _ := db(s).index.jobNames.Get(jobName{ns, name, 0})
	return db(s).jobs.get(k.id)
}

// Jobs visits jobs after one, in the order of submission.
func (s *State) Jobs(after JobID, fn func(*Job) bool) { db(s).jobs.scan(after+1, fn) }

// JobCount returns how many jobs there are.
func (s *State) JobCount() int { return db(s).jobs.rows.Len() }

// Deployment returns a deployment with its job, nil if there is none or its job is gone.
func (s *State) Deployment(id DeploymentID) (*Job, *Deployment) {
	job, i := id.Job()
	j := s.Job(job)
	if j == nil || i >= len(j.Deployments) {
		return nil, nil
	}
	return j, &j.Deployments[i]
}

// GroupJobs visits the jobs that run on a group, in the order of submission.
func (s *State) GroupJobs(id GroupID, fn func(*Job) bool) { s.jobsOf(id, 0, fn) }

// QueuedJobs visits the jobs after one that wait for a group.
func (s *State) QueuedJobs(after JobID, fn func(*Job) bool) { s.jobsOf(0, after, fn) }

func (s *State) jobsOf(id GroupID, after JobID, fn func(*Job) bool) {
	db(s).index.groupJobs.Ascend(groupJob{id, after + 1}, func(k groupJob) bool {
		return k.group == id && fn(db(s).jobs.get(k.job))
	})
}

// Reservation returns the reservation of a job, nil if it has none.
func (s *State) Reservation(job JobID) *Reservation { return db(s).reservations.get(job) }

// Reservations visits all reservations by job.
func (s *State) Reservations(fn func(*Reservation) bool) { db(s).reservations.scan(0, fn) }

// Turn returns a turn, nil if there is none.
func (s *State) Turn(id TurnID) *Turn { return db(s).turns.get(id) }

// Turns visits turns after one, in the order of arrival.
func (s *State) Turns(after TurnID, fn func(*Turn) bool) { db(s).turns.scan(after+1, fn) }

// JobTurns visits the live turns of a job in the order of arrival.
func (s *State) JobTurns(job JobID, fn func(*Turn) bool) {
	db(s).index.jobTurns.Ascend(jobTurn{job, 0}, func(k jobTurn) bool {
		return k.job == job && fn(db(s).turns.get(k.turn))
	})
}

// HeldTurn returns the turn of a job that holds a group, nil if none does.
func (s *State) HeldTurn(job JobID) *Turn {
	id, _ := db(s).index.heldTurns.Get(job)
	return db(s).turns.get(id)
}

// FirstTurns visits the oldest waiting turn of each deployment of a job.
func (s *State) FirstTurns(job JobID, fn func(*Turn) bool) {
	last := DeploymentID(job+1)<<deploymentBits - 1
	for next := DeploymentID(job) << deploymentBits; next <= last; {
		var first waitingTurn
		db(s).index.waitingTurns.Ascend(waitingTurn{next, 0}, func(k waitingTurn) bool {
			first = k
			return false
		})
		if first.turn == 0 || first.deployment > last || !fn(db(s).turns.get(first.turn)) {
			return
		}
		next = first.deployment + 1
	}
}

// SettingUp reports whether hooks still make a group ready for a turn.
func (s *State) SettingUp(t *Turn) bool {
	g := s.NodeGroup(t.Group)
	return t.State == TurnHeld && g.ContextSwitch != nil && g.ContextSwitch.Token == t.Token
}

// LiveTurns visits all turns that wait or hold a group.
func (s *State) LiveTurns(fn func(*Turn) bool) {
	db(s).index.jobTurns.Scan(func(k jobTurn) bool { return fn(db(s).turns.get(k.turn)) })
}

// PutNodeGroup stores a group, which keeps its name.
func (s *State) PutNodeGroup(r *NodeGroup) {
	old := db(s).nodeGroups.put(db(s).enc, r.ID, r)
	if old == nil {
		db(s).index.nodeGroupNames.Set(r.Name, r.ID)
	}
	s.setTimer(old.timer(), r.timer())
	s.indexHook(old, r)
	s.indexMembers(old, r)
}

// DeleteNodeGroup forgets a group.
func (s *State) DeleteNodeGroup(id GroupID) {
	if old := db(s).nodeGroups.delete(id); old != nil {
		db(s).index.nodeGroupNames.Delete(old.Name)
		s.setTimer(old.timer(), timer{})
		s.indexHook(old, nil)
		s.indexMembers(old, nil)
	}
}

// GroupOfHook returns the group one of whose hooks an action runs, nil if it runs none.
func (s *State) GroupOfHook(id ActionID) *NodeGroup {
	g, _ := db(s).index.hookActions.Get(id)
	return db(s).nodeGroups.get(g)
}

func (s *State) indexHook(old, now *NodeGroup) {
	if old != nil {
		if run := old.ContextSwitch.Running(); run != nil {
			db(s).index.hookActions.Delete(run.Action)
		}
	}
	if now != nil {
		if run := now.ContextSwitch.Running(); run != nil {
			db(s).index.hookActions.Set(run.Action, now.ID)
		}
	}
}

func (r *NodeGroup) timer() timer {
	if r == nil || r.WakeAt == 0 {
		return timer{}
	}
	return timer{r.WakeAt, TimerGroup, uint64(r.ID)}
}

// setTimer replaces a timer by another. A kind of 0 is none.
func (s *State) setTimer(old, now timer) {
	if old == now {
		return
	}
	if old.kind != 0 {
		db(s).index.timers.Delete(old)
	}
	if now.kind != 0 {
		db(s).index.timers.Set(now)
	}
}

// PutJob stores a job, which keeps its name.
func (s *State) PutJob(r *Job) {
	old := db(s).jobs.put(db(s).enc, r.ID, r)
	if old == nil {
		db(s).index.jobNames.Set(jobName{r.Namespace, r.Name, r.ID})
		s.refer(r.Namespace, 0, 1)
	}
	s.indexJob(old, r)
}

// DeleteJob forgets a job.
func (s *State) DeleteJob(id JobID) {
	if old := db(s).jobs.delete(id); old != nil {
		db(s).index.jobNames.Delete(jobName{old.Namespace, old.Name, old.ID})
		s.refer(old.Namespace, 0, -1)
		s.indexJob(old, nil)
	}
}

func (s *State) indexJob(old, now *Job) {
	s.setTimer(s.jobTimer(old), s.jobTimer(now))
	if old.looksFor(now) {
		return
	}
	if old != nil && old.placeable() {
		db(s).index.groupJobs.Delete(groupJob{old.Group, old.ID})
	}
	if now != nil && now.placeable() {
		db(s).index.groupJobs.Set(groupJob{now.Group, now.ID})
	}
}

// placeable reports whether a job has a group or wants one.
func (r *Job) placeable() bool { return r.State == JobQueued || r.State == JobRunning }

// looksFor reports whether two versions of a job are in the same place.
func (r *Job) looksFor(o *Job) bool {
	return r != nil && o != nil && r.Group == o.Group && r.placeable() == o.placeable()
}

// jobTimer ends the retention of a completed job.
func (s *State) jobTimer(r *Job) timer {
	if r == nil || r.State != JobCompleted || r.Turns > 0 {
		return timer{}
	}
	return timer{r.EndedAt + s.meta.Settings.RetentionNS, TimerDropJob, uint64(r.ID)}
}

// PutReservation stores a reservation.
func (s *State) PutReservation(r *Reservation) { db(s).reservations.put(db(s).enc, r.Job, r) }

// DeleteReservation forgets the reservation of a job.
func (s *State) DeleteReservation(job JobID) { db(s).reservations.delete(job) }

// PutTurn stores a turn.
func (s *State) PutTurn(r *Turn) {
	old := db(s).turns.put(db(s).enc, r.ID, r)
	s.setTimer(s.turnTimer(old), s.turnTimer(r))
	if old == nil || old.State != r.State {
		s.indexTurn(r)
	}
}

func (s *State) indexTurn(r *Turn) {
	job, _ := r.Deployment.Job()
	x := &db(s).index
	include(&x.jobTurns, jobTurn{job, r.ID}, r.State.Live())
	include(&x.waitingTurns, waitingTurn{r.Deployment, r.ID}, r.State == TurnWaiting)
	if held, _ := x.heldTurns.Get(job); r.State == TurnHeld {
		x.heldTurns.Set(job, r.ID)
	} else if held == r.ID {
		x.heldTurns.Delete(job)
	}
}

// include puts an item into an index, or takes it out.
func include[T any](tree *set[T], item T, in bool) {
	if in {
		tree.Set(item)
	} else {
		tree.Delete(item)
	}
}

// DeleteTurn forgets a turn that has ended.
func (s *State) DeleteTurn(id TurnID) {
	if old := db(s).turns.delete(id); old != nil {
		s.setTimer(s.turnTimer(old), timer{})
	}
}

// turnTimer asks the holder of a turn to stop at its limit, and ends the retention of
// one that is over.
func (s *State) turnTimer(r *Turn) timer {
	switch {
	case r == nil:
	case !r.State.Live():
		return timer{r.EndedAt + s.meta.Settings.RetentionNS, TimerTurn, uint64(r.ID)}
	case r.State == TurnHeld && r.LimitNS > 0 && !r.Stop:
		return timer{r.GrantedAt + r.LimitNS, TimerTurn, uint64(r.ID)}
	}
	return timer{}
}

type (
	jobName struct {
		namespace NamespaceID
		name      string
		id        JobID // not part of the order
	}
	// groupJob is a job on a group, or with group 0 one that waits for one.
	groupJob struct {
		group GroupID
		job   JobID
	}
	// jobTurn is a live turn.
	jobTurn struct {
		job  JobID
		turn TurnID
	}
	waitingTurn struct {
		deployment DeploymentID
		turn       TurnID
	}
)

func (a jobName) less(b jobName) bool {
	if a.namespace != b.namespace {
		return a.namespace < b.namespace
	}
	return a.name < b.name
}

func (a groupJob) less(b groupJob) bool {
	if a.group != b.group {
		return a.group < b.group
	}
	return a.job < b.job
}

func (a jobTurn) less(b jobTurn) bool {
	if a.job != b.job {
		return a.job < b.job
	}
	return a.turn < b.turn
}

func (a waitingTurn) less(b waitingTurn) bool {
	if a.deployment != b.deployment {
		return a.deployment < b.deployment
	}
	return a.turn < b.turn
}

func (r *NodeGroup) code(c *codec) {
	number(c, &r.ID)
	c.text(&r.Name)
	signed(c, &r.Nodes)
	signed(c, &r.Period)
	number(c, &r.Resident)
	number(c, &r.Turn)
	signed(c, &r.WakeAt)
	c.text(&r.Halted)
	c.text(&r.HookPool)
	number(c, &r.Awake)
	optional(c, &r.ContextSwitch, (*ContextSwitch).code)
	if r.ContextSwitch != nil {
		trailingList(c, &r.ContextSwitch.Runs, func(c *codec, h *HookRun) {
			number(c, &h.Action)
			number(c, &h.State)
			number(c, &h.Reason)
			signed(c, &h.ExitCode)
		})
	}
	r.Members.code(c)
}

func (r *ContextSwitch) code(c *codec) {
	number(c, &r.Token)
	number(c, &r.To)
	list(c, &r.Hooks, func(c *codec, h *Hook) {
		number(c, &h.Namespace)
		number(c, &h.Deployment)
		c.flag(&h.Wakes)
		c.bytes(&h.Action)
	})
	signed(c, &r.Began)
}

func (r *Cycle) code(c *codec) {
	signed(c, &r.Period)
	list(c, &r.Segments, func(c *codec, g *Segment) {
		signed(c, &g.Offset)
		signed(c, &g.Length)
		signed(c, &g.Nodes)
	})
}

func (r *Deployment) code(c *codec) {
	c.text(&r.Name)
	signed(c, &r.SetUpNS)
	list(c, &r.ExecNS, signed[int64])
	c.bytes(&r.Sleep)
	c.bytes(&r.Wake)
	c.bytes(&r.Prefetch)
}

func (r *Job) code(c *codec) {
	number(c, &r.ID)
	number(c, &r.Namespace)
	c.text(&r.Name)
	number(c, &r.State)
	c.flag(&r.Backfill)
	c.flag(&r.Deleting)
	signed(c, &r.Nodes)
	r.Cycle.code(c)
	signed(c, &r.SetUpNS)
	number(c, &r.Group)
	list(c, &r.Deployments, func(c *codec, d *Deployment) { d.code(c) })
	number(c, &r.Step)
	signed(c, &r.StepBegan)
	c.flag(&r.Clean)
	list(c, &r.Ran, func(c *codec, t *Ran) {
		signed(c, &t.Start)
		signed(c, &t.End)
		signed(c, &t.LeadNS)
	})
	number(c, &r.Cycles)
	for _, v := range []*int64{
		&r.YieldedAt, &r.HeldNS, &r.SubmittedAt, &r.StartedAt, &r.EndedAt,
		&r.Shift, &r.StretchPPM, &r.Cost, &r.InterferencePPM,
	} {
		signed(c, v)
	}
	c.text(&r.Message)
	number(c, &r.Turns)
	number(c, &r.Revision)
	trailing(c, &r.Labels, labels)
}

func (r *Reservation) code(c *codec) {
	number(c, &r.Job)
	number(c, &r.Group)
	r.Cycle.code(c)
	c.flag(&r.Dedicated)
	for _, v := range []*int64{&r.Anchor, &r.Index, &r.Began, &r.Waited} {
		signed(c, v)
	}
}

func (r *Turn) code(c *codec) {
	number(c, &r.ID)
	number(c, &r.Deployment)
	number(c, &r.Operation)
	number(c, &r.State)
	number(c, &r.Step)
	for _, v := range []*int64{&r.ExecNS, &r.SetUpNS, &r.LimitNS} {
		signed(c, v)
	}
	c.flag(&r.Preemptible)
	number(c, &r.Group)
	c.flag(&r.SetUp)
	c.flag(&r.Stop)
	number(c, &r.Token)
	for _, v := range []*int64{&r.ArrivedAt, &r.GrantedAt, &r.EndedAt} {
		signed(c, v)
	}
	number(c, &r.Revision)
	signed(c, &r.ReadyAt)
	c.text(&r.Message)
}
