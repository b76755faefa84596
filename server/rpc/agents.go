package rpc

import (
	"context"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// What an attempt may leave in the log.
const (
	tailBytesMax    = 4 << 10 // both tails together
	messageBytesMax = 1 << 10
)

// frozenMax is how many attempts a node says at once to be frozen.
const frozenMax = 1024

// RegisterNode announces a node.
func (s *Server) RegisterNode(ctx context.Context, req *rotav1.RegisterNodeRequest) (*rotav1.RegisterNodeResponse, error) {
	if err := checkRegistration(req).err(); err != nil {
		return nil, err
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return nil, err
	}
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: registration(req)}})
	if err != nil {
		return nil, err
	}
	resp := &rotav1.RegisterNodeResponse{Incarnation: result.Incarnation, Index: result.Index}
	s.Machine.View(func(st *state.State) {
		meta := st.Meta()
		resp.ClusterId = meta.ClusterID
		resp.LeaseDuration = durationpb.New(time.Duration(meta.Settings.LeaseNS))
		resp.LeaseMargin = durationpb.New(time.Duration(meta.Settings.LeaseMarginNS))
	})
	return resp, nil
}

func registration(req *rotav1.RegisterNodeRequest) *logv1.RegisterNode {
	r := &logv1.RegisterNode{
		Name: req.Name, Incarnation: req.Incarnation, JournalId: req.JournalId, Pool: orDefault(req.Pool),
		Address: req.Address, Runtime: req.Runtime, MemoryBytes: req.MemoryBytes,
		BandwidthBps: req.BandwidthBps, Resizes: req.Resizes, CacheBytes: req.CacheBytes,
		Containers: req.Containers, ShareAfterNs: int64(req.ShareAfter.AsDuration()),
	}
	if g := req.Gpus; g != nil {
		r.Gpus = &logv1.GpuInventory{Class: g.Class, Count: g.Count, MemoryBytes: g.MemoryBytes}
	}
	for _, n := range req.NumaNodes {
		r.NumaNodes = append(r.NumaNodes, &logv1.NumaNode{Cpus: n.Cpus})
	}
	for key, value := range req.Labels {
		r.Labels = append(r.Labels, &logv1.Label{Key: key, Value: value})
	}
	slices.SortFunc(r.Labels, func(a, b *logv1.Label) int { return strings.Compare(a.Key, b.Key) })
	return r
}

// WatchNode streams what a node should be doing.
func (s *Server) WatchNode(ctx context.Context, req *rotav1.WatchNodeRequest, stream *connect.ServerStream[rotav1.WatchNodeResponse]) error {
	if err := firstOf(requireName("name", req.Name), requireID("incarnation", req.Incarnation)).err(); err != nil {
		return err
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return err
	}
	if req.MinIndex == 0 {
		if err := s.catchUp(ctx, false); err != nil {
			return err
		}
	}
	err := s.Dispatch.Watch(ctx, req, stream.Send)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ReportAttempts commits how attempts ended.
func (s *Server) ReportAttempts(ctx context.Context, req *rotav1.ReportAttemptsRequest) (*rotav1.ReportAttemptsResponse, error) {
	if err := checkReports(req).err(); err != nil {
		return nil, err
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return nil, err
	}
	resp := &rotav1.ReportAttemptsResponse{}
	for part := range slices.Chunk(req.Reports, fsm.EntryWeight/fsm.ReportWeight) {
		result, err := s.propose(ctx, reports(req, part, s.Machine.Level()))
		if err != nil {
			return nil, err // who tries again may repeat what has been committed
		}
		resp.Index = result.Index
	}
	return resp, nil
}

// reports makes a command of some of the reports of a request, with what the active level knows.
func reports(req *rotav1.ReportAttemptsRequest, some []*rotav1.AttemptReport, active state.Level) *logv1.Command {
	c := &logv1.ReportAttempts{Node: req.Name, Incarnation: req.Incarnation, Reports: make([]*logv1.AttemptReport, len(some))}
	for i, r := range some {
		c.Reports[i] = report(r)
	}
	fsm.Suit(c, active)
	return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: c}}
}

