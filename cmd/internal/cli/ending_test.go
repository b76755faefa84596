package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	queued  = rotav1.ActionState_ACTION_STATE_QUEUED
	running = rotav1.ActionState_ACTION_STATE_RUNNING
)

// TestHangupsCancelAction: a terminal that is closed ends a run as Ctrl-C does.
func TestHangupsCancelAction(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here, as nohup does")
	}
	s := newActionServer(running)
	hangUp := func(p []byte) (int, error) { return len(p), syscall.Kill(os.Getpid(), syscall.SIGHUP) }
	code, says := ends(t.Context(), hangUp, "run", "--addr", s.serve(t), "--", "yes")
	if code != exitInterrupted || !s.wasCanceled() || !strings.Contains(says, "interrupted: canceled action 7") {
		t.Errorf("exit code %d, canceled %v, %s", code, s.canceled, says)
	}
}

// TestOutputThatCannotBeWrittenCancelsTheAction: nobody would see its output.
func TestOutputThatCannotBeWrittenCancelsTheAction(t *testing.T) {
	broken := func([]byte) (int, error) { return 0, syscall.EPIPE }
	for want, args := range map[string][]string{
		"broken pipe: canceled action 7": {"run"},
		"broken pipe: canceled gang 7":   {"run", "--gang", "1"},
	} {
		s := newActionServer(running)
		code, says := ends(t.Context(), broken, append(args, "--addr", s.serve(t), "--", "yes")...)
		if code != exitRota || !s.wasCanceled() || !strings.Contains(says, want) {
			t.Errorf("%q: exit code %d, canceled %v, %s", args, code, s.canceled, says)
		}
	}
	// Who only watches an action leaves it alone.
	for want, args := range map[int][]string{exitRota: {"attach", "7"}, exitError: {"logs", "7", "--follow"}} {
		s := newActionServer(running)
		code, says := ends(t.Context(), broken, append(args, "--tail", "-1", "--addr", s.serve(t))...)
		if code != want || len(s.canceled) > 0 || !strings.Contains(says, "broken pipe") {
			t.Errorf("%q: exit code %d, canceled %v, %s", args, code, s.canceled, says)
		}
	}
}

// TestAPagerThatDoesNotReadDoesNotHoldUpTheEnd of a run that is interrupted.
func TestAPagerThatDoesNotReadDoesNotHoldUpTheEnd(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"run", "--gang", "1"}} {
		ctx, interrupt := context.WithCancel(t.Context())
		read := make(chan struct{})
		pager := func(p []byte) (int, error) {
			interrupt()
			<-read
			return len(p), nil
		}
		s := newActionServer(running)
		code, says := ends(ctx, pager, append(args, "--addr", s.serve(t), "--", "yes")...)
		close(read)
		if code != exitInterrupted || !s.wasCanceled() {
			t.Errorf("%q: exit code %d, canceled %v, %s", args, code, s.canceled, says)
		}
	}
}

