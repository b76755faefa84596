package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/pflag"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// streamFlags say what of this process an action is given.
type streamFlags struct{ stdin, tty bool }

func (f *streamFlags) addTo(fs *pflag.FlagSet) {
	fs.BoolVarP(&f.stdin, "stdin", "i", false, "pass on standard input, and forward Ctrl-C and other signals to the command")
	fs.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal, of the size of this one; Ctrl-P Ctrl-Q detaches from it")
}

func (f *streamFlags) used() bool { return f.stdin || f.tty }

// apply tells the action what it is given.
func (f *streamFlags) apply(spec *rotav1.ActionSpec) error {
	if f.used() && spec.Command == nil {
		return usageErrorf("--stdin and --tty are for commands; leave them out with --url")
	}
	spec.Stdin = f.stdin && !f.tty
	if !f.tty {
		return nil
	}
	if spec.Tty = terminalSize(os.Stdin); spec.Tty == nil {
		spec.Tty = &rotav1.TerminalSize{Rows: 24, Columns: 80}
	}
	if kind := os.Getenv("TERM"); kind != "" {
		if spec.Command.Env == nil {
			spec.Command.Env = map[string]string{}
		}
		if _, own := spec.Command.Env["TERM"]; !own {
			spec.Command.Env["TERM"] = kind
		}
	}
	return nil
}

// errDetached ends the following of an action that goes on.
var errDetached = errors.New("detached")

// conversation passes standard input, signals and the size of the terminal on to an action.
type conversation struct {
	a       *app
	c       *client.Client
	flags   streamFlags
	sink    *outputSink
	ctx     context.Context
	end     context.CancelCauseFunc
	restore func() // the terminal; nil: it was left alone
	signals chan os.Signal
	started sync.Once

	mu     sync.Mutex
	action *rotav1.Action // newest
}

// converse begins a conversation. Signals do not end this process any more: they are for the
// action.
func (a *app) converse(ctx context.Context, c *client.Client, flags streamFlags) (*conversation, error) {
	v := &conversation{a: a, c: c, flags: flags, sink: &outputSink{a: a}, signals: make(chan os.Signal, 16)}
	v.ctx, v.end = context.WithCancelCause(context.WithoutCancel(ctx))
	if flags.stdin && flags.tty {
		var err error
		if v.restore, err = rawTerminal(os.Stdin); err != nil {
			return nil, fmt.Errorf("set the terminal to raw mode: %w", err)
		}
	}
	signal.Notify(v.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGWINCH)
	go v.forward()
	return v, nil
}

// close gives the terminal back.
func (v *conversation) close() {
	signal.Stop(v.signals)
	v.end(nil)
	if v.restore != nil {
		v.restore()
	}
}

// update takes one message of the action.
func (v *conversation) update(msg *rotav1.RunActionResponse) {
	v.sink.update(msg)
	if msg.GetAction() == nil {
		return
	}
	v.mu.Lock()
	v.action = msg.GetAction()
	v.mu.Unlock()
	if msg.GetAction().State == rotav1.ActionState_ACTION_STATE_RUNNING {
		v.started.Do(func() {
			v.resize()
			if v.flags.stdin {
				go v.pump(os.Stdin)
			}
		})
	}
}

func (v *conversation) newest() *rotav1.Action {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.action
}

// pump passes standard input on until it or the action ends.
func (v *conversation) pump(from io.Reader) {
	input := v.c.Input(v.newest().Id)
	var keys detachKeys
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		data, detach := buf[:n], false
		if v.restore != nil {
			data, detach = keys.pass(data)
		}
		if writeErr := input.Write(v.ctx, data); writeErr != nil {
			v.inputFailed(writeErr)
			return
		}
		if detach {
			v.end(errDetached)
			return
		}
		if err != nil {
			v.inputFailed(input.Close(v.ctx))
			return
		}
	}
}

// inputFailed says why no more input is passed on, if the action does not say it by itself.
func (v *conversation) inputFailed(err error) {
	switch client.Detail(err).GetReason() {
	case "INPUT_CLOSED", "ATTEMPT_ENDED", "ACTION_NOT_FOUND":
		return
	}
	if err != nil && v.ctx.Err() == nil {
		v.a.say("standard input is not passed on any more: %s", describe(err, v.a.settings.addr))
	}
}

// interruptsMax is how many Ctrl-C an action is sent before it is canceled.
const interruptsMax = 3

// forward sends signals on.
func (v *conversation) forward() {
	interrupts := 0
	for {
		var sig os.Signal
		select {
		case sig = <-v.signals:
		case <-v.ctx.Done():
			return
		}
		act := v.newest()
		runs := act.GetState() == rotav1.ActionState_ACTION_STATE_RUNNING
		switch sig {
		case syscall.SIGWINCH:
			if runs {
				v.resize()
			}
			continue
		case syscall.SIGINT:
			interrupts++
		}
		if !runs || interrupts > interruptsMax {
			v.end(context.Canceled)
			return
		}
		if err := v.c.Signal(v.ctx, act.Id, signalNames[sig], false); err != nil && v.ctx.Err() == nil && client.Detail(err).GetReason() != "ATTEMPT_ENDED" {
			v.a.say("%s", describe(err, v.a.settings.addr))
		}
	}
}

// signalNames are the names of the signals that are sent on.
var signalNames = map[os.Signal]string{
	syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT",
}

// resize gives the terminal of the action the size of this one.
func (v *conversation) resize() {
	size := terminalSize(os.Stdin)
	if !v.flags.tty || size == nil {
		return
	}
	go func() { _ = v.c.ResizeTerminal(v.ctx, v.newest().Id, size) }() // the next change is another try
}

// result is what became of an action that was followed: it has ended, or the user has left it.
func (v *conversation) result(act *rotav1.Action, err error) error {
	v.close()
	switch {
	case errors.Is(context.Cause(v.ctx), errDetached):
		v.a.say("detached: action %d goes on\nAttach to it again with: rota attach -i -t %d", v.newest().GetId(), v.newest().GetId())
		return nil
	case err == nil && v.sink.err != nil:
		return runFailed(v.sink.err)
	case err == nil:
		return v.a.runEnd(act)
	case errors.Is(err, context.Canceled):
		return v.a.cancelRun(v.c, v.newest())
	}
	return runFailed(err)
}

// runInteractive follows an action to its end, as runAction does, and passes on what is typed.
func (a *app) runInteractive(ctx context.Context, spec *rotav1.ActionSpec, flags streamFlags) error {
	c, err := a.dial()
	if err != nil {
		return runFailed(err)
	}
	if err := flags.apply(spec); err != nil {
		return err
	}
	v, err := a.converse(ctx, c, flags)
	if err != nil {
		return runFailed(err)
	}
	defer a.tellWaiting(v.ctx, func(ctx context.Context) string { return actionWaitsFor(ctx, c, v.sink.queued.Load()) })()
	act, err := c.Run(v.ctx, spec, v.update)
	return v.result(act, err)
}
