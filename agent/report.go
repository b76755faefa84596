package agent

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"

	"rota/agent/runtime"
	"rota/internal/failpoint"
)

const (
	reportTimeout = 3 * time.Second
	reportsMax    = 1024
	messageMax    = 1024 // bytes
	tailsMax      = 4096 // bytes, both streams together
)

// report tells the cluster how attempts ended. There is one call at a time;
// what ends meanwhile goes into the next. A call is repeated until a server
// confirms it, or the desired state shows that the cluster knows.
func (a *agent) report(ctx context.Context) error {
	pause := newBackoff(20*time.Millisecond, time.Second)
	for {
		changed := a.table.wait()
		incarnation, exits := a.table.toReport(reportsMax)
		if len(exits) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
			continue
		}
		err := a.reportBatch(ctx, incarnation, exits)
		if err == nil {
			pause.reset()
			continue
		}
		a.log.Warn("ends not reported yet; trying on", "attempts", len(exits), "error", err)
		if !sleep(ctx, pause.next(a.servers.count())) {
			return ctx.Err()
		}
	}
}

// reportBatch sends one call. Should a server find the request malformed, the
// reports are sent one by one, so that one of them holds up no other.
func (a *agent) reportBatch(ctx context.Context, incarnation uint64, exits []runtime.Exit) error {
	failpoint.Hit(failpoint.ReportDue)
	index, err := a.sendReports(ctx, incarnation, exits)
	if err != nil && connect.CodeOf(err) == connect.CodeInvalidArgument && len(exits) > 1 {
		for _, exit := range exits {
			index, err1 := a.sendReports(ctx, incarnation, []runtime.Exit{exit})
			a.table.acked([]runtime.Exit{exit}, index)
			if err1 != nil {
				a.log.Error("a report was refused", "attempt", exit.Key, "error", err1)
			}
		}
		return err
	}
	a.table.acked(exits, index)
	return err
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
