package rpc_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// outputs serves the output of attempts like an agent: what is written so far,
// and the rest when it comes. Every third stream breaks, as if the agent were
// restarted.
type outputs struct {
	text  string
	ended chan struct{} // the attempt has written all
	calls atomic.Int32
}

func (o *outputs) ReadOutput(ctx context.Context, req *rotav1.ReadOutputRequest, stream *connect.ServerStream[rotav1.ReadOutputResponse]) error {
	call := o.calls.Add(1)
	if call == 1 { // the agent has not started the attempt yet
		return connect.NewError(connect.CodeNotFound, errors.New("no such attempt"))
	}
	for at := req.StdoutOffset; at < uint64(len(o.text)); at += 10 {
		end := min(at+10, uint64(len(o.text)))
		err := stream.Send(&rotav1.ReadOutputResponse{Chunk: &rotav1.OutputChunk{
			Stream: rotav1.OutputStream_OUTPUT_STREAM_STDOUT, Data: []byte(o.text[at:end]), Offset: at,
		}})
		if err != nil {
			return err
		}
		if call < 6 {
			return connect.NewError(connect.CodeUnavailable, errors.New("agent restarts"))
		}
	}
	select {
	case <-o.ended:
	case <-ctx.Done():
	}
	return nil
}

// run collects a RunAction stream.
func (w *world) run(req *rotav1.RunActionRequest) (output string, last *rotav1.Action, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	stream, err := w.actions().RunAction(ctx, req)
	if err != nil {
		return "", nil, err
	}
	defer stream.Close()
	for stream.Receive() {
		if chunk := stream.Msg().GetOutput(); chunk != nil {
			if uint64(len(output)) != chunk.Offset || chunk.Attempt != 1 {
				w.t.Errorf("after %d bytes comes %v", len(output), chunk)
			}
			output += string(chunk.Data)
			continue
		}
		if last != nil && client.Final(last.State) {
			w.t.Errorf("after the end comes %v", stream.Msg())
		}
		last = stream.Msg().GetAction()
	}
	return output, last, stream.Err()
}

func TestRunStreamsOutputOfAnAgentThatRestarts(t *testing.T) {
	w := newWorld(t)
	o := &outputs{text: strings.Repeat("0123456789", 20), ended: make(chan struct{})}
	a := w.agent("n1", o)
	go a.serve(t.Context(), func(as *rotav1.Assignment) *rotav1.ActionResult {
		for o.calls.Load() < 6 { // not before its output has been asked for often enough
			time.Sleep(time.Millisecond)
		}
		close(o.ended)
		return exited(0)
	})
	output, last, err := w.run(&rotav1.RunActionRequest{Action: spec("print")})
	if err != nil || output != o.text {
		t.Errorf("got %d of %d bytes, %v", len(output), len(o.text), err)
	}
	if last.GetState() != rotav1.ActionState_ACTION_STATE_SUCCEEDED || last.Node != "n1" {
		t.Errorf("the last action is %v", last)
	}
}

// lateBreak serves output like an agent that restarts just when the attempt has ended.
type lateBreak struct {
	ended chan struct{}
	begun sync.Once
	asked chan struct{} // closed when the output was asked for
	calls atomic.Int32
}

func (o *lateBreak) ReadOutput(ctx context.Context, req *rotav1.ReadOutputRequest, stream *connect.ServerStream[rotav1.ReadOutputResponse]) error {
	const text = "0123456789"
	until := uint64(len(text))
	if o.calls.Add(1) == 1 {
		until = 5
	}
	if req.StdoutOffset < until {
		err := stream.Send(&rotav1.ReadOutputResponse{Chunk: &rotav1.OutputChunk{
			Stream: rotav1.OutputStream_OUTPUT_STREAM_STDOUT, Data: []byte(text[req.StdoutOffset:until]), Offset: req.StdoutOffset,
		}})
		if err != nil {
			return err
		}
	}
	o.begun.Do(func() { close(o.asked) })
	if until < uint64(len(text)) {
		select {
		case <-o.ended:
		case <-ctx.Done():
		}
		return connect.NewError(connect.CodeUnavailable, errors.New("agent restarts"))
	}
	return nil
}

