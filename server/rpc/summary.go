package rpc

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// Bounds of one summary.
const (
	summaryScanMax   = 1_000_000
	summaryGroupsMax = 1000
)

// SummarizeActions adds up what actions took, in one pass over a snapshot of their rows.
func (s *Server) SummarizeActions(ctx context.Context, req *rotav1.SummarizeActionsRequest) (*rotav1.SummarizeActionsResponse, error) {
	groupBy := checkWorkLabels("group_by", map[string]string{req.GroupBy: ""})
	if req.GroupBy == "" {
		groupBy = nil
	}
	list := &rotav1.ListActionsRequest{
		Namespace: orDefault(req.Namespace), TrajectoryId: req.TrajectoryId, Labels: req.Labels, Class: req.Class,
		SubmittedSince: req.SubmittedSince, NewestFirst: true,
	}
	span, spanWrong := endedRange(req)
	if err := firstOf(checkSummaryNamespace(req), checkActionFilter(list), groupBy, spanWrong).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	f := actionFilter{st: st, wall: wallOf(st), states: ^uint32(0), trajectory: state.TrajectoryID(req.TrajectoryId),
		class: req.Class, labels: req.Labels, newest: true, mayRead: readable(ctx, st, "action")}
	if req.SubmittedSince != nil {
		f.since = req.SubmittedSince.AsTime()
	}
	var err error
	if f.namespace, f.node, err = listedAt(st, list.Namespace, list.Node); err != nil {
		return nil, err
	}
	return (&summing{f: f, groupBy: req.GroupBy, byNamespace: req.ByNamespace, ended: span, groups: map[summaryKey]*summary{}}).run(ctx)
}

// checkSummaryNamespace: all namespaces together are summed up only apart, so that each caller gets
// those that it may read.
func checkSummaryNamespace(req *rotav1.SummarizeActionsRequest) *violation {
	if req.Namespace == allNamespaces && req.ByNamespace {
		return nil
	}
	return checkName("namespace", req.Namespace)
}

// timeRange is from a time to before another; zero times are no bounds.
type timeRange struct{ from, to time.Time }

func endedRange(req *rotav1.SummarizeActionsRequest) (r timeRange, v *violation) {
	for name, t := range map[string]*timestamppb.Timestamp{"ended_since": req.EndedSince, "ended_before": req.EndedBefore} {
		if err := t.CheckValid(); t != nil && err != nil {
			return r, wrong(name, "is no time: %v", err)
		}
	}
	if req.EndedSince != nil {
		r.from = req.EndedSince.AsTime()
	}
	if req.EndedBefore != nil {
		r.to = req.EndedBefore.AsTime()
	}
	if !r.from.IsZero() && !r.to.IsZero() && !r.from.Before(r.to) {
		v = wrong("ended_before", "must be later than ended_since")
	}
	return r, v
}

func (r timeRange) bounded() bool { return !r.from.IsZero() || !r.to.IsZero() }

func (r timeRange) has(t time.Time) bool {
	return !t.Before(r.from) && (r.to.IsZero() || t.Before(r.to))
}

// overlap is how much of the time from one moment to another is in the range.
func (r timeRange) overlap(from, to time.Time) time.Duration {
	if from.Before(r.from) {
		from = r.from
	}
	if !r.to.IsZero() && to.After(r.to) {
		to = r.to
	}
	return max(0, to.Sub(from))
}

// summaryKey is what a summary is of.
type summaryKey struct {
	namespace state.NamespaceID // 0 unless summaries are by namespace
	value     string
}

// summing is one pass over actions.
type summing struct {
	f           actionFilter
	groupBy     string
	byNamespace bool
	ended       timeRange
	groups      map[summaryKey]*summary
	truncated   bool
}

// run adds up the actions that match, the last submitted first.
func (g *summing) run(ctx context.Context) (*rotav1.SummarizeActionsResponse, error) {
	f, scanned := &g.f, 0
	if g.groupBy == "" && !g.byNamespace {
		g.groups[summaryKey{}] = &summary{}
	}
	f.scan(0, func(a *state.Action) bool {
		if scanned == summaryScanMax {
			g.truncated = true
			return false
		}
		if scanned++; scanned%4096 == 0 && ctx.Err() != nil || f.submittedBefore(a, f.since.Add(-clocksDiffer)) {
			return false
		}
		if f.matches(a) && (!g.ended.bounded() || a.State.Final() && g.ended.has(f.wall.timestamp(a.EndedAt).AsTime())) {
			g.add(a)
		}
		return true
	})
	resp := &rotav1.SummarizeActionsResponse{Truncated: g.truncated, KeptSince: f.keptSince()}
	for key, s := range g.groups {
		m := s.message(key.value, f.st.Meta().Now)
		g.reserve(s, m)
		if n := f.st.Namespace(cmp.Or(key.namespace, f.namespace)); n != nil { // rights are checked by it
			m.Namespace = n.Name
		}
		resp.Summaries = append(resp.Summaries, m)
	}
	slices.SortFunc(resp.Summaries, func(a, b *rotav1.ActionSummary) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Value, b.Value))
	})
	return resp, ctx.Err()
}

