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
	"time"

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
	own     bool // this command has submitted the action, and cancels it when it is interrupted
	sink    *outputSink
	ctx     context.Context
	end     context.CancelCauseFunc
	restore func() // the terminal; nil: it was left alone
	signals chan os.Signal
	started sync.Once
	sizing  sync.Mutex // orders changes of the terminal's size

	mu     sync.Mutex
	action *rotav1.Action // newest
}

// converse begins a conversation. Signals do not end this process any more: they are for the
// action.
func (a *app) converse(ctx context.Context, c *client.Client, flags streamFlags) (*conversation, error) {
	v := &conversation{a: a, c: c, flags: flags, signals: make(chan os.Signal, 16)}
	v.ctx, v.end = context.WithCancelCause(context.WithoutCancel(ctx))
	v.sink = a.newSink(v.ctx, v.end)
	if ctx.Err() != nil { // a signal came before
		v.end(nil)
		return nil, errInterrupted
	}
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

const (
	// typedMax is how many pieces of standard input wait while the action does not read: keys to
	// detach are found behind them.
	typedMax = 256
	// detachMax is how long detaching waits for what was typed before.
	detachMax = time.Second
)

// typing is standard input on its way from who reads it to who writes it to the action.
type typing struct {
	pieces chan []byte   // closed at the end of the input, or where it detaches
	over   chan struct{} // closed when the action takes no more
	detach bool          // once pieces is closed
}

// pump passes standard input on until it or the action ends.
func (v *conversation) pump(from io.Reader) {
	typed := &typing{pieces: make(chan []byte, typedMax), over: make(chan struct{})}
	go v.read(from, typed)
	input := v.c.Input(v.newest().Id)
	for piece := range typed.pieces {
		if err := input.Write(v.ctx, piece); err != nil {
			close(typed.over)
			v.inputFailed(err)
			return
		}
	}
	if typed.detach {
		v.end(errDetached)
		return
	}
	v.inputFailed(input.Close(v.ctx))
}

// read takes in what is typed. It goes on when the action does not read, and when it takes no more:
// the user can always detach.
func (v *conversation) read(from io.Reader, to *typing) {
	defer close(to.pieces)
	var keys detachKeys
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		piece := buf[:n]
		if v.restore != nil {
			piece, to.detach = keys.pass(piece)
		}
		if to.detach {
			time.AfterFunc(detachMax, func() { v.end(errDetached) })
		}
		select {
		case to.pieces <- piece:
		case <-to.over:
			if v.restore == nil {
				return
			}
		case <-v.ctx.Done():
			return
		}
		if err != nil || to.detach {
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

// interruptsMax is how many Ctrl-C an action is sent before this command ends.
const interruptsMax = 3

// forward sends signals on.
func (v *conversation) forward() {
	// Sending takes as long as the node is away. The user can end this all the same.
	names := make(chan string, cap(v.signals))
	defer close(names)
	go v.send(names)
	interrupts := 0
	for {
		var sig os.Signal
		select {
		case sig = <-v.signals:
		case <-v.ctx.Done():
			return
		}
		runs := v.newest().GetState() == rotav1.ActionState_ACTION_STATE_RUNNING
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
		select {
		case names <- signalNames[sig]:
		default: // as many wait already
		}
	}
}

// send sends signals to the action, one after the other.
func (v *conversation) send(names <-chan string) {
	for name := range names {
		err := v.c.Signal(v.ctx, v.newest().GetId(), name, false)
		if err != nil && v.ctx.Err() == nil && client.Detail(err).GetReason() != "ATTEMPT_ENDED" {
			v.a.say("%s", describe(err, v.a.settings.addr))
		}
	}
}

// signalNames are the names of the signals that are sent on.
var signalNames = map[os.Signal]string{
	syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT",
}

// resize gives the terminal of the action the size of this one. Of several changes, the last one
// to be sent has the size that this one has then.
func (v *conversation) resize() {
	if !v.flags.tty {
		return
	}
	go func() {
		v.sizing.Lock()
		defer v.sizing.Unlock()
		if size := terminalSize(os.Stdin); size != nil && v.ctx.Err() == nil {
			_ = v.c.ResizeTerminal(v.ctx, v.newest().Id, size) // the next change is another try
		}
	}()
}

// result is what became of an action that was followed: it has ended, or the user has left it.
func (v *conversation) result(act *rotav1.Action, err error) error {
	cause := context.Cause(v.ctx)
	v.close()
	switch {
	case errors.Is(cause, errDetached):
		v.a.say("detached: action %d goes on\nAttach to it again with: rota attach -i -t %d", v.newest().GetId(), v.newest().GetId())
		return nil
	case err == nil && v.sink.err != nil:
		return runFailed(v.sink.err)
	case err == nil:
		return v.a.runEnd(act)
	case v.own && errors.Is(cause, context.Canceled):
		return v.a.cancelRun(v.c, v.newest(), errInterrupted)
	case errors.Is(cause, context.Canceled):
		return &codeError{exitInterrupted, fmt.Errorf("interrupted: action %d goes on", v.newest().GetId())}
	case v.own && v.sink.err != nil:
		return v.a.cancelRun(v.c, v.newest(), &codeError{exitRota, v.sink.err})
	case v.sink.err != nil:
		return runFailed(v.sink.err)
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
	v.own = true
	defer a.tellWaiting(v.ctx, func(ctx context.Context) string { return actionWaitsFor(ctx, c, v.sink.queued.Load()) })()
	act, err := c.Run(v.ctx, spec, v.update)
	return v.result(act, err)
}
