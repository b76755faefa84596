package e2b

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"rota/api/gen/e2b/process"
	rotav1 "rota/api/gen/rota/v1"
)

// keepaliveDefault is how often a stream says something if its caller does not ask for more.
const keepaliveDefault = 90 * time.Second

// endPause bounds the pause before an action whose output has ended is looked at again.
const (
	endPauseMin = 5 * time.Millisecond
	endPauseMax = 500 * time.Millisecond
)

// follower sends what happens to one action as events of a process.
type follower struct {
	*sandbox
	tty       bool
	keepalive time.Duration
	send      func(*process.ProcessEvent) error
	// action is the ID, once it is known.
	action atomic.Uint64
}

// run submits an action and follows it.
func (f *follower) run(ctx context.Context, req *rotav1.RunActionRequest) error {
	return f.pump(ctx, func(ctx context.Context, emit func(*process.ProcessEvent) bool) error {
		from, err := f.actions.RunAction(ctx, req)
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }()
		for from.Receive() {
			switch update := from.Msg().Update.(type) {
			case *rotav1.RunActionResponse_Output:
				if !emit(f.data(update.Output)) {
					return nil
				}
			case *rotav1.RunActionResponse_Action:
				a := update.Action
				if f.action.Load() == 0 && !emit(f.begin(a)) {
					return nil
				}
				if a.Result != nil {
					return f.end(a, emit)
				}
			}
		}
		return from.Err()
	})
}

// join follows an action that was submitted before.
func (f *follower) join(ctx context.Context, a *rotav1.Action) error {
	return f.pump(ctx, func(ctx context.Context, emit func(*process.ProcessEvent) bool) error {
		if !emit(f.begin(a)) {
			return nil
		}
		out, err := f.actions.ReadActionOutput(ctx, &rotav1.ReadActionOutputRequest{ActionId: a.Id, Follow: true})
		if err != nil {
			return err
		}
		defer func() { _ = out.Close() }()
		for out.Receive() {
			if !emit(f.data(out.Msg().Chunk)) {
				return nil
			}
		}
		if err := out.Err(); err != nil {
			return err
		}
		for pause := endPauseMin; ; pause = min(2*pause, endPauseMax) {
			resp, err := f.actions.GetAction(ctx, &rotav1.GetActionRequest{Id: a.Id, AllowStale: true})
			if err != nil {
				return err
			}
			if resp.Action.Result != nil {
				return f.end(resp.Action, emit)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// pump sends what read emits, and that the stream lives. The context of read ends with it.
func (f *follower) pump(ctx context.Context, read func(ctx context.Context, emit func(*process.ProcessEvent) bool) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, done := make(chan *process.ProcessEvent), make(chan error, 1)
	emit := func(event *process.ProcessEvent) bool {
		select {
		case events <- event:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() { done <- read(ctx, emit) }()
	tick := time.NewTicker(f.keepalive)
	defer tick.Stop()
	for {
		var event *process.ProcessEvent
		select {
		case event = <-events:
		case <-tick.C:
			event = &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
		case err := <-done:
			return err
		case <-ctx.Done():
			return errors.Join(ctx.Err(), <-done)
		}
		if err := f.send(event); err != nil {
			cancel()
			return errors.Join(err, <-done)
		}
	}
}

func (f *follower) begin(a *rotav1.Action) *process.ProcessEvent {
	f.action.Store(a.Id)
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pidOf(a.Id)}}}
}

func (f *follower) data(chunk *rotav1.OutputChunk) *process.ProcessEvent {
	data := &process.ProcessEvent_DataEvent{}
	switch {
	case f.tty:
		data.Output = &process.ProcessEvent_DataEvent_Pty{Pty: chunk.GetData()}
	case chunk.GetStream() == rotav1.OutputStream_OUTPUT_STREAM_STDERR:
		data.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: chunk.GetData()}
	default:
		data.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: chunk.GetData()}
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}}
}

// end says how an action ended. What took too long ends the call with an error, as in E2B.
func (f *follower) end(a *rotav1.Action, emit func(*process.ProcessEvent) bool) error {
	r := a.Result
	end := &process.ProcessEvent_EndEvent{ExitCode: -1}
	switch r.Reason {
	case rotav1.EndReason_END_REASON_EXITED:
		end.ExitCode, end.Exited, end.Status = r.ExitCode, true, fmt.Sprintf("exit status %d", r.ExitCode)
	case rotav1.EndReason_END_REASON_SIGNALED:
		end.Status = "signal: " + syscall.Signal(r.Signal).String()
	case rotav1.EndReason_END_REASON_CANCELED:
		end.Status = "signal: " + syscall.SIGKILL.String()
	case rotav1.EndReason_END_REASON_TIMEOUT:
		return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("the process ran for longer than its timeout"))
	case rotav1.EndReason_END_REASON_TRAJECTORY_ENDED:
		return connect.NewError(connect.CodeUnavailable, errEnded)
	default:
		end.Status = whyEnded(r)
	}
	if end.ExitCode != 0 {
		end.Error = &end.Status
	}
	emit(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
	return nil
}

// whyEnded says what neither an exit code nor a signal says.
func whyEnded(r *rotav1.ActionResult) string {
	why := map[rotav1.EndReason]string{
		rotav1.EndReason_END_REASON_OUT_OF_MEMORY:   "killed: the sandbox has no more memory",
		rotav1.EndReason_END_REASON_START_FAILED:    "the process could not be started",
		rotav1.EndReason_END_REASON_NODE_LOST:       "the node of the sandbox was lost",
		rotav1.EndReason_END_REASON_SUPERVISOR_LOST: "the exit status was lost",
	}[r.Reason]
	switch {
	case why == "":
		return r.Message
	case r.Message == "":
		return why
	}
	return why + ": " + r.Message
}
