package runtime

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a supervisor refuses, and what can happen to a connection to it.
var (
	// ErrDuplicate: an attempt with this key runs, or has ended and was not
	// forgotten. Nothing was started.
	ErrDuplicate = errors.New("attempt is known already")
	// ErrDeadlinePassed: everything was killed because the lease ended; nothing
	// starts before SetDeadline names a later time.
	ErrDeadlinePassed = errors.New("deadline has passed; set a later one before starting anything")
	// ErrTooMany: too many attempts run or wait to be forgotten.
	ErrTooMany = errors.New("too many attempts; forget those whose ends were reported")
	// ErrInvalidSpec: the attempt cannot be described to the supervisor.
	ErrInvalidSpec = errors.New("invalid attempt")
	// ErrStopping: the supervisor is ending.
	ErrStopping = errors.New("supervisor is stopping; connect again")
	// ErrLost: the connection to the supervisor broke, or another agent has taken it
	// over. Whether the call had an effect is unknown; List after the next Dial says it.
	ErrLost = errors.New("supervisor connection lost")
	// ErrVersion: the running supervisor speaks another version of the protocol.
	ErrVersion = errors.New("supervisor speaks another protocol version")
	// ErrNotRunning: the attempt has not started yet, or has ended.
	ErrNotRunning = errors.New("the attempt does not run")
	// ErrNoInput: the attempt was started without standard input, or without a terminal.
	ErrNoInput = errors.New("the attempt was started without it")
	// ErrInputGap: input before this is missing.
	ErrInputGap = errors.New("input is missing before this")
	// ErrInputClosed: standard input was closed, by EOF or by the command.
	ErrInputClosed = errors.New("standard input is closed")
	// ErrInputBusy: others write to the same standard input.
	ErrInputBusy = errors.New("standard input is busy")
	// ErrJournal: the supervisor cannot write its journal.
	ErrJournal = errors.New("supervisor journal cannot be written")
)

// errorCodes are the errors that keep their identity across the socket.
var errorCodes = map[codes.Code]error{
	codes.AlreadyExists:      ErrDuplicate,
	codes.FailedPrecondition: ErrDeadlinePassed,
	codes.ResourceExhausted:  ErrTooMany,
	codes.InvalidArgument:    ErrInvalidSpec,
	codes.Unavailable:        ErrStopping,
	codes.Aborted:            ErrLost,
	codes.Unimplemented:      ErrVersion,
	codes.DataLoss:           ErrJournal,
	codeNotRunning:           ErrNotRunning,
	codeNoInput:              ErrNoInput,
	codeInputGap:             ErrInputGap,
	codeInputClosed:          ErrInputClosed,
	codeInputBusy:            ErrInputBusy,
}

// Codes of this protocol, beyond those of gRPC.
const (
	codeNotRunning codes.Code = 100 + iota
	codeNoInput
	codeInputGap
	codeInputClosed
	codeInputBusy
)

func toWire(err error) error {
	if err == nil {
		return nil
	}
	for code, known := range errorCodes {
		if errors.Is(err, known) {
			return status.Error(code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}

// remote is an error that came over the socket: its own text, its old identity.
type remote struct {
	text  string
	cause error
}

func (e *remote) Error() string { return e.text }
func (e *remote) Unwrap() error { return e.cause }

// fromWire returns the error of a call: that of its context, what the supervisor
// refused, or ErrLost.
func fromWire(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	refused, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if known := errorCodes[refused.Code()]; known != nil {
		return &remote{text: refused.Message(), cause: known}
	}
	return fmt.Errorf("supervisor: %s", refused.Message())
}
