package rpc

import (
	"context"
	"maps"
	"slices"

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
	if err := firstOf(checkName("namespace", req.Namespace), checkActionFilter(list), groupBy).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	f := actionFilter{st: st, wall: wallOf(st), states: ^uint32(0), trajectory: state.TrajectoryID(req.TrajectoryId),
		class: req.Class, labels: req.Labels, newest: true}
	if req.SubmittedSince != nil {
		f.since = req.SubmittedSince.AsTime()
	}
	if err := f.find(list); err != nil {
		return nil, err
	}
	return f.summarize(ctx, req.GroupBy)
}

// summarize adds up the actions that match, the last submitted first.
func (f *actionFilter) summarize(ctx context.Context, groupBy string) (*rotav1.SummarizeActionsResponse, error) {
	resp := &rotav1.SummarizeActionsResponse{}
	groups, scanned := map[string]*summary{}, 0
	if groupBy == "" {
		groups[""] = &summary{}
	}
	f.scan(0, func(a *state.Action) bool {
		if scanned == summaryScanMax {
			resp.Truncated = true
			return false
		}
		if scanned++; scanned%4096 == 0 && ctx.Err() != nil || f.submittedBefore(a, f.since.Add(-clocksDiffer)) {
			return false
		}
		if !f.matches(a) {
			return true
		}
		value, known := "", true
		if groupBy != "" {
			value, known = a.Labels.Get(groupBy)
		}
		switch g := groups[value]; {
		case !known:
		case g != nil:
			g.add(a)
		case len(groups) == summaryGroupsMax:
			resp.Truncated = true
		default:
			groups[value] = &summary{}
			groups[value].add(a)
		}
		return true
	})
	for _, value := range slices.Sorted(maps.Keys(groups)) {
		resp.Summaries = append(resp.Summaries, groups[value].message(value, f.st.Meta().Now))
	}
	return resp, ctx.Err()
}

// summary adds up actions. Times are log time, durations nanoseconds.
type summary struct {
	actions, ended, succeeded, running    uint64
	first, last                           int64
	queueNS, execNS, cpuNS, coreNS, gpuNS int64
	memoryPeak                            uint64
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
		s.queueNS += max(0, a.StartedAt-a.SubmittedAt)
	}
	r := a.Result
	if r == nil {
		return
	}
	s.execNS += r.ExecNS
	s.cpuNS += r.CPUNS
	s.coreNS += r.ExecNS * int64(a.CoresMin)
	if d := a.GPUs(); d != nil {
		s.gpuNS += r.ExecNS * int64(d.Degrees[0])
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
		Span: duration(max(0, s.last-s.first)), QueueTime: duration(s.queueNS), ExecTime: duration(s.execNS), CpuTime: duration(s.cpuNS),
		CoreTimeMin: duration(s.coreNS), GpuTimeMin: duration(s.gpuNS), MemoryPeakBytes: s.memoryPeak,
	}
}
