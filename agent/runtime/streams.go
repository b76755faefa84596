package runtime

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"rota/agent/plan"
	"rota/api/signals"
)

// Terminal is the size of a terminal, in characters.
type Terminal struct{ Rows, Columns uint16 }

// Signal is one to send to an attempt.
type Signal struct {
	Number int
	// All: to every process of the attempt, not only to the group of its command.
	All bool
	// Request names the call: one that is repeated is not carried out again. Empty: it is.
	Request string
}

// Streams is what a Runtime does with the standard input, the terminal and the processes of
// attempts that run. An attempt that does not run, or not yet, is ErrNotRunning. A supervisor
// of an earlier release answers with ErrVersion.
type Streams interface {
	// WriteInput writes to the standard input of an attempt. Errors: ErrNoInput, ErrInputBusy,
	// ErrInputGap, ErrInputClosed, ErrTooMany: nothing was written, or nothing more.
	WriteInput(ctx context.Context, key plan.Key, in Input) (InputState, error)
	// Signal sends a signal to the processes of an attempt.
	Signal(ctx context.Context, key plan.Key, sig Signal) error
	// ResizeTerminal changes the size of the terminal of an attempt. Errors: ErrNoInput.
	ResizeTerminal(ctx context.Context, key plan.Key, size Terminal) error
}

// signalsKept is how many requests for signals an attempt remembers.
const signalsKept = 64

// reach is how clients reach an attempt that runs.
type reach struct {
	group func(syscall.Signal) error // sends one to the process group of its command
	box   box
	stdio *stdio
	input *input // nil: nothing to write to

	requests []string // for signals, the oldest first. Guarded by the supervisor's serving.
}

// reachable notes how an attempt is reached, once it runs.
func (s *supervisor) reachable(a *attempt, r *reach) {
	if r.stdio.far != nil {
		r.input = newInput(r.stdio.far, r.stdio.terminal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.reach = r
}

// unreachable notes that an attempt cannot be reached any more.
func (s *supervisor) unreachable(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.reach = nil
}

// reachOf returns how an attempt is reached.
func (s *supervisor) reachOf(k plan.Key) (*reach, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.attempts[k]; a != nil && a.reach != nil {
		return a.reach, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNotRunning, k)
}

// writeInput writes to the input of an attempt. It may wait, so that it holds nothing of the
// supervisor's.
func (s *supervisor) writeInput(ctx context.Context, k plan.Key, in Input) (InputState, error) {
	if err := in.validate(); err != nil {
		return InputState{}, err
	}
	r, err := s.reachOf(k)
	if err != nil {
		return InputState{}, err
	}
	if r.input == nil {
		return InputState{}, fmt.Errorf("%w: %s", ErrNoInput, k)
	}
	return r.input.write(ctx, in)
}

// signal sends a signal once for each request.
func (s *supervisor) signal(k plan.Key, sig Signal) error {
	number := syscall.Signal(sig.Number)
	switch {
	case !signals.Allowed(sig.Number):
		return fmt.Errorf("%w: signal %d may not be sent", ErrInvalidSpec, sig.Number)
	case len(sig.Request) > WriterBytesMax:
		return fmt.Errorf("%w: the ID of a request has %d bytes, at most %d", ErrInvalidSpec, len(sig.Request), WriterBytesMax)
	}
	r, err := s.reachOf(k)
	if err != nil {
		return err
	}
	if sig.Request != "" && slices.Contains(r.requests, sig.Request) {
		return nil
	}
	if sig.All {
		r.box.signal(number, s.frozen(k))
	} else if err := r.send(number); err != nil {
		return fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	if sig.Request != "" {
		r.requests = append(r.requests, sig.Request)
		r.requests = r.requests[max(0, len(r.requests)-signalsKept):]
	}
	return nil
}

func (r *reach) send(sig syscall.Signal) error {
	if r.stdio.terminal && slices.Contains(interrupts, sig) {
		return r.stdio.interrupt(sig)
	}
	return r.group(sig)
}

// frozen reports whether an attempt is frozen, or about to be, on order of the agent.
func (s *supervisor) frozen(k plan.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempts[k]
	return a != nil && (a.frozen || a.freezing)
}

// terminalMax is the most rows and columns that a terminal may have.
const terminalMax = 4096

func (t Terminal) validate() error {
	if t.Rows == 0 || t.Columns == 0 || t.Rows > terminalMax || t.Columns > terminalMax {
		return fmt.Errorf("%w: a terminal of %d rows and %d columns; 1 to %d of each", ErrInvalidSpec, t.Rows, t.Columns, terminalMax)
	}
	return nil
}

func (s *supervisor) resizeTerminal(k plan.Key, size Terminal) error {
	if err := size.validate(); err != nil {
		return err
	}
	r, err := s.reachOf(k)
	if err != nil {
		return err
	}
	if !r.stdio.terminal {
		return fmt.Errorf("%w: %s", ErrNoInput, k)
	}
	return r.stdio.resize(size)
}
