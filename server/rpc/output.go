package rpc

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/backoff"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// outputRetry bounds the pause before the agent is asked again for output that
// it does not have yet, or while it cannot be reached.
const (
	outputRetryMin = 10 * time.Millisecond
	outputRetryMax = time.Second
)

// noTimes is the reason of an error: output has no times.
const noTimes = "OUTPUT_HAS_NO_TIMES"

// ReadActionOutput passes on what the node keeps of an attempt's output.
func (s *Server) ReadActionOutput(ctx context.Context, req *rotav1.ReadActionOutputRequest, stream *connect.ServerStream[rotav1.ReadActionOutputResponse]) error {
	if err := requireID("action_id", req.ActionId).err(); err != nil {
		return err
	}
	if req.Since != nil && req.Since.CheckValid() != nil {
		return wrong("since", "is no time").err()
	}
	if err := s.catchUp(ctx, false); err != nil {
		return err
	}
	attempt, err := s.attemptToRead(ctx, req)
	if err != nil || attempt == 0 {
		return err
	}
	o := &output{s: s, action: state.ActionID(req.ActionId), attempt: attempt, follow: req.Follow,
		stdout: req.StdoutOffset, stderr: req.StderrOffset, since: req.Since, times: req.Times || req.Since != nil}
	return o.read(ctx, func(chunk *rotav1.OutputChunk) error {
		return stream.Send(&rotav1.ReadActionOutputResponse{Chunk: chunk})
	})
}

// attemptToRead returns the number of the attempt that is asked for; 0 if there
// is none and will be none. A follower waits for the first.
func (s *Server) attemptToRead(ctx context.Context, req *rotav1.ReadActionOutputRequest) (uint32, error) {
	subscriber := s.Events.join(req.ActionId)
	defer s.Events.leave(subscriber)
	for {
		row, _, err := s.action(state.ActionID(req.ActionId))
		if err != nil {
			return 0, err
		}
		switch {
		case req.Attempt > row.Attempt:
			return 0, notFound("ATTEMPT_NOT_FOUND", "action %d has had %d attempts: ask for one of them", req.ActionId, row.Attempt)
		case req.Attempt > 0:
			return req.Attempt, nil
		case row.Attempt > 0 || row.State.Final() || !req.Follow:
			return row.Attempt, nil
		}
		select {
		case <-subscriber.wake:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// output reads what one attempt writes, from its node.
type output struct {
	s       *Server
	action  state.ActionID
	attempt uint32
	follow  bool
	// Where to go on in each stream.
	stdout, stderr uint64
	since          *timestamppb.Timestamp // nil: from the beginning
	times          bool
}

// read passes output on until its end. While the attempt lives, an agent that
// has not heard of it yet, restarts or cannot be reached is asked again.
func (o *output) read(ctx context.Context, send func(*rotav1.OutputChunk) error) error {
	pause := outputRetryMin
	for {
		before := o.stdout + o.stderr
		source, live, err := o.source()
		if err != nil {
			return err
		}
		if !source.up && !live {
			return o.gone(source, nil)
		}
		err = o.stream(ctx, source, send)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		var sending *sendError
		if errors.As(err, &sending) {
			return sending.err
		}
		if detail := codec.Detail(err); detail.GetReason() == noTimes {
			return failed(connect.CodeFailedPrecondition, noTimes, "%s", detail.Message)
		}
		if !live || !o.follow {
			return o.gone(source, err)
		}
		if o.stdout+o.stderr > before {
			pause = outputRetryMin
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, outputRetryMax)
	}
}

// readAgain is read for a caller that nobody tells to ask again: when the attempt has ended, and its
// agent cannot be reached or restarts, the agent is asked again until ctx is done.
func (o *output) readAgain(ctx context.Context, send func(*rotav1.OutputChunk) error) error {
	for {
		err := o.read(ctx, send)
		var f *failure
		if ctx.Err() != nil || !errors.As(err, &f) || f.retry == 0 {
			return err
		}
		if backoff.Sleep(ctx, f.retry) != nil {
			return err
		}
	}
}

// source is the node of an attempt.
type source struct {
	node, addr string
	up         bool
}

// source finds the node that has the output, and whether the attempt lives.
func (o *output) source() (src source, live bool, err error) {
	o.s.Machine.View(func(st *state.State) {
		a := st.Action(o.action)
		if a == nil {
			err = actionNotFound(st, o.action)
			return
		}
		n := st.Node(a.Node)
		if a.Attempt != o.attempt || n == nil {
			err = notFound("OUTPUT_GONE", "the output of attempt %d of action %d is on a node that the cluster no longer knows of: only the newest attempt's can be read", o.attempt, o.action)
			return
		}
		src = source{n.Name, n.Address, n.State == state.NodeUp}
		live = a.State == state.ActionRunning
	})
	return src, live, err
}

// sendError is a failure of the caller's stream, not of the agent's.
type sendError struct{ err error }

func (e *sendError) Error() string { return e.err.Error() }

// stream passes on one stream of the agent.
func (o *output) stream(ctx context.Context, src source, send func(*rotav1.OutputChunk) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := o.s.Output(src.addr).ReadOutput(ctx, &rotav1.ReadOutputRequest{
		ActionId: uint64(o.action), Attempt: o.attempt, Follow: o.follow,
		StdoutOffset: o.stdout, StderrOffset: o.stderr, Since: o.since, Times: o.times,
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		chunk := stream.Msg().Chunk
		if chunk == nil {
			continue
		}
		if o.times && chunk.Time == nil {
			return &sendError{failed(connect.CodeFailedPrecondition, noTimes,
				"the agent of node %s is of an earlier release and keeps no times of output: read it without since and times, or upgrade the agent", src.node)}
		}
		chunk.Attempt = o.attempt
		if err := send(chunk); err != nil {
			return &sendError{err}
		}
		end := chunk.Offset + uint64(len(chunk.Data))
		if chunk.Stream == rotav1.OutputStream_OUTPUT_STREAM_STDERR {
			o.stderr = end
		} else {
			o.stdout = end
		}
	}
	return stream.Err()
}

// gone says why output of an attempt that has ended cannot be read.
func (o *output) gone(src source, err error) error {
	if !src.up {
		return failed(connect.CodeUnavailable, "NODE_DOWN", "node %s, which has the output of action %d, is down: GetAction has the last 4 KiB of it", src.node, o.action)
	}
	if connect.CodeOf(err) == connect.CodeNotFound {
		return notFound("OUTPUT_GONE", "node %s no longer keeps the output of attempt %d of action %d: GetAction has the last 4 KiB of it", src.node, o.attempt, o.action)
	}
	if detail := codec.Detail(err); detail.GetReason() == "AGENT_BUSY" {
		return unavailable(time.Second, detail.Reason, "node %s, which has the output of action %d: %s", src.node, o.action, detail.Message)
	}
	return unavailable(time.Second, "NODE_UNREACHABLE", "node %s, which has the output of action %d, cannot be reached at %s: %v", src.node, o.action, src.addr, err)
}
