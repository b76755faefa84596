package rpc

import (
	"context"
	"math"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/signals"
	"rota/fsm/state"
)

const (
	// inputBytesMax is the most that one call writes to an action.
	inputBytesMax = 64 << 10
	// writerBytesMax is the longest name of a writer.
	writerBytesMax = 64
	// inputWaitMax is the longest that a call waits for room.
	inputWaitMax = 5 * time.Second
	// terminalMax is the most rows and columns of a terminal.
	terminalMax = 4096
	// reachMax is how long an agent is asked again that has not started an attempt yet, restarts
	// or cannot be reached.
	reachMax = 5 * time.Second
)

// WriteActionInput passes input on to the agent of the attempt's node.
func (s *Server) WriteActionInput(ctx context.Context, req *rotav1.WriteActionInputRequest) (*rotav1.WriteActionInputResponse, error) {
	if err := firstOf(
		requireID("action_id", req.ActionId),
		checkText("writer", req.Writer, writerBytesMax),
		checkDuration("wait", req.Wait),
	).err(); err != nil {
		return nil, err
	}
	switch {
	case len(req.Data) > inputBytesMax:
		return nil, wrong("data", "has %d bytes; at most %d are written at once: write the rest at its offset", len(req.Data), inputBytesMax).err()
	case req.GetOffset() > math.MaxInt64:
		return nil, wrong("offset", "must be less than 2^63").err()
	case req.Wait.AsDuration() > inputWaitMax:
		return nil, wrong("wait", "must be at most %s", inputWaitMax).err()
	}
	return reach(ctx, s, req.ActionId, &req.Attempt, req.Offset != nil, req, rotav1connect.StreamServiceClient.WriteActionInput)
}

// SignalAction passes a signal on to the agent of the attempt's node.
func (s *Server) SignalAction(ctx context.Context, req *rotav1.SignalActionRequest) (*rotav1.SignalActionResponse, error) {
	if err := firstOf(
		requireID("action_id", req.ActionId),
		checkText("request_id", req.RequestId, writerBytesMax),
	).err(); err != nil {
		return nil, err
	}
	if _, err := signals.Parse(req.Signal); err != nil {
		return nil, wrong("signal", "is wrong: %v", err).err()
	}
	return reach(ctx, s, req.ActionId, &req.Attempt, req.RequestId != "", req, rotav1connect.StreamServiceClient.SignalAction)
}

// ResizeActionTerminal passes a size on to the agent of the attempt's node.
func (s *Server) ResizeActionTerminal(ctx context.Context, req *rotav1.ResizeActionTerminalRequest) (*rotav1.ResizeActionTerminalResponse, error) {
	if err := requireID("action_id", req.ActionId).err(); err != nil {
		return nil, err
	}
	if req.Size == nil {
		return nil, wrong("size", "is required").err()
	}
	if err := checkTerminal("size", req.Size).err(); err != nil {
		return nil, err
	}
	return reach(ctx, s, req.ActionId, &req.Attempt, true, req, rotav1connect.StreamServiceClient.ResizeActionTerminal)
}

// checkTerminal checks the size of a terminal, if there is one.
func checkTerminal(path string, size *rotav1.TerminalSize) *violation {
	switch {
	case size == nil:
		return nil
	case hasUnknown(size):
		return wrong(path, "has fields that this server does not know: leave them out, or upgrade the servers")
	case size.Rows == 0 || size.Rows > terminalMax || size.Columns == 0 || size.Columns > terminalMax:
		return wrong(path, "must have 1 to %d rows and columns", terminalMax)
	}
	return nil
}

// reach calls the agent of the node on which an attempt runs. attempt is that of the request,
// and becomes that which runs. An agent that has not heard of the attempt yet is asked again, and
// one that cannot be reached too, if the call may be repeated.
func reach[Req, Resp any](ctx context.Context, s *Server, action uint64, attempt *uint32, again bool, req *Req,
	call func(rotav1connect.StreamServiceClient, context.Context, *Req) (*Resp, error),
) (*Resp, error) {
	if err := s.catchUpForCall(ctx, false); err != nil {
		return nil, err
	}
	asked := *attempt
	for pause, until := outputRetryMin, time.Now().Add(reachMax); ; pause = min(2*pause, outputRetryMax) {
		on, err := s.runsOn(state.ActionID(action), asked)
		if err != nil {
			return nil, err
		}
		*attempt = on.attempt
		resp, err := call(s.Streams(on.addr), ctx, req)
		if err == nil || ctx.Err() != nil {
			return resp, err
		}
		told, retry := on.told(action, err, again)
		if !retry || time.Now().After(until) {
			return nil, told
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// running is where an attempt runs.
type running struct {
	node, addr string
	attempt    uint32
}

// runsOn finds the attempt of an action that runs; asked is the number that it must have, 0 for
// any.
func (s *Server) runsOn(id state.ActionID, asked uint32) (on running, err error) {
	s.Machine.View(func(st *state.State) {
		a := st.Action(id)
		switch {
		case a == nil:
			err = actionNotFound(st, id)
			return
		case asked > a.Attempt:
			err = notFound("ATTEMPT_NOT_FOUND", "action %d has had %d attempts: ask for one of them", id, a.Attempt)
			return
		case a.State.Final() || asked > 0 && asked < a.Attempt:
			err = failed(connect.CodeFailedPrecondition, "ATTEMPT_ENDED", "action %d or its attempt has ended: there is nothing to write to or to signal", id)
			return
		case a.State != state.ActionRunning:
			err = unavailable(time.Second, "ACTION_QUEUED", "action %d is in the queue; try again once it runs", id)
			return
		}
		n := st.Node(a.Node)
		if n == nil || n.State != state.NodeUp {
			err = unavailable(time.Second, "NODE_DOWN", "the node of action %d is down; try again when it is back, or the action has ended", id)
			return
		}
		on = running{n.Name, n.Address, a.Attempt}
	})
	return on, err
}

// told is what a client is told of an error of the agent, and whether the agent is to be asked
// again first.
func (on running) told(action uint64, err error, again bool) (told error, retry bool) {
	detail := codec.Detail(err)
	switch {
	case detail == nil && connect.CodeOf(err) == connect.CodeUnimplemented:
		return failed(connect.CodeFailedPrecondition, "AGENT_TOO_OLD", "the agent of node %s is of a release that cannot reach what runs: upgrade it", on.node), false
	case detail == nil:
		return unavailable(time.Second, "NODE_UNREACHABLE", "node %s, on which action %d runs, cannot be reached at %s: %v", on.node, action, on.addr, err), again
	}
	switch detail.Reason {
	case "ATTEMPT_NOT_RUNNING": // it has not started yet, or its end is not reported yet
		return unavailable(time.Second, detail.Reason, "attempt %d of action %d is about to start or has just ended on node %s", on.attempt, action, on.node), true
	case "AGENT_BUSY", "INPUT_BUSY":
		f := failed(connect.CodeOf(err), detail.Reason, "%s", detail.Message)
		f.retry = time.Second
		return f, again && detail.Reason == "AGENT_BUSY"
	case "NO_STREAM":
		return failed(connect.CodeFailedPrecondition, detail.Reason,
			"action %d was submitted without it: set stdin to write to it, or tty for a terminal", action), false
	}
	return failed(connect.CodeOf(err), detail.Reason, "%s", detail.Message), false
}
