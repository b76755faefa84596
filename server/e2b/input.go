package e2b

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	"rota/api/gen/e2b/process"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/intake"
)

const (
	// inputBytesMax is what one call of the API writes.
	inputBytesMax = 64 << 10
	// queuedPause bounds the pause before an action that does not run yet is written to again.
	queuedPauseMin = 20 * time.Millisecond
	queuedPauseMax = time.Second
	// waitingBytesMax bounds the input that waits for processes to read it.
	waitingBytesMax = 64 << 20
)

// inputs has one writer at a time write to an action: a long input is several calls.
type inputs struct {
	// writer names this server, so that what it writes is counted apart from what others write.
	writer string
	// waiting has a unit for each byte that waits.
	waiting *fair
	mu      sync.Mutex
	locks   map[uint64]*inputLock
}

type inputLock struct {
	turn  chan struct{} // has one element while somebody writes
	users int
}

func newInputs() *inputs {
	return &inputs{writer: "e2b-" + rand.Text(), waiting: newFair(waitingBytesMax), locks: map[uint64]*inputLock{}}
}

// lock waits until nobody else writes to an action.
func (i *inputs) lock(ctx context.Context, action uint64) (unlock func(), err error) {
	i.mu.Lock()
	l := i.locks[action]
	if l == nil {
		l = &inputLock{turn: make(chan struct{}, 1)}
		i.locks[action] = l
	}
	l.users++
	i.mu.Unlock()
	leave := func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(i.locks, action)
		}
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// SendInput writes to the standard input or to the terminal of a process, all of it.
func (p processes) SendInput(ctx context.Context, req *process.SendInputRequest) (*process.SendInputResponse, error) {
	s := sandboxIn(ctx)
	a, err := s.find(ctx, req.Process)
	if err != nil {
		return nil, err
	}
	return &process.SendInputResponse{}, p.e.write(ctx, s, a, req.Input)
}

// StreamInput writes what comes in, in that order.
func (p processes) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*process.StreamInputResponse, error) {
	s := sandboxIn(ctx)
	var a *rotav1.Action
	for stream.Receive() {
		var err error
		switch event := stream.Msg().Event.(type) {
		case *process.StreamInputRequest_Start:
			a, err = s.find(ctx, event.Start.GetProcess())
		case *process.StreamInputRequest_Data:
			if a == nil {
				return nil, invalid("the first message must name the process")
			}
			err = p.e.write(ctx, s, a, event.Data.GetInput())
		}
		if err != nil {
			return nil, err
		}
	}
	return &process.StreamInputResponse{}, stream.Err()
}

// CloseStdin closes the standard input of a process.
func (p processes) CloseStdin(ctx context.Context, req *process.CloseStdinRequest) (*process.CloseStdinResponse, error) {
	s := sandboxIn(ctx)
	a, err := s.find(ctx, req.Process)
	if err != nil {
		return nil, err
	}
	if a.Spec.GetTty() != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errTerminal)
	}
	unlock, err := p.e.inputs.lock(ctx, a.Id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	_, err = p.e.writeOnce(ctx, s, &rotav1.WriteActionInputRequest{ActionId: a.Id, Writer: p.e.inputs.writer, Eof: true})
	return &process.CloseStdinResponse{}, err
}

// write writes all of an input. It first asks how far this server has come, so that each of its
// calls can be repeated.
func (e *E2B) write(ctx context.Context, s *sandbox, a *rotav1.Action, input *process.ProcessInput) error {
	data := input.GetStdin()
	if pty, ok := input.GetInput().(*process.ProcessInput_Pty); ok {
		data = pty.Pty
		if a.Spec.GetTty() == nil {
			return connect.NewError(connect.CodeFailedPrecondition, errNoTerminal)
		}
	}
	giveBack, ok := e.inputs.waiting.take(s.namespace, int64(len(data)))
	if !ok {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("too much input waits for processes of namespace %s: send more when they have read it", s.namespace))
	}
	defer giveBack()
	intake.Release(ctx) // a process may never read it, and others need the budget
	unlock, err := e.inputs.lock(ctx, a.Id)
	if err != nil {
		return err
	}
	defer unlock()
	at, err := e.writeOnce(ctx, s, &rotav1.WriteActionInputRequest{ActionId: a.Id, Writer: e.inputs.writer})
	for err == nil && len(data) > 0 {
		var upTo uint64
		upTo, err = e.writeOnce(ctx, s, &rotav1.WriteActionInputRequest{
			ActionId: a.Id, Writer: e.inputs.writer, Offset: &at, Data: data[:min(len(data), inputBytesMax)],
		})
		if err == nil {
			data, at = data[min(upTo-at, uint64(len(data))):], upTo
		}
	}
	return err
}

// writeOnce makes one call. An action that waits for cores is waited for, and so are those who
// write to it by other servers, and room for the call.
func (e *E2B) writeOnce(ctx context.Context, s *sandbox, req *rotav1.WriteActionInputRequest) (upTo uint64, err error) {
	for pause := queuedPauseMin; ; pause = min(2*pause, queuedPauseMax) {
		resp, err := s.streams.WriteActionInput(ctx, req)
		detail := codec.Detail(err)
		again := connect.CodeOf(err) == connect.CodeUnavailable || detail.GetReason() == "INPUT_BUSY" || isOverload(err)
		if err == nil || detail.GetRetryDelay() == nil || !again {
			return resp.GetOffset(), err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
