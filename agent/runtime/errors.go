package runtime

import (
	"errors"
	"fmt"
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
	// ErrLost: the connection to the supervisor broke. Whether the call had an
	// effect is unknown; List after the next Dial says it.
	ErrLost = errors.New("supervisor connection lost")
	// ErrVersion: the running supervisor speaks another version of the protocol.
	ErrVersion = errors.New("supervisor speaks another protocol version")
	// ErrJournal: the supervisor cannot write its journal.
	ErrJournal = errors.New("supervisor journal cannot be written")
)

// errorCodes are the errors that keep their identity across the socket.
var errorCodes = map[string]error{
	"duplicate":       ErrDuplicate,
	"deadline_passed": ErrDeadlinePassed,
	"too_many":        ErrTooMany,
	"invalid_spec":    ErrInvalidSpec,
	"stopping":        ErrStopping,
	"version":         ErrVersion,
	"journal":         ErrJournal,
}

// remoteError is an error as it travels.
type remoteError struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

func toRemote(err error) *remoteError {
	if err == nil {
		return nil
	}
	for code, known := range errorCodes {
		if errors.Is(err, known) {
			return &remoteError{Code: code, Message: err.Error()}
		}
	}
	return &remoteError{Message: err.Error()}
}

// remote is an error that came over the socket: its own text, its old identity.
type remote struct {
	text  string
	cause error
}

func (e *remote) Error() string { return e.text }
func (e *remote) Unwrap() error { return e.cause }

func fromRemote(r *remoteError) error {
	if r == nil {
		return nil
	}
	if known, ok := errorCodes[r.Code]; ok {
		return &remote{text: r.Message, cause: known}
	}
	return fmt.Errorf("supervisor: %s", r.Message)
}