// add adds an action to the summary that it belongs to.
func (g *summing) add(a *state.Action) {
	key, known := summaryKey{}, true
	if g.groupBy != "" {
		key.value, known = a.Labels.Get(g.groupBy)
	}
	if g.byNamespace {
		key.namespace = a.Namespace
	}
	s := g.groups[key]
	switch {
	case !known:
		return
	case s == nil && len(g.groups) == summaryGroupsMax:
		g.truncated = true
		return
	case s == nil:
		s = &summary{}
		g.groups[key] = s
	}
	s.add(a)
	if a.Trajectory == 0 || a.Result == nil {
		return
	}
	if s.trajectories == nil {
		s.trajectories = map[state.TrajectoryID]*reserved{}
	}
	r := s.trajectories[a.Trajectory]
	if r == nil {
		r = &reserved{}
		s.trajectories[a.Trajectory] = r
	}
	r.coresMax = max(r.coresMax, a.CoresMin)
	r.cores.add(a.Result.ExecNS, uint64(a.CoresMin))
}

// reserved is what a trajectory would hold if it kept its cores: the most that an action of it
// asks for; cores is what its actions held at least.
type reserved struct {
	coresMax uint32
	cores    total
}

// reserve says what reservations would have held for the work of a summary. A trajectory that is
// not kept any more does not count, on either side.
func (g *summing) reserve(s *summary, m *rotav1.ActionSummary) {
	var held, used total
	for id, r := range s.trajectories {
		t := g.f.st.Trajectory(id)
		if t == nil {
			continue
		}
		end := g.f.st.Meta().Now
		if t.State.Ended() {
			end = t.EndedAt
		}
		open := g.ended.overlap(g.f.wall.timestamp(t.OpenedAt).AsTime(), g.f.wall.timestamp(end).AsTime())
		held.add(int64(open), uint64(r.coresMax))
		used.join(r.cores)
	}
	m.ReservedCoreTime, m.TrajectoryCoreTimeMin = held.message(), used.message()
}

// keptSince is when the first action ended that is kept; nil if no action was ever forgotten.
func (f *actionFilter) keptSince() *timestamppb.Timestamp {
	at, _, ok := f.st.OldestEnded()
	if m := f.st.Meta(); !ok {
		at = m.Now
	}
	if c := f.st.Counts(); uint64(f.st.Meta().LastAction) == uint64(c.Queued+c.Running+c.Ended) {
		return nil
	}
	return f.wall.timestamp(at)
}

// summary adds up actions. Times are log time, durations nanoseconds.
type summary struct {
	actions, ended, succeeded, running uint64
	first, last                        int64
	queue, exec, cpu, cores, gpus      total
	memoryPeak                         uint64
	trajectories                       map[state.TrajectoryID]*reserved
}

func (s *summary) add(a *state.Action) {
	s.actions++
	if s.first == 0 || a.SubmittedAt < s.first {
		s.first = a.SubmittedAt
	}
	s.last = max(s.last, a.EndedAt)
	switch a.State {
	case state.ActionSucceeded:
		s.succeeded++
	case state.ActionRunning:
		s.running++
	}
	if a.State.Final() {
		s.ended++
	}
	if a.StartedAt > 0 && a.State != state.ActionQueued { // else an attempt was lost, and it waits again
		s.queue.add(a.StartedAt-a.SubmittedAt, 1)
	}
	r := a.Result
	if r == nil {
		return
	}
	s.exec.add(r.ExecNS, 1)
	s.cpu.add(r.CPUNS, 1)
	s.cores.add(r.ExecNS, uint64(a.CoresMin))
	if d := a.GPUs(); d != nil {
		s.gpus.add(r.ExecNS, uint64(d.Degrees[0]))
	}
	s.memoryPeak = max(s.memoryPeak, r.MemoryPeak)
}

// message is the summary at a log time.
func (s *summary) message(value string, now int64) *rotav1.ActionSummary {
	if s.ended < s.actions {
		s.last = now
	}
	return &rotav1.ActionSummary{
		Value: value, Actions: s.actions, Succeeded: s.succeeded, Failed: s.ended - s.succeeded, Running: s.running,
		Span: duration(max(0, s.last-s.first)), QueueTime: s.queue.message(), ExecTime: s.exec.message(), CpuTime: s.cpu.message(),
		CoreTimeMin: s.cores.message(), GpuTimeMin: s.gpus.message(), MemoryPeakBytes: s.memoryPeak,
	}
}