func TestRunStreamsTheRestOfAnAgentThatRestartsAtTheEnd(t *testing.T) {
	w := newWorld(t)
	o := &lateBreak{ended: make(chan struct{}), asked: make(chan struct{})}
	a := w.agent("n1", o)
	var id atomic.Uint64
	go a.serve(t.Context(), func(as *rotav1.Assignment) *rotav1.ActionResult {
		<-o.asked
		id.Store(as.ActionId)
		return exited(0)
	})
	go func() {
		defer close(o.ended)
		for id.Load() == 0 || !client.Final(w.get(id.Load()).State) {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	output, last, err := w.run(&rotav1.RunActionRequest{Action: spec("print")})
	if err != nil || output != "0123456789" || !client.Final(last.GetState()) {
		t.Errorf("got %q, %v, %v", output, last, err)
	}
}

func TestShortRunsNeverAskTheAgentForOutput(t *testing.T) {
	w := newWorld(t)
	// The agent serves no output at all: its address refuses connections.
	a := w.agent("n1", nil)
	go a.serve(t.Context(), func(as *rotav1.Assignment) *rotav1.ActionResult {
		r := exited(3)
		r.StdoutTail = []byte("hello " + as.Command.Argv[0])
		return r
	})
	output, last, err := w.run(&rotav1.RunActionRequest{Action: spec("world")})
	if err != nil || output != "hello world" {
		t.Errorf("output is %q, %v", output, err)
	}
	if last.GetState() != rotav1.ActionState_ACTION_STATE_FAILED || last.Result.ExitCode != 3 {
		t.Errorf("the last action is %v", last)
	}
}

// A run that was long enough to ask for its output and did not get all of it gets
// the rest from the result, if that has everything.
func TestRunFallsBackOnTheResult(t *testing.T) {
	const text = "0123456789 and what nobody read"
	for name, served := range map[string]*outputs{
		"nothing came":    nil,
		"a beginning did": {text: text[:10], ended: make(chan struct{})},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var a *fakeAgent
			if served == nil {
				a = w.agent("n1", nil)
			} else {
				a = w.agent("n1", served)
			}
			go a.serve(t.Context(), func(*rotav1.Assignment) *rotav1.ActionResult {
				time.Sleep(100 * time.Millisecond) // short runs never ask the agent
				if served != nil {
					for served.calls.Load() < 3 { // the first ones fail
						time.Sleep(time.Millisecond)
					}
					close(served.ended)
				}
				r := exited(0)
				r.StdoutTail = []byte(text)
				return r
			})
			output, _, err := w.run(&rotav1.RunActionRequest{Action: spec("print")})
			if err != nil || output != text {
				t.Errorf("output is %q, %v", output, err)
			}
		})
	}
}

func TestReadOutputSaysWhyThereIsNone(t *testing.T) {
	w := newWorld(t)
	read := func(req *rotav1.ReadActionOutputRequest) error {
		stream, err := w.actions().ReadActionOutput(t.Context(), req)
		if err != nil {
			return err
		}
		defer stream.Close()
		for stream.Receive() {
		}
		return stream.Err()
	}
	id := w.submit(spec("true"))
	if err := read(&rotav1.ReadActionOutputRequest{ActionId: id}); err != nil {
		t.Errorf("of a queued action: %v", err)
	}
	if err := read(&rotav1.ReadActionOutputRequest{ActionId: id, Attempt: 2}); client.Detail(err).GetReason() != "ATTEMPT_NOT_FOUND" {
		t.Errorf("of an attempt that was not made: %v", err)
	}
	if err := read(&rotav1.ReadActionOutputRequest{ActionId: 99}); client.Detail(err).GetReason() != "ACTION_NOT_FOUND" {
		t.Errorf("of an unknown action: %v", err)
	}
	a := w.agent("n1", nil)
	go a.serve(t.Context(), func(*rotav1.Assignment) *rotav1.ActionResult { return exited(0) })
	eventually(t, "the action ends", func() bool { return client.Final(w.get(id).State) })
	if err := read(&rotav1.ReadActionOutputRequest{ActionId: id}); client.Detail(err).GetReason() != "NODE_UNREACHABLE" {
		t.Errorf("of a node that does not answer: %v", err)
	}
}

func TestRunOfARefusedAction(t *testing.T) {
	w := newWorld(t)
	_, _, err := w.run(&rotav1.RunActionRequest{})
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "action.command is required") {
		t.Errorf("got %v", err)
	}
}
