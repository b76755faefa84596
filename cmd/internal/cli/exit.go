package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"rota/api/client"
)

// Exit codes. `rota run`, `exec`, `attach` and `turn run` pass on those of their command and use the
// ones from exitTurnLost on for failures of their own, as env(1) and timeout(1) do.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnavailable = 4
	exitTurnLost    = 123 // turn run: the turn was lost
	exitTimeout     = 124 // run: a time limit ended the action
	exitRota        = 125 // run: rota itself failed, or the action was lost
	exitCannotStart = 126 // run: the command could not be started
	exitSignal      = 128 // run: plus the signal that ended the command
	exitInterrupted = 130 // Ctrl-C
)

const exitCodesHelp = `Exit codes of every command except "rota run", "rota exec", "rota attach" and "rota turn run":

    0  it worked
    1  it failed, or a check did not hold (such as "rota operator state-hash")
    2  the command line or one of its values is wrong
    3  the named thing does not exist
    4  no server answers, there is no leader, or the cluster is full: try again
  130  interrupted

` + runExitCodesHelp + turnExitCodesHelp

const runExitCodesHelp = `"rota run", "rota exec" and "rota attach" exit with the code of the command, with 128 plus
the signal that ended the command, or with a code of their own:

  124  a time limit ended the action
  125  rota failed: no server, a refusal, a lost node, a canceled action
  126  the command could not be started
  130  interrupted: "rota run" and "rota exec" cancel the action, "rota attach" does not
`

const turnExitCodesHelp = `
"rota turn run" does the same, except for

  123  the turn was lost: another turn may have had the group; do the step again
  125  rota failed: no server, a refusal
  130  interrupted: the turn was given back
`

// codeError is an error that decides the exit code. With a nil error nothing is
// printed.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return &codeError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode maps an error to the exit code of the process.
func exitCode(err error) int {
	var coded *codeError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, new(*client.AddrError)): // trying again is no use
		return exitError
	case lostConnection(err):
		return exitUnavailable
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument:
		return exitUsage
	case connect.CodeNotFound:
		return exitNotFound
	case connect.CodeUnavailable, connect.CodeResourceExhausted, connect.CodeDeadlineExceeded:
		return exitUnavailable
	}
	return exitError
}

// describe turns an error into a message to the user: what is wrong, and what to do
// about it if that is known.
func describe(err error, addr string) string {
	var ce *connect.Error
	var unusable *client.AddrError
	switch {
	case errors.Is(err, context.Canceled) && !errors.As(err, new(*codeError)):
		return "interrupted"
	case errors.As(err, &unusable):
		return unusable.Error()
	case !errors.As(err, &ce):
		return err.Error()
	}
	if d := client.Detail(err); d.GetMessage() != "" {
		message := ownWords(d.GetReason(), d.GetMessage())
		if errors.Is(err, client.ErrUnknownOutcome) {
			return message + "\nAn earlier try may have been carried out: look before you repeat it"
		}
		return message
	}
	switch {
	case lostConnection(err):
		return fmt.Sprintf("lost the servers at %s: %s", addr, connectionText(ce))
	case ce.Code() == connect.CodeDeadlineExceeded && !connect.IsWireError(err):
		return fmt.Sprintf("no answer from %s in time; the outcome is unknown\n"+
			"Look at the cluster with: rota operator status", addr)
	}
	return strings.TrimSuffix(ce.Message(), ".")
}