// TestInterruptsEndAnAttachmentOnly: another user has submitted the action.
func TestInterruptsEndAnAttachmentOnly(t *testing.T) {
	a := &app{out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	v, err := a.converse(t.Context(), nil, streamFlags{})
	if err != nil {
		t.Fatal(err)
	}
	v.update(&rotav1.RunActionResponse{Update: &rotav1.RunActionResponse_Action{Action: &rotav1.Action{Id: 7, Revision: 1, State: queued}}})
	v.signals <- syscall.SIGINT
	<-v.ctx.Done()
	if err := v.result(nil, v.ctx.Err()); exitCode(err) != exitInterrupted || err.Error() != "interrupted: action 7 goes on" {
		t.Errorf("%v with exit code %d", err, exitCode(err))
	}
}

// TestInterruptedSubmissions: no server has confirmed them.
func TestInterruptedSubmissions(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	addr := newActionServer(queued).serve(t)
	for _, args := range [][]string{{"run", "-d"}, {"run", "--gang", "2"}, {"run"}} {
		code, says := ends(ctx, discard, append(args, "--addr", addr, "--", "yes")...)
		if code != exitInterrupted || !strings.Contains(says, "the action may still run") {
			t.Errorf("%q: exit code %d, %s", args, code, says)
		}
	}
}

func TestAttachExitsAsRunDoes(t *testing.T) {
	if code, says := ends(t.Context(), discard, "attach", "7", "--addr", "127.0.0.1:1"); code != exitRota || !strings.Contains(says, "no server answers") {
		t.Errorf("without a server: exit code %d, %s", code, says)
	}
	s := newActionServer(rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	if code, says := ends(t.Context(), discard, "attach", "-i", "7", "--addr", s.serve(t)); code != exitRota || !strings.Contains(says, "has ended") {
		t.Errorf("an ended action: exit code %d, %s", code, says)
	}
}

// TestOutputThatCannotBeWrittenIsAnError, of tables too.
func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	full := func([]byte) (int, error) { return 0, syscall.ENOSPC }
	for _, args := range [][]string{{"config", "print"}, {"version"}, {"help"}, {"exit-codes", "--help"}} {
		if code, says := ends(t.Context(), full, args...); code != exitError || !strings.Contains(says, "no space left on device") {
			t.Errorf("%q: exit code %d, %s", args, code, says)
		}
	}
}

// TestLogsOfAnUnreachableNode: the cluster has the end of the output, so the node is tried again for a
// while, and not until the request times out.
func TestLogsOfAnUnreachableNode(t *testing.T) {
	for _, tail := range []string{"-1", "5"} {
		t.Run(tail, func(t *testing.T) {
			t.Parallel()
			s := newActionServer(rotav1.ActionState_ACTION_STATE_SUCCEEDED)
			s.action.Result = &rotav1.ActionResult{StdoutTail: []byte("the end\n")}
			s.unreachable = true
			var out bytes.Buffer
			code, says := ends(t.Context(), out.Write, "logs", "7", "--tail", tail, "--request-timeout", "10m", "--addr", s.serve(t))
			if code != exitOK || out.String() != "the end\n" || s.reads < 2 {
				t.Errorf("exit code %d after %d tries, %s%s", code, s.reads, out.String(), says)
			}
		})
	}
}

func TestCompletionOfActions(t *testing.T) {
	addr := newActionServer(running).serve(t)
	for _, command := range []string{"logs", "attach"} {
		var out bytes.Buffer
		code, says := ends(t.Context(), out.Write, "--addr", addr, "__complete", command, "")
		if code != exitOK || !strings.HasPrefix(out.String(), "7\trunning: yes\n") {
			t.Errorf("%s: exit code %d, %s%s", command, code, out.String(), says)
		}
	}
	cmd, _, err := (&app{}).root().Find([]string{"exec"})
	if err != nil || cmd.ValidArgsFunction == nil {
		t.Errorf("exec has no completion, %v", err)
	}
}

var errSilent = errors.New("silent until the end")

// TestTheFirstHostThatAnswersIsInFront, in the order in which they are given.
func TestTheFirstHostThatAnswersIsInFront(t *testing.T) {
	dial := func(ctx context.Context, host string) error {
		switch {
		case strings.HasPrefix(host, "up"):
			return nil
		case strings.HasPrefix(host, "black"):
			<-ctx.Done()
			return errSilent
		}
		return syscall.ECONNREFUSED
	}
	for _, c := range []struct{ hosts, want string }{
		{"up1 up2", "up1 up2"},
		{"down up1", "up1 down"},
		{"black1 black2 up1 up2", "up1 black1 black2 up2"},
		{"black1 down up1", "up1 black1 down"},
	} {
		synctest.Test(t, func(t *testing.T) {
			got, err := reachableFirst(strings.Fields(c.hosts), dialStagger, dial)
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("%s: %q, %v; want %s", c.hosts, got, err, c.want)
			}
		})
	}
	if _, err := reachableFirst([]string{"down1", "down2"}, dialStagger, dial); exitCode(err) != exitUnavailable || !errors.Is(err, errNoServer) {
		t.Errorf("without a server: %v", err)
	}
}
