package rpc

import (
	"context"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

const (
	millionth = 1_000_000
	// microHourNS is a millionth of an hour.
	microHourNS = 3_600_000
)

// SubmitJob queues a job.
func (s *Server) SubmitJob(ctx context.Context, req *rotav1.SubmitJobRequest) (*rotav1.SubmitJobResponse, error) {
	if err := checkJob(req).err(); err != nil {
		return nil, err
	}
	hooks, err := logHooks(req)
	if err != nil {
		return nil, err
	}
	job := &logv1.SubmitJob{
		Namespace: orDefault(req.Namespace), Name: req.Name, Nodes: int64(req.Nodes),
		Cycle: logCycle(req.Cycle), SetUpNs: int64(req.SetUp.AsDuration()), Backfill: req.Backfill, Hooks: hooks, Labels: labelsCommand(req.Labels),
	}
	job.Request = request(req.RequestId, req.ExpireTime, func(d *xxhash.Digest) { digestJob(d, job) })
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: job}})
	if err != nil {
		return nil, err
	}
	return &rotav1.SubmitJobResponse{Job: s.changedJob(req.Namespace, req.Name), Replayed: result.Replayed}, nil
}

func logCycle(c *rotav1.Cycle) *logv1.Cycle {
	if c == nil {
		return nil
	}
	l := &logv1.Cycle{PeriodNs: int64(c.Period.AsDuration())}
	for _, s := range c.Segments {
		l.Segments = append(l.Segments, &logv1.Segment{
			OffsetNs: int64(s.Offset.AsDuration()), LengthNs: int64(s.Length.AsDuration()), Nodes: int64(s.Nodes),
		})
	}
	return l
}

func digestJob(d *xxhash.Digest, job *logv1.SubmitJob) {
	digestText(d, job.Namespace)
	digestText(d, job.Name)
	backfill := uint64(0)
	if job.Backfill {
		backfill = 1
	}
	for _, n := range []uint64{uint64(job.Nodes), uint64(job.SetUpNs), backfill, uint64(job.Cycle.GetPeriodNs())} {
		digestNumber(d, n)
	}
	for _, s := range job.Cycle.GetSegments() {
		digestNumber(d, uint64(s.OffsetNs))
		digestNumber(d, uint64(s.LengthNs))
		digestNumber(d, uint64(s.Nodes))
	}
	digestHooks(d, job.Hooks)
	digestLabels(d, job.Labels)
}

// SuspendJob gives a job's reservation back.
func (s *Server) SuspendJob(ctx context.Context, req *rotav1.SuspendJobRequest) (*rotav1.SuspendJobResponse, error) {
	job, err := s.changeJob(ctx, req.Namespace, req.Name, logv1.JobChange_JOB_CHANGE_SUSPEND)
	return &rotav1.SuspendJobResponse{Job: job}, err
}

// ResumeJob queues a suspended job again.
func (s *Server) ResumeJob(ctx context.Context, req *rotav1.ResumeJobRequest) (*rotav1.ResumeJobResponse, error) {
	job, err := s.changeJob(ctx, req.Namespace, req.Name, logv1.JobChange_JOB_CHANGE_RESUME)
	return &rotav1.ResumeJobResponse{Job: job}, err
}

// CompleteJob ends a job.
func (s *Server) CompleteJob(ctx context.Context, req *rotav1.CompleteJobRequest) (*rotav1.CompleteJobResponse, error) {
	job, err := s.changeJob(ctx, req.Namespace, req.Name, logv1.JobChange_JOB_CHANGE_COMPLETE)
	return &rotav1.CompleteJobResponse{Job: job}, err
}

// DeleteJob ends a job and forgets it.
func (s *Server) DeleteJob(ctx context.Context, req *rotav1.DeleteJobRequest) (*rotav1.DeleteJobResponse, error) {
	_, err := s.changeJob(ctx, req.Namespace, req.Name, logv1.JobChange_JOB_CHANGE_DELETE)
	return &rotav1.DeleteJobResponse{}, err
}

// changeJob commits a change and returns the job as it is then.
func (s *Server) changeJob(ctx context.Context, namespace, name string, change logv1.JobChange) (*rotav1.Job, error) {
	if err := checkJobName(namespace, name).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{
		Namespace: orDefault(namespace), Name: name, Change: change,
	}}})
	if err != nil {
		return nil, err
	}
	return s.changedJob(namespace, name), nil
}

// changedJob returns a job that a change was committed for. It may have been deleted
// since, which does not make the change a failure.
func (s *Server) changedJob(namespace, name string) *rotav1.Job {
	m, err := s.job(namespace, name)
	if err != nil {
		return &rotav1.Job{Namespace: orDefault(namespace), Name: name, State: rotav1.JobState_JOB_STATE_DELETED}
	}
	return m
}

// GetJob returns one job.
func (s *Server) GetJob(ctx context.Context, req *rotav1.GetJobRequest) (*rotav1.GetJobResponse, error) {
	if err := checkJobName(req.Namespace, req.Name).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	job, err := s.job(req.Namespace, req.Name)
	return &rotav1.GetJobResponse{Job: job}, err
}

func (s *Server) job(namespace, name string) (m *rotav1.Job, err error) {
	now := s.LogTime()
	s.Machine.View(func(st *state.State) {
		var j *state.Job
		if j, err = findJob(st, namespace, name); err == nil {
			m = jobMessage(st, j, now)
		}
	})
	return m, err
}

