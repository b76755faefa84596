package agent

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/backoff"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"

	"rota/agent/runtime"
	"rota/internal/failpoint"
)

const (
	reportTimeout = 3 * time.Second
	reportsMax    = 1024
	// reportBytesMax bounds one call. Servers read 4 MiB.
	reportBytesMax = 1 << 20
	// reportOverhead is at least what a report takes beside its message and tails.
	reportOverhead = 128
	messageMax     = 1024 // bytes
	tailsMax       = 4096 // bytes, both streams together
)

// reportBytes is at least the size of a report on the wire.
func reportBytes(e runtime.Exit) int {
	return reportOverhead + min(len(e.Message), messageMax) + min(len(e.Stdout)+len(e.Stderr), tailsMax)
}

// report tells the cluster how attempts ended. There is one call at a time;
// what ends meanwhile goes into the next. A call is repeated until a server
// confirms it, or the desired state shows that the cluster knows.
func (a *agent) report(ctx context.Context) error {
	pause := newRounds(20*time.Millisecond, time.Second)
	for {
		changed := a.table.wait()
		incarnation, exits := a.table.toReport(reportsMax, reportBytesMax)
		if len(exits) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
			continue
		}
		for i := range exits {
			exits[i] = a.disk.explain(exits[i])
		}
		err := a.reportBatch(ctx, incarnation, exits)
		if err == nil {
			pause.reset()
			continue
		}
		a.log.Warn("ends not reported yet; trying on", "attempts", len(exits), "error", err)
		if backoff.Sleep(ctx, pause.next(a.servers.count())) != nil {
			return ctx.Err()
		}
	}
}

// reportBatch sends reports in one call. If a server refuses the call as it is,
// because it is malformed or too large, its halves are sent on their own, so that
// one report never holds up another.
func (a *agent) reportBatch(ctx context.Context, incarnation uint64, exits []runtime.Exit) error {
	failpoint.Hit(failpoint.ReportDue)
	index, err := a.sendReports(ctx, incarnation, exits)
	if !refusedAsItIs(err) {
		a.table.acked(exits, index)
		return err
	}
	if half := len(exits) / 2; half > 0 {
		return errors.Join(a.reportBatch(ctx, incarnation, exits[:half]), a.reportBatch(ctx, incarnation, exits[half:]))
	}
	return a.reportBare(ctx, incarnation, exits[0], err)
}

// reportBare reports the end of an attempt whose full report was refused: without
// output, and with the refusal as its message.
func (a *agent) reportBare(ctx context.Context, incarnation uint64, exit runtime.Exit, refusal error) error {
	a.log.Error("a report was refused; reporting the end without its output", "attempt", exit.Key, "error", refusal)
	bare := runtime.Exit{
		Key: exit.Key, Reason: exit.Reason, ExitCode: exit.ExitCode, Signal: exit.Signal,
		Message: "the output is missing because the report was refused: " + refusal.Error(),
	}
	index, err := a.sendReports(ctx, incarnation, []runtime.Exit{bare})
	a.table.acked([]runtime.Exit{exit}, index)
	return err
}

// refusedAsItIs reports whether every server would refuse the same call again.
func refusedAsItIs(err error) bool {
	return err != nil && (connect.CodeOf(err) == connect.CodeInvalidArgument || codec.TooLarge(err))
}

func (a *agent) sendReports(ctx context.Context, incarnation uint64, exits []runtime.Exit) (index uint64, err error) {
	req := &rotav1.ReportAttemptsRequest{Name: a.cfg.Name, Incarnation: incarnation}
	for _, exit := range exits {
		req.Reports = append(req.Reports, &rotav1.AttemptReport{
			ActionId: exit.Key.Action, Attempt: exit.Key.Attempt, Result: resultOf(exit),
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

// resultOf makes the result fit what the API allows.
func resultOf(e runtime.Exit) *rotav1.ActionResult {
	stderr := tail(e.Stderr, tailsMax)
	stdout := tail(e.Stdout, tailsMax-len(stderr))
	return &rotav1.ActionResult{
		Reason:          rotav1.EndReason(e.Reason),
		ExitCode:        int32(e.ExitCode),
		Signal:          int32(e.Signal),
		Message:         short(e.Message, messageMax),
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
