package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/process"
)

// interruptGrace is how long a command may go on that Ctrl-C has asked to end.
const interruptGrace = 10 * time.Second

// runTurn runs a command while a turn is held.
func (a *app) runTurn(ctx context.Context, req *rotav1.AcquireTurnRequest, hook string, argv []string) error {
	c, err := a.dial()
	if err != nil {
		return runFailed(err)
	}
	defer c.Close()
	err = c.HoldTurn(ctx, req, func(ctx context.Context, t *rotav1.Turn) error {
		child := turnChild{a: a, hold: client.HoldOf(ctx), env: turnEnv(t)}
		if t.SetUpNeeded && hook != "" {
			begin := time.Now()
			if err := child.run(ctx, "sh", "-c", hook); err != nil {
				return fmt.Errorf("set-up hook: %w", err)
			}
			child.hold.SetUpTook(time.Since(begin))
		}
		return child.run(ctx, argv[0], argv[1:]...)
	})
	return turnEnd(ctx, err)
}

func turnEnv(t *rotav1.Turn) []string {
	return append(os.Environ(),
		fmt.Sprintf("ROTA_TURN_ID=%d", t.Id), fmt.Sprintf("ROTA_TURN_TOKEN=%d", t.Token), fmt.Sprintf("ROTA_TURN_STEP=%d", t.Step),
		"ROTA_TURN_GROUP="+t.Group)
}

// turnEnd turns the end of a turn into an exit code.
func turnEnd(ctx context.Context, err error) error {
	var exit *exec.ExitError
	var start *exec.Error
	var path *os.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrTurnLost): // not that a server is gone, which may be why
		return &codeError{exitRota, errors.New(err.Error())}
	case ctx.Err() != nil:
		return &codeError{exitInterrupted, errors.New("interrupted: the turn was given back")}
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return &codeError{exitSignal + int(status.Signal()), err}
		}
		return &codeError{code: exit.ExitCode()}
	case errors.As(err, &start), errors.As(err, &path):
		return &codeError{exitCannotStart, err}
	}
	return runFailed(err)
}

// turnChild runs commands that hold a turn.
type turnChild struct {
	a    *app
	hold *client.Hold
	env  []string
}

// run runs a command in a process group of its own, which gets SIGTERM when ctx is
// done and SIGKILL when the turn is lost. It returns when none of the group is left.
func (r *turnChild) run(ctx context.Context, name string, args ...string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = r.env, os.Stdin, r.a.out, r.a.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := process.Fork(cmd, ""); err != nil {
		return err
	}
	ended := make(chan struct{})
	guarded := make(chan struct{})
	go func() {
		defer close(guarded)
		r.guard(ctx, cmd.Process.Pid, ended)
	}()
	err := cmd.Wait()
	close(ended)
	<-guarded
	return err
}

// guard signals a process group until its leader has ended, and then kills whoever of
// it is left: nobody may use the nodes without the turn.
func (r *turnChild) guard(ctx context.Context, pid int, ended <-chan struct{}) {
	signal := func(s syscall.Signal) { _ = syscall.Kill(-pid, s) } // it may be gone
	defer signal(syscall.SIGKILL)
	var grace <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case <-ended:
			return
		case <-r.hold.Lost():
			signal(syscall.SIGKILL)
			<-ended
			return
		case <-done:
			done = nil // once
			signal(syscall.SIGTERM)
			if !errors.Is(context.Cause(ctx), client.ErrTurnStop) {
				grace = time.After(interruptGrace)
			}
		case <-grace:
			signal(syscall.SIGKILL)
		}
	}
}
