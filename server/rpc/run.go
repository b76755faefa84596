package rpc

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

const (
	// outputDelay is how long an action runs before its node is asked for output.
	// Most end sooner, and their result has all they wrote.
	outputDelay = 10 * time.Millisecond
	// outputGrace is how long output may be silent after the end, until no more is waited for.
	outputGrace = 5 * time.Second
	// tailsWhole is the length of both tails together below which they are all
	// that was written: they share 4 KiB, and each may have half of it.
	tailsWhole = tailBytesMax / 2
)

// RunAction submits an action and follows it to its end.
func (s *Server) RunAction(ctx context.Context, req *rotav1.RunActionRequest, stream *connect.ServerStream[rotav1.RunActionResponse]) error {
	if err := firstOf(checkSpec(req.Action), noGang(req.Action)).in("action").err(); err != nil {
		return err
	}
	result, err := s.submit(ctx, &rotav1.SubmitActionsRequest{
		Namespace: req.Namespace, RequestId: req.RequestId, ExpireTime: req.ExpireTime,
		Actions: []*rotav1.ActionSpec{req.Action},
	})
	if err != nil {
		return err
	}
	if err := s.Machine.WaitApplied(ctx, result.Index); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &run{s: s, id: state.ActionID(result.FirstId), send: stream.Send, chunks: make(chan *rotav1.OutputChunk)}
	defer r.readers.Wait()
	defer cancel()
	return r.follow(ctx)
}

// run follows one action. Only follow's goroutine sends; readers of output hand
// it their chunks.
type run struct {
	s    *Server
	id   state.ActionID
	send func(*rotav1.RunActionResponse) error

	readers sync.WaitGroup
	chunks  chan *rotav1.OutputChunk
	// reader is the newest attempt's: closed when its output has ended; nil while
	// there is none.
	reader  chan struct{}
	attempt uint32 // of reader
	sent    uint64 // revision of the newest action sent
	// outputOf is the newest attempt of which output was sent, upTo how far that goes.
	outputOf uint32
	upTo     map[rotav1.OutputStream]uint64
}

func (r *run) follow(ctx context.Context) error {
	subscriber := r.s.Events.join(uint64(r.id))
	defer r.s.Events.leave(subscriber)
	delay := time.NewTimer(outputDelay)
	defer delay.Stop()
	for {
		row, _, err := r.s.action(r.id)
		if err != nil {
			return err
		}
		if row.State.Final() {
			return r.finish(ctx, row)
		}
		if err := r.sendAction(row); err != nil {
			return err
		}
		if row.State == state.ActionRunning && row.Attempt != r.attempt {
			delay.Reset(outputDelay)
		}
		if err := r.pump(ctx, subscriber, delay.C, row); err != nil {
			return err
		}
	}
}

// pump sends output until there is something new to see of the action.
func (r *run) pump(ctx context.Context, subscriber *subscriber, delay <-chan time.Time, row actionRow) error {
	for {
		select {
		case chunk := <-r.chunks:
			if err := r.sendOutput(chunk); err != nil {
				return err
			}
		case <-delay:
			if row.State == state.ActionRunning && row.Attempt != r.attempt {
				r.read(ctx, row.Attempt)
			}
		case <-subscriber.wake:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// read starts to read the output of an attempt.
func (r *run) read(ctx context.Context, attempt uint32) {
	done := make(chan struct{})
	r.reader, r.attempt = done, attempt
	o := &output{s: r.s, action: r.id, attempt: attempt, follow: true}
	r.readers.Go(func() {
		defer close(done)
		err := o.readAgain(ctx, func(chunk *rotav1.OutputChunk) error {
			select {
			case r.chunks <- chunk:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil && ctx.Err() == nil {
			r.s.Logger.Debug("output of an action is not complete", "action", r.id, "attempt", attempt, "error", err)
		}
	})
}

// finish sends what output there still is, and then the ended action.
func (r *run) finish(ctx context.Context, row actionRow) error {
	whole := wholeTails(row.Result)
	if row.Attempt != 0 && r.attempt != row.Attempt && !whole {
		r.read(ctx, row.Attempt)
	}
	if r.reader != nil {
		if err := r.drain(ctx); err != nil {
			return err
		}
	}
	if whole {
		if err := r.sendTails(row); err != nil {
			return err
		}
	}
	return r.sendAction(row)
}

// drain sends output until it ends, or is silent for the time of grace.
func (r *run) drain(ctx context.Context) error {
	grace := time.NewTimer(outputGrace)
	defer grace.Stop()
	for {
		select {
		case chunk := <-r.chunks:
			if err := r.sendOutput(chunk); err != nil {
				return err
			}
			grace.Reset(outputGrace)
		case <-r.reader:
			return nil
		case <-grace.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wholeTails reports whether the result has all the output. One that the
// cluster made up for a lost attempt has none of it.
func wholeTails(r *state.Result) bool {
	return r != nil && r.Reason != state.EndNodeLost && r.Reason != state.EndSupervisorLost &&
		len(r.Stdout)+len(r.Stderr) < tailsWhole
}

// sendTails sends output that is in the result as if it came from the node: what
// the node has not sent, which may be gone or not have answered.
func (r *run) sendTails(row actionRow) error {
	for _, chunk := range []*rotav1.OutputChunk{
		{Stream: rotav1.OutputStream_OUTPUT_STREAM_STDOUT, Data: row.Result.Stdout, Attempt: row.Attempt},
		{Stream: rotav1.OutputStream_OUTPUT_STREAM_STDERR, Data: row.Result.Stderr, Attempt: row.Attempt},
	} {
		if row.Attempt == r.outputOf {
			chunk.Offset = min(r.upTo[chunk.Stream], uint64(len(chunk.Data)))
			chunk.Data = chunk.Data[chunk.Offset:]
		}
		if len(chunk.Data) == 0 {
			continue
		}
		if err := r.sendOutput(chunk); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) sendOutput(chunk *rotav1.OutputChunk) error {
	if chunk.Attempt > r.outputOf {
		r.outputOf, r.upTo = chunk.Attempt, make(map[rotav1.OutputStream]uint64)
	}
	if chunk.Attempt == r.outputOf {
		r.upTo[chunk.Stream] = chunk.Offset + uint64(len(chunk.Data))
	}
	return r.send(&rotav1.RunActionResponse{Update: &rotav1.RunActionResponse_Output{Output: chunk}})
}

// sendAction sends the action if it has changed.
func (r *run) sendAction(row actionRow) error {
	if row.Revision <= r.sent {
		return nil
	}
	r.sent = row.Revision
	m, err := row.message()
	if err != nil {
		return err
	}
	return r.send(&rotav1.RunActionResponse{Update: &rotav1.RunActionResponse_Action{Action: m}})
}
