package agent

import (
	"context"
	"math"
	"net/http"

	"connectrpc.com/connect"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/intake"
	"rota/api/share"
	"rota/api/signals"
)

const (
	// streamRequestMax is the largest request: input, and where it goes.
	streamRequestMax = runtime.InputBytesMax + 4<<10
	// streamDecodingMax is what requests take in memory, all together, while they are decoded.
	streamDecodingMax = 16 << 20
	// inputCallsMax is how many calls write input at once: each holds it while it waits for room.
	// orderCallsMax is the same of signals and sizes, which wait for nothing and must get through
	// when commands do not read their input. Attempts share both as package share says: the last
	// quarter is for attempts that no call is about yet.
	inputCallsMax = 512
	orderCallsMax = 64
)

// streamService reaches attempts that run on this node for servers, which have checked who may.
type streamService struct {
	conn        func() runtime.Runtime
	incarnation func() uint64 // of the node, now
	// inputs and orders are the calls under way.
	inputs, orders *share.Slots[plan.Key]
}

var _ rotav1connect.StreamServiceHandler = (*streamService)(nil)

// newStreamHandler serves input, signals and terminals of attempts.
func newStreamHandler(a *agent) (path string, h http.Handler) {
	s := &streamService{conn: a.driver.connection, incarnation: a.journal.Incarnation,
		inputs: share.New[plan.Key](inputCallsMax), orders: share.New[plan.Key](orderCallsMax)}
	path, h = rotav1connect.NewStreamServiceHandler(s, codec.ForHandler(), intake.ForHandler(), connect.WithReadMaxBytes(streamRequestMax))
	return path, intake.Handler(h, intake.Limits{MessageBytes: streamRequestMax, Budget: intake.NewBudget(streamDecodingMax)})
}

// with makes one call of the supervisor about an attempt, if there is room for it among calls.
func (s *streamService) with(ctx context.Context, calls *share.Slots[plan.Key], action uint64, attempt uint32, do func(context.Context, runtime.Streams, plan.Key) error) error {
	if action == 0 || attempt == 0 {
		return refuse(connect.CodeInvalidArgument, "INVALID", "name an action and an attempt")
	}
	key := plan.Key{Action: action, Attempt: attempt, Incarnation: s.incarnation()}
	release, ok := calls.Take(key)
	if !ok {
		return refuse(connect.CodeResourceExhausted, "AGENT_BUSY", "too many calls write to this attempt, or to attempts of this node, at once; try again")
	}
	defer release()
	conn := s.conn()
	if conn == nil {
		return refuse(connect.CodeUnavailable, "AGENT_BUSY", "the supervisor of the node is being started; try again")
	}
	ctx, cancel := context.WithTimeout(ctx, runtime.InputWaitMax+callTimeout)
	defer cancel()
	return toldError(streamErrors, do(ctx, conn, key))
}

// streamErrors are what servers are told of errors of the supervisor.
var streamErrors = []knownError{
	{runtime.ErrNotRunning, connect.CodeNotFound, "ATTEMPT_NOT_RUNNING"},
	{runtime.ErrNoInput, connect.CodeFailedPrecondition, "NO_STREAM"},
	{runtime.ErrInputGap, connect.CodeOutOfRange, "INPUT_GAP"},
	{runtime.ErrInputClosed, connect.CodeFailedPrecondition, "INPUT_CLOSED"},
	{runtime.ErrInputBusy, connect.CodeResourceExhausted, "INPUT_BUSY"},
	{runtime.ErrTooMany, connect.CodeResourceExhausted, "TOO_MANY_WRITERS"},
	{runtime.ErrInvalidSpec, connect.CodeInvalidArgument, "INVALID"},
	{runtime.ErrVersion, connect.CodeFailedPrecondition, "SUPERVISOR_TOO_OLD"},
	{runtime.ErrLost, connect.CodeUnavailable, "AGENT_BUSY"},
	{runtime.ErrStopping, connect.CodeUnavailable, "AGENT_BUSY"},
}

// WriteActionInput implements rotav1connect.StreamServiceHandler.
func (s *streamService) WriteActionInput(ctx context.Context, req *rotav1.WriteActionInputRequest) (*rotav1.WriteActionInputResponse, error) {
	resp := &rotav1.WriteActionInputResponse{Attempt: req.GetAttempt()}
	wait := runtime.InputWaitMax
	if req.Wait != nil {
		wait = min(max(req.GetWait().AsDuration(), 0), wait)
	}
	err := s.with(ctx, s.inputs, req.GetActionId(), req.GetAttempt(), func(ctx context.Context, to runtime.Streams, key plan.Key) error {
		state, err := to.WriteInput(ctx, key, runtime.Input{
			Writer: req.GetWriter(), Offset: req.Offset, Data: req.GetData(), EOF: req.GetEof(), Wait: wait,
		})
		resp.Offset, resp.Closed = state.Offset, state.Closed
		return err
	})
	return resp, err
}

// SignalAction implements rotav1connect.StreamServiceHandler.
func (s *streamService) SignalAction(ctx context.Context, req *rotav1.SignalActionRequest) (*rotav1.SignalActionResponse, error) {
	number, err := signals.Parse(req.GetSignal())
	if err != nil {
		return nil, refuse(connect.CodeInvalidArgument, "INVALID", err.Error())
	}
	err = s.with(ctx, s.orders, req.GetActionId(), req.GetAttempt(), func(ctx context.Context, to runtime.Streams, key plan.Key) error {
		return to.Signal(ctx, key, runtime.Signal{Number: number, All: req.GetAll(), Request: req.GetRequestId()})
	})
	return &rotav1.SignalActionResponse{Attempt: req.GetAttempt()}, err
}

// ResizeActionTerminal implements rotav1connect.StreamServiceHandler.
func (s *streamService) ResizeActionTerminal(ctx context.Context, req *rotav1.ResizeActionTerminalRequest) (*rotav1.ResizeActionTerminalResponse, error) {
	err := s.with(ctx, s.orders, req.GetActionId(), req.GetAttempt(), func(ctx context.Context, to runtime.Streams, key plan.Key) error {
		return to.ResizeTerminal(ctx, key, terminal(req.GetSize()))
	})
	return &rotav1.ResizeActionTerminalResponse{Attempt: req.GetAttempt()}, err
}

// terminal makes sizes that are too large for its type into one that is refused.
func terminal(size *rotav1.TerminalSize) runtime.Terminal {
	return runtime.Terminal{
		Rows: uint16(min(size.GetRows(), math.MaxUint16)), Columns: uint16(min(size.GetColumns(), math.MaxUint16)),
	}
}
