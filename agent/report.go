package agent

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/agent/plan"
	"rota/api/backoff"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"

	"rota/internal/failpoint"
)

const reportTimeout = 3 * time.Second

// report tells the cluster how attempts ended. What no server confirms is reported
// again, after a pause.
func (a *agent) report(ctx context.Context, step plan.Report, pause *rounds) {
	for i := range step.Exits {
		step.Exits[i] = a.disk.explain(step.Exits[i])
	}
	began := time.Now()
	err := a.reportBatch(ctx, step.Incarnation, step.Exits)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		a.metrics.took(phaseReport, began)
		pause.reset()
	default:
		a.log.Warn("ends not reported yet; trying on", "attempts", len(step.Exits), "error", err)
		if backoff.Sleep(ctx, pause.next(a.servers.count())) != nil {
			return
		}
	}
	a.driver.tell(func(p *plan.Plan, _ int64) { p.ReportsDone() })
}

// reportBatch sends reports in one call. If a server refuses the call as it is,
// because it is malformed or too large, its halves are sent on their own, so that
// one report never holds up another.
func (a *agent) reportBatch(ctx context.Context, incarnation uint64, exits []plan.Exit) error {
	failpoint.Hit(failpoint.ReportDue)
	index, err := a.sendReports(ctx, incarnation, exits)
	if !refusedAsItIs(err) {
		a.reported(exits, index)
		return err
	}
	if half := len(exits) / 2; half > 0 {
		return errors.Join(a.reportBatch(ctx, incarnation, exits[:half]), a.reportBatch(ctx, incarnation, exits[half:]))
	}
	return a.reportBare(ctx, incarnation, exits[0], err)
}

// reportBare reports the end of an attempt whose full report was refused: without
// output, and with the refusal as its message.
func (a *agent) reportBare(ctx context.Context, incarnation uint64, exit plan.Exit, refusal error) error {
	a.log.Error("a report was refused; reporting the end without its output", "action", exit.Key.Action, "attempt", exit.Key.Attempt, "error", refusal)
	bare := plan.Exit{
		Key: exit.Key, Reason: exit.Reason, ExitCode: exit.ExitCode, Signal: exit.Signal,
		Throttled: exit.Throttled, RetryAfter: exit.RetryAfter, Usage: exit.Usage,
		Message: "the output is missing because the report was refused: " + refusal.Error(),
	}
	index, err := a.sendReports(ctx, incarnation, []plan.Exit{bare})
	a.reported([]plan.Exit{exit}, index)
	return err
}

// reported tells the plan that the entry at index holds reports; 0: none does.
func (a *agent) reported(exits []plan.Exit, index uint64) {
	if index == 0 {
		return
	}
	keys := make([]plan.Key, len(exits))
	for i, exit := range exits {
		keys[i] = exit.Key
		a.metrics.ended(exit)
		a.traces.reported(exit, reasonOf(exit))
	}
	a.driver.tell(func(p *plan.Plan, _ int64) { p.Reported(keys, index) })
}

// refusedAsItIs reports whether every server would refuse the same call again.
func refusedAsItIs(err error) bool {
	return err != nil && (connect.CodeOf(err) == connect.CodeInvalidArgument || codec.TooLarge(err))
}

func (a *agent) sendReports(ctx context.Context, incarnation uint64, exits []plan.Exit) (index uint64, err error) {
	req := &rotav1.ReportAttemptsRequest{Name: a.cfg.Name, Incarnation: incarnation}
	for _, exit := range exits {
		req.Reports = append(req.Reports, &rotav1.AttemptReport{
			ActionId: exit.Key.Action, Attempt: exit.Key.Attempt, Result: resultOf(exit), Throttle: throttleOf(exit), Usage: usageOf(exit),
		})
	}
	resp, err := call(ctx, a.servers, reportTimeout,
		func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.ReportAttemptsResponse, error) {
			return c.ReportAttempts(ctx, req)
		})
	if err != nil {
		return 0, err
	}
	failpoint.Hit(failpoint.ReportAcked)
	return max(resp.GetIndex(), 1), nil
}

// usageOf is what the attempt used of quotas, as far as it said.
func usageOf(e plan.Exit) (uses []*rotav1.QuotaUse) {
	for _, u := range e.Usage {
		uses = append(uses, &rotav1.QuotaUse{Quota: u.Quota, Units: u.Units})
	}
	return uses
}

// throttleOf is what a provider said, nil if it refused nothing.
func throttleOf(e plan.Exit) *rotav1.Throttle {
	if !e.Throttled {
		return nil
	}
	t := &rotav1.Throttle{}
	if e.RetryAfter > 0 {
		t.RetryAfter = durationpb.New(e.RetryAfter)
	}
	return t
}

// resultOf makes the result fit what the API allows.
func resultOf(e plan.Exit) *rotav1.ActionResult {
	stderr := tail(e.Stderr, plan.ReportTailsMax)
	stdout := tail(e.Stdout, plan.ReportTailsMax-len(stderr))
	return &rotav1.ActionResult{
		Reason:          rotav1.EndReason(e.Reason),
		ExitCode:        int32(e.ExitCode),
		Signal:          int32(e.Signal),
		Message:         short(e.Message, plan.ReportMessageMax),
		StdoutTail:      stdout,
		StderrTail:      stderr,
		ExecDuration:    durationpb.New(max(e.Exec, 0)),
		CpuTime:         durationpb.New(max(e.CPU, 0)),
		MemoryPeakBytes: e.MemoryPeak,
	}
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// short is valid UTF-8 of bounded length, as servers want strings to be.
func short(s string, bytesMax int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= bytesMax {
		return s
	}
	for bytesMax > 0 && !utf8.RuneStart(s[bytesMax]) {
		bytesMax--
	}
	return s[:bytesMax]
}