func findJob(st *state.State, namespace, name string) (*state.Job, error) {
	id, err := namespaceID(st, namespace)
	if err != nil {
		return nil, err
	}
	if j := st.JobByName(id, name); j != nil {
		return j, nil
	}
	return nil, notFound("JOB_NOT_FOUND", "there is no job %q in namespace %q: ListJobs has their names", name, orDefault(namespace))
}

// ListJobs returns a page of jobs.
func (s *Server) ListJobs(ctx context.Context, req *rotav1.ListJobsRequest) (*rotav1.ListJobsResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, append([]uint64{3, hashText(orDefault(req.Namespace)), digit(req.IncludeEnded)}, queryLabels(req.Labels)...)...)
	if err := firstOf(checkName("namespace", req.Namespace), checkWorkLabels("labels", req.Labels), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st, now := s.Machine.Fork(), s.LogTime()
	namespace, err := namespaceID(st, req.Namespace)
	if err != nil {
		return nil, err
	}
	resp := &rotav1.ListJobsResponse{}
	c := &collector{page: p}
	st.Jobs(state.JobID(p.after), func(j *state.Job) bool {
		return c.visit(uint64(j.ID), func() proto.Message {
			if j.Namespace != namespace || j.State == state.JobCompleted && !req.IncludeEnded || !hasLabels(j.Labels, req.Labels) {
				return nil
			}
			return appendRow(&resp.Jobs, jobMessage(st, j, now))
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp, nil
}

func digit(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}

func jobMessage(st *state.State, j *state.Job, now int64) *rotav1.Job {
	slot, wall := st.Meta().Settings.LedgerSlotNS, wallOf(st)
	m := &rotav1.Job{
		Id: uint64(j.ID), Namespace: namespaceName(st, j.Namespace), Name: j.Name, State: rotav1.JobState(j.State),
		Nodes: uint32(j.Nodes), Cycle: cycleMessage(j.Cycle, slot), SetUp: duration(j.SetUpNS), Backfill: j.Backfill,
		Message: j.Message, Step: j.Step, StepTime: wall.timestamp(j.StepBegan), FinishedCycles: j.Cycles, LiveTurns: j.Turns,
		SubmitTime: wall.timestamp(j.SubmittedAt), StartTime: wall.timestamp(j.StartedAt), EndTime: wall.timestamp(j.EndedAt),
		Revision: j.Revision, Deleting: j.Deleting, Labels: labelsMessage(j.Labels),
	}
	now = max(now, st.Meta().Now)
	group := st.NodeGroup(j.Group)
	if group != nil {
		m.Group = group.Name
	}
	if reservation := st.Reservation(j.ID); reservation != nil && group != nil {
		describeReservation(m, j, reservation, group, slot, now)
	}
	for _, d := range j.Deployments {
		m.Deployments = append(m.Deployments, deploymentMessage(&d))
	}
	describeUse(m, st, j, now)
	return m
}

// describeReservation adds where a job is, why, and what that costs it.
func describeReservation(m *rotav1.Job, j *state.Job, reservation *state.Reservation, group *state.NodeGroup, slot, now int64) {
	m.Reservation = &rotav1.Reservation{Dedicated: reservation.Dedicated, AnchorTime: timestamp(reservation.Anchor * slot)}
	m.Placement = &rotav1.Placement{
		Shift: duration(j.Shift * slot), StretchPpm: j.StretchPPM, CostPpm: j.Cost, InterferencePpm: j.InterferencePPM,
	}
	if reservation.Dedicated || reservation.Cycle.Period == 0 {
		return
	}
	m.Reservation.Cycle = cycleMessage(reservation.Cycle, slot)
	if here := now/slot - reservation.Began; here > 0 {
		m.WaitedPpm = min(millionth, reservation.Waited*millionth/here)
	}
	m.SlowdownPpm = m.WaitedPpm
	if whole := group.Period / reservation.Cycle.Period * reservation.Cycle.Period; whole > 0 {
		m.SlowdownPpm += (group.Period - whole) * millionth / whole
	}
}

// describeUse adds for how long the job held its nodes. What its turn holds now
// counts too.
func describeUse(m *rotav1.Job, st *state.State, j *state.Job, now int64) {
	held := j.HeldNS
	st.JobTurns(j.ID, func(t *state.Turn) bool {
		if t.State == state.TurnHeld {
			held += max(0, now-t.GrantedAt)
		}
		return true
	})
	m.UsedMicroNodeHours = uint64(held / microHourNS * j.Nodes)
	if j.StartedAt == 0 {
		return
	}
	until := now
	if j.EndedAt != 0 {
		until = j.EndedAt
	}
	m.SavedMicroNodeHours = uint64(max(0, until-j.StartedAt-held) / microHourNS * j.Nodes)
}

func deploymentMessage(d *state.Deployment) *rotav1.Deployment {
	m := &rotav1.Deployment{Name: d.Name, SetUp: duration(d.SetUpNS)}
	for _, h := range []struct {
		name   string
		action []byte
	}{{"sleep", d.Sleep}, {"wake", d.Wake}, {"prefetch", d.Prefetch}} {
		if len(h.action) > 0 {
			m.Hooks = append(m.Hooks, h.name)
		}
	}
	for operation, ns := range d.ExecNS {
		if ns > 0 {
			m.Operations = append(m.Operations, &rotav1.OperationTime{Operation: rotav1.Operation(operation), Exec: duration(ns)})
		}
	}
	return m
}
