package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// inputBytes is how much input one call carries, the most that one may.
const inputBytes = 64 << 10

// Input writes to the standard input of an attempt of an action that was submitted with stdin or
// tty. Its calls are repeated as all others are, and each byte arrives once. Several inputs may
// write to one action. One input is for one goroutine.
type Input struct {
	c   *Client
	req *rotav1.WriteActionInputRequest // without data
}

// Input returns the standard input of the attempt of an action that runs when it is first written
// to. Before that, calls fail with UNAVAILABLE once they have been repeated for RetryFor.
func (c *Client) Input(action uint64) *Input {
	return &Input{c: c, req: &rotav1.WriteActionInputRequest{
		ActionId: action, Writer: c.requestID(), Offset: new(uint64), Wait: durationpb.New(inputWait),
	}}
}

// inputWait is how long a server waits for room, the most that it does.
const inputWait = 5 * time.Second

// Write writes all of the data, however long the command takes to read it, or until the context
// ends. Errors: those of WriteActionInput.
func (i *Input) Write(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		n, _, err := i.call(ctx, data[:min(len(data), inputBytes)], false)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// Close ends the input: the command reads the end of its standard input. To a terminal it sends
// Ctrl-D. Errors: those of WriteActionInput.
func (i *Input) Close(ctx context.Context) error {
	for {
		if _, closed, err := i.call(ctx, nil, true); err != nil || closed {
			return err
		}
	}
}

func (i *Input) call(ctx context.Context, data []byte, eof bool) (n uint64, closed bool, err error) {
	req := proto.CloneOf(i.req)
	req.Data, req.Eof = data, eof
	resp, err := i.c.Streams.WriteActionInput(ctx, req)
	if err != nil {
		return 0, false, fmt.Errorf("write to action %d: %w", req.ActionId, err)
	}
	n = resp.Offset - *i.req.Offset
	if n > uint64(len(data)) {
		return 0, false, fmt.Errorf("write to action %d: the server took %d bytes of %d", req.ActionId, n, len(data))
	}
	// What was written to one attempt is not there in the next.
	i.req.Attempt, *i.req.Offset = resp.Attempt, resp.Offset
	return n, resp.Closed, nil
}

// Signal sends a signal such as "INT" to the process group of an action's command, or to all of
// its processes. It is sent once, however often the call is repeated.
func (c *Client) Signal(ctx context.Context, action uint64, signal string, all bool) error {
	_, err := c.Streams.SignalAction(ctx, &rotav1.SignalActionRequest{ActionId: action, Signal: signal, All: all, RequestId: c.requestID()})
	if err != nil {
		return fmt.Errorf("signal action %d: %w", action, err)
	}
	return nil
}

// ResizeTerminal changes the size of an action's terminal.
func (c *Client) ResizeTerminal(ctx context.Context, action uint64, size *rotav1.TerminalSize) error {
	_, err := c.Streams.ResizeActionTerminal(ctx, &rotav1.ResizeActionTerminalRequest{ActionId: action, Size: size})
	if err != nil {
		return fmt.Errorf("resize the terminal of action %d: %w", action, err)
	}
	return nil
}
