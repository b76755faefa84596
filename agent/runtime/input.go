package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	// InputBytesMax is the most that one call of WriteInput writes.
	InputBytesMax = 64 << 10
	// InputWaitMax is the longest that one call of WriteInput waits for room.
	InputWaitMax = 5 * time.Second
	// WriterBytesMax is the longest name of a writer, and of a request.
	WriterBytesMax = 64
	// writersMax is how many writers one attempt remembers, and writerKeep how long it does after
	// their last call. The one that has been silent for longest makes room.
	writersMax = 1024
	writerKeep = time.Hour
	// inputCallsMax is how many calls may wait to write to one attempt.
	inputCallsMax = 8
	// endOfTransmission is Ctrl-D, which a terminal takes for the end of its input.
	endOfTransmission = 4
)

// Input is something to write to the standard input of an attempt.
type Input struct {
	// Writer names who writes. Each has an offset of its own.
	Writer string
	// Offset is how many bytes the writer has written before; nil: whatever that is.
	Offset *uint64
	Data   []byte
	// EOF closes the input after the data, for all writers.
	EOF bool
	// Wait is how long to wait for room, at most InputWaitMax.
	Wait time.Duration
}

func (in *Input) validate() error {
	switch {
	case len(in.Data) > InputBytesMax:
		return fmt.Errorf("%w: %d bytes of input at once, at most %d: write the rest at its offset", ErrInvalidSpec, len(in.Data), InputBytesMax)
	case len(in.Writer) > WriterBytesMax:
		return fmt.Errorf("%w: the name of a writer has %d bytes, at most %d", ErrInvalidSpec, len(in.Writer), WriterBytesMax)
	case in.Wait < 0:
		return fmt.Errorf("%w: a wait of %s is negative", ErrInvalidSpec, in.Wait)
	}
	return nil
}

// InputState is how far a writer has come.
type InputState struct {
	Offset uint64 // what the writer has written
	Closed bool   // by EOF
}

// deadlineWriter is the far end of a pipe, or of a terminal.
type deadlineWriter interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

// input is the standard input of an attempt. The supervisor holds it, so that it outlives the
// agent. What the command has not read is in the pipe and nowhere else: a writer whose data
// does not fit waits, and goes on where it was.
type input struct {
	to       deadlineWriter
	terminal bool
	// calls are those under way. turn is held by the one that writes.
	calls, turn chan struct{}

	// Of the one that has the turn:
	writers map[string]*inputWriter
	closed  bool
	midLine bool // what was written last is no end of a line
	ends    int  // characters that still have to say to a terminal that nothing more comes
	now     func() time.Time
}

// inputWriter is one that has written.
type inputWriter struct {
	written uint64
	at      time.Time // of the last call
}

func newInput(to deadlineWriter, terminal bool) *input {
	return &input{to: to, terminal: terminal, writers: map[string]*inputWriter{}, now: time.Now,
		calls: make(chan struct{}, inputCallsMax), turn: make(chan struct{}, 1)}
}

// write writes what is new of the data, as far as there is room for it within the wait.
// Errors: ErrInputBusy, ErrInputGap, ErrInputClosed, ErrNotRunning, ErrTooMany.
func (n *input) write(ctx context.Context, in Input) (InputState, error) {
	until := time.Now().Add(min(in.Wait, InputWaitMax))
	select {
	case n.calls <- struct{}{}:
		defer func() { <-n.calls }()
	default:
		return InputState{}, fmt.Errorf("%w: %d calls write to it at this moment", ErrInputBusy, inputCallsMax)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	default:
		select {
		case n.turn <- struct{}{}:
			defer func() { <-n.turn }()
		case <-ctx.Done():
			return InputState{}, fmt.Errorf("%w: another call writes to it", ErrInputBusy)
		}
	}
	return n.writeInTurn(in, until)
}

func (n *input) writeInTurn(in Input, until time.Time) (InputState, error) {
	w := n.writers[in.Writer]
	if w == nil {
		if !n.roomForWriter() {
			return InputState{}, fmt.Errorf("%w: %d writers have written to the attempt within %s", ErrTooMany, writersMax, writerKeep)
		}
		w = &inputWriter{}
	}
	data := in.Data
	if in.Offset != nil {
		if *in.Offset > w.written {
			return InputState{}, fmt.Errorf("%w: it has %d bytes of writer %q, and these begin at %d", ErrInputGap, w.written, in.Writer, *in.Offset)
		}
		data = data[min(w.written-*in.Offset, uint64(len(data))):]
	}
	w.at = n.now()
	switch {
	case len(data) > 0 && n.closed:
		return InputState{}, fmt.Errorf("%w: it was closed before", ErrInputClosed)
	case len(data) > 0:
		n.writers[in.Writer] = w
		count, err := n.put(data, until)
		if w.written += uint64(count); count > 0 {
			n.midLine, n.ends = !slices.Contains(lineEnds, data[count-1]), 0
		}
		if err != nil {
			return InputState{}, err
		}
		if count < len(data) {
			return InputState{Offset: w.written}, nil
		}
	}
	if in.EOF && !n.closed {
		if ended, err := n.end(until); err != nil || !ended {
			return InputState{Offset: w.written}, err
		}
	}
	return InputState{Offset: w.written, Closed: n.closed}, nil
}

// roomForWriter forgets the writer that has been silent for longest, if there are too many. What
// it repeats after that would be written again, so that it must have been silent for long.
func (n *input) roomForWriter() bool {
	if len(n.writers) < writersMax {
		return true
	}
	oldest := ""
	for name, w := range n.writers {
		if o := n.writers[oldest]; o == nil || w.at.Before(o.at) {
			oldest = name
		}
	}
	if n.now().Sub(n.writers[oldest].at) < writerKeep {
		return false
	}
	delete(n.writers, oldest)
	return true
}

// lineEnds end what a terminal hands over at once: a line, or a part of one.
var lineEnds = []byte{'\n', '\r', endOfTransmission}

// end closes the input. A terminal stays open: it is told that nothing more comes. The first
// character that says so hands over the line that was begun, if one was; only the next one ends.
func (n *input) end(until time.Time) (ended bool, err error) {
	if n.terminal {
		if n.ends == 0 {
			if n.ends = 1; n.midLine {
				n.ends = 2
			}
		}
		count, err := n.put([]byte{endOfTransmission, endOfTransmission}[:n.ends], until)
		n.ends -= count
		n.closed = n.ends == 0
		return n.closed, err
	}
	n.closed = true
	_ = n.to.Close() // a pipe has nothing to flush
	return true, nil
}

// put writes as much as there is room for until then. What is at hand is tried at least once.
func (n *input) put(data []byte, until time.Time) (count int, err error) {
	// The poller refuses to write at all once a deadline has passed.
	if least := time.Now().Add(time.Millisecond); until.Before(least) {
		until = least
	}
	if err := n.to.SetWriteDeadline(until); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	count, err = n.to.Write(data)
	switch {
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
		return count, nil
	case errors.Is(err, os.ErrClosed), errors.Is(err, syscall.EIO):
		return count, fmt.Errorf("%w: it ended while it was written to", ErrNotRunning)
	case errors.Is(err, syscall.EPIPE):
		return count, fmt.Errorf("%w: the command has closed it", ErrInputClosed)
	}
	return count, fmt.Errorf("write to standard input: %w", err)
}
