package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/process"
)

// interruptGrace is how long a command may continue after Ctrl-C.
const interruptGrace = 10 * time.Second

const setUpHook = "set-up hook"

// runTurn runs a command while a turn is held.
func (a *app) runTurn(ctx context.Context, req *rotav1.AcquireTurnRequest, hook string, argv []string) error {
	c, err := a.dial()
	if err != nil {
		return runFailed(err)
	}
	defer c.Close()
	child := turnChild{a: a}
	var waits atomic.Uint64 // the turn, until it is held
	acquired := client.OnAcquired(func(t *rotav1.Turn) { waits.Store(t.Id) })
	defer a.tellWaiting(ctx, func(ctx context.Context) string { return turnWaitsFor(ctx, c, waits.Load()) })()
	err = c.HoldTurn(ctx, req, func(ctx context.Context, t *rotav1.Turn) error {
		waits.Store(0)
		child.hold, child.env = client.HoldOf(ctx), turnEnv(t)
		if t.SetUpNeeded && hook != "" {
			begin := time.Now()
			if err := child.run(ctx, setUpHook, "sh", "-c", hook); err != nil {
				return fmt.Errorf("%s: %w", setUpHook, err)
			}
			child.hold.SetUpTook(time.Since(begin))
		}
		return child.run(ctx, argv[0], argv...)
	}, acquired)
	return turnEnd(ctx, err, child.fate(argv[0]))
}

func turnEnv(t *rotav1.Turn) []string {
	return append(os.Environ(),
		fmt.Sprintf("ROTA_TURN_ID=%d", t.Id), fmt.Sprintf("ROTA_TURN_TOKEN=%d", t.Token), fmt.Sprintf("ROTA_TURN_STEP=%d", t.Step),
		"ROTA_TURN_GROUP="+t.Group)
}

// turnEnd turns the end of a turn into an exit code. For a lost turn, the message also
// says how the command ended: in any case, the step is not done.
func turnEnd(ctx context.Context, err error, fate string) error {
	var lost *client.LostError
	var exit *exec.ExitError
	var start *exec.Error
	var path *os.PathError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &lost): // not the code of a command that was killed for it
		return &codeError{exitTurnLost, fmt.Errorf("%w; %s", lost, fate)}
	case ctx.Err() != nil:
		return &codeError{exitInterrupted, errors.New("interrupted: the turn was given back")}
	case endedBy(err) != 0:
		return &codeError{exitSignal + int(endedBy(err)), err}
	case errors.As(err, &exit):
		if err != error(exit) { //nolint:errorlint // it says more than that the command has failed
			return &codeError{exit.ExitCode(), err}
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
	// ran is what runs or was run last, stopped that it was since the turn was lost.
	ran     string
	stopped bool
}

// fate says how a command ended when its turn was lost.
func (r *turnChild) fate(command string) string {
	switch {
	case r.ran == command && r.stopped:
		return command + " was stopped"
	case r.ran == command:
		return command + " had ended before rota knew of the loss"
	case r.stopped:
		return "the " + setUpHook + " was stopped, and " + command + " not started"
	}
	return command + " was not started"
}

// run runs a command in a process group of its own, which gets SIGTERM when ctx is
// done and SIGKILL when the turn is lost. The group has the terminal, if this process had
// it. run returns when the whole group has ended.
func (r *turnChild) run(ctx context.Context, what string, argv ...string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = r.env, os.Stdin, unchecked(r.a.out), r.a.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := process.Fork(cmd, ""); err != nil {
		return err
	}
	r.ran = what
	takeBack := func() {}
	terminal := openTerminal()
	if terminal != nil {
		takeBack = terminal.lend(cmd.Process.Pid, r.hold.Over, r.hold.Lost())
	}
	quits := make(chan os.Signal, 1)
	signal.Notify(quits, syscall.SIGQUIT)
	defer signal.Stop(quits)
	ended := make(chan struct{})
	guarded := make(chan struct{})
	go func() {
		defer close(guarded)
		r.guard(ctx, cmd.Process.Pid, ended, quits)
	}()
	err := cmd.Wait()
	close(ended)
	<-guarded
	takeBack()
	if terminal != nil && endedBy(err) == syscall.SIGINT {
		// Ctrl-C went to the command only: others of this job, such as a script with a trap, hear of it so.
		_ = syscall.Kill(0, syscall.SIGINT)
	}
	return err
}

// endedBy is the signal that ended a command; 0: none.
func endedBy(err error) syscall.Signal {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return status.Signal()
		}
	}
	return 0
}

// guard signals a process group until its leader has ended, and passes on SIGQUIT. Then it kills the
// remaining processes of the group: no process may use the nodes without the turn.
func (r *turnChild) guard(ctx context.Context, pid int, ended <-chan struct{}, quits <-chan os.Signal) {
	send := func(s syscall.Signal) { _ = syscall.Kill(-pid, s) } // it may be gone
	defer send(syscall.SIGKILL)
	var grace <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case <-ended:
			return
		case <-quits:
			send(syscall.SIGQUIT)
		case <-r.hold.Lost():
			r.stopped = true
			send(syscall.SIGKILL)
			<-ended
			return
		case <-done:
			done = nil // once
			r.stopped = errors.Is(context.Cause(ctx), client.ErrTurnLost)
			send(syscall.SIGTERM)
			if !errors.Is(context.Cause(ctx), client.ErrTurnStop) {
				grace = time.After(interruptGrace)
			}
		case <-grace:
			send(syscall.SIGKILL)
		}
	}
}