// report cuts a checked report to what may go into the log.
func report(r *rotav1.AttemptReport) *logv1.AttemptReport {
	res := r.Result
	stdout, stderr := tails(res.StdoutTail, res.StderrTail)
	return &logv1.AttemptReport{
		ActionId: r.ActionId, Attempt: r.Attempt,
		Reason: uint32(res.Reason), ExitCode: res.ExitCode, Signal: res.Signal,
		Message:    sentence(res.Message, messageBytesMax),
		StdoutTail: stdout, StderrTail: stderr,
		ExecNs:          max(0, int64(res.ExecDuration.AsDuration())),
		CpuNs:           max(0, int64(res.CpuTime.AsDuration())),
		MemoryPeakBytes: res.MemoryPeakBytes,
		Throttled:       r.Throttle != nil,
		RetryNs:         max(0, int64(r.GetThrottle().GetRetryAfter().AsDuration())),
		Usage:           usage(r.Usage),
	}
}

// usage cuts what an attempt used of quotas to what may be said of that.
func usage(uses []*rotav1.QuotaUse) (out []*logv1.QuotaUse) {
	for _, u := range uses[:min(len(uses), actionQuotasMax)] {
		if requireName("quota", u.GetQuota()) == nil {
			out = append(out, &logv1.QuotaUse{Quota: u.GetQuota(), Units: uint32(min(u.GetUnits(), quotaLimitMax))})
		}
	}
	return out
}

// tails cuts two tails so that together they fit: each may use what the other
// leaves of the whole, and half of it in any case.
func tails(stdout, stderr []byte) (o, e []byte) {
	const half = tailBytesMax / 2
	o = last(stdout, tailBytesMax-min(len(stderr), half))
	return o, last(stderr, tailBytesMax-len(o))
}

func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// sentence makes a message of an agent fit to be kept, in so many bytes.
func sentence(s string, most int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") // without a character that was cut
}

// ReportDisk commits whether the disk of a node is low.
func (s *Server) ReportDisk(ctx context.Context, req *rotav1.ReportDiskRequest) (*rotav1.ReportDiskResponse, error) {
	if err := firstOf(requireName("name", req.Name), requireID("incarnation", req.Incarnation)).err(); err != nil {
		return nil, err
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ReportDisk{
		ReportDisk: &logv1.ReportDisk{Name: req.Name, Incarnation: req.Incarnation, Low: req.Low},
	}})
	return &rotav1.ReportDiskResponse{}, err
}

// ReportFrozen commits which attempts a node has frozen.
func (s *Server) ReportFrozen(ctx context.Context, req *rotav1.ReportFrozenRequest) (*rotav1.ReportFrozenResponse, error) {
	if err := firstOf(requireName("name", req.Name), requireID("incarnation", req.Incarnation)).err(); err != nil {
		return nil, err
	}
	if n := len(req.Attempts); n == 0 || n > frozenMax {
		return nil, wrong("attempts", "has %d, must have 1 to %d", n, frozenMax).err()
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return nil, err
	}
	c := &logv1.ReportFrozen{Node: req.Name, Incarnation: req.Incarnation}
	for _, a := range req.Attempts {
		c.Attempts = append(c.Attempts, &logv1.FrozenAttempt{ActionId: a.GetActionId(), Attempt: a.GetAttempt(), Pause: a.GetPause()})
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_ReportFrozen{ReportFrozen: c}})
	return &rotav1.ReportFrozenResponse{}, err
}

// RenewLease renews a node's lease at the leader.
func (s *Server) RenewLease(ctx context.Context, req *rotav1.RenewLeaseRequest) (*rotav1.RenewLeaseResponse, error) {
	if err := firstOf(requireName("name", req.Name), requireID("incarnation", req.Incarnation)).err(); err != nil {
		return nil, err
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return nil, err
	}
	fenced, err := s.Renew(ctx, req.Name, req.Incarnation)
	if err != nil {
		return nil, err
	}
	return &rotav1.RenewLeaseResponse{Fenced: fenced}, nil
}
