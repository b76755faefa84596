package runtime

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containerd/ttrpc"

	supervisorv1 "rota/api/gen/supervisor/v1"

	"rota/agent/plan"
)

// session is the connection of one agent. Only the newest one counts: an agent
// that was replaced loses its connection, and learns it by that.
type session struct {
	id uint64
	// ends are those that the agent was not sent; bounded by the attempts there can be.
	ends *exitQueue
	done chan struct{} // closed when the stream has ended
}

// finish sends the ends that are left, if the agent takes them soon.
func (ss *session) finish() {
	ss.ends.close()
	select {
	case <-ss.done:
	case <-time.After(time.Second):
	}
}

// newServer returns the server of the supervisor's socket.
func newServer(s *supervisor) (*ttrpc.Server, error) {
	server, err := ttrpc.NewServer()
	if err != nil {
		return nil, fmt.Errorf("make the server of the supervisor's socket: %w", err)
	}
	server.RegisterService(serviceName, &ttrpc.ServiceDesc{Streams: map[string]ttrpc.Stream{
		methodAttach:      {Handler: s.serveAttach, StreamingServer: true},
		methodList:        {Handler: s.serveList, StreamingServer: true},
		methodStart:       method(s, s.serveStart, &supervisorv1.StartResponse{}),
		methodResize:      method(s, s.serveResize, &supervisorv1.ResizeResponse{}),
		methodFreeze:      {Handler: s.serveFreeze},
		methodKill:        {Handler: s.serveKill},
		methodForget:      method(s, s.serveForget, &supervisorv1.ForgetResponse{}),
		methodKeep:        method(s, s.serveKeep, &supervisorv1.KeepTrajectoriesResponse{}),
		methodMake:        {Handler: s.serveMake},
		methodWriteInput:  {Handler: s.serveWriteInput},
		methodSignal:      method(s, s.serveSignal, &supervisorv1.SignalResponse{}),
		methodTerminal:    method(s, s.serveTerminal, &supervisorv1.ResizeTerminalResponse{}),
		methodMeasure:     {Handler: s.serveMeasure},
		methodSetDeadline: method(s, s.serveSetDeadline, &supervisorv1.SetDeadlineResponse{}),
		methodStop:        method(s, s.serveStop, &supervisorv1.StopResponse{}),
	}})
	return server, nil
}

// method makes a method of a function whose answer says nothing but that it was served.
// To ttrpc it is a stream of one message: a method of its plain kind panics when a client
// sends more than that (ttrpc 1.2.10).
func method[Req any, P interface {
	*Req
	GetSession() uint64
}](s *supervisor, serve func(P) error, resp any) ttrpc.Stream {
	return ttrpc.Stream{Handler: func(_ context.Context, stream ttrpc.StreamServer) (any, error) {
		req := P(new(Req))
		if err := stream.RecvMsg(req); err != nil {
			return nil, err
		}
		return resp, s.request(req.GetSession(), func() error { return serve(req) })
	}}
}

var errReplaced = fmt.Errorf("%w: another agent has connected", ErrLost)

// request serves a request of the agent, one at a time, and none of an agent that was
// replaced: its successor has been told that the request did not happen.
func (s *supervisor) request(session uint64, serve func() error) error {
	s.serving.Lock()
	defer s.serving.Unlock()
	if !s.isCurrent(session) {
		return toWire(errReplaced)
	}
	return toWire(serve())
}

// serveAttach sends the ends of attempts for as long as the agent is the newest.
func (s *supervisor) serveAttach(ctx context.Context, stream ttrpc.StreamServer) (any, error) {
	req := new(supervisorv1.AttachRequest)
	if err := stream.RecvMsg(req); err != nil {
		return nil, err
	}
	if req.GetVersion() != protocolVersion {
		return nil, toWire(fmt.Errorf("%w: supervisor %d speaks version %d; it ends with its last attempt",
			ErrVersion, os.Getpid(), protocolVersion))
	}
	ss, self, err := s.attach()
	if err != nil {
		return nil, toWire(err)
	}
	defer close(ss.done)
	defer s.detach(ss)
	defer context.AfterFunc(ctx, ss.ends.close)()
	err = stream.SendMsg(&supervisorv1.AttachResponse{Supervisor: self})
	for err == nil {
		page := ss.ends.take()
		if len(page) == 0 {
			break
		}
		err = stream.SendMsg(&supervisorv1.AttachResponse{Exits: mapped(page, wireExit)})
	}
	s.log.Info("agent connection ended", "error", err)
	return nil, nil //nolint:nilnil // the end of the stream
}

func (s *supervisor) serveList(_ context.Context, stream ttrpc.StreamServer) (any, error) {
	req := new(supervisorv1.ListRequest)
	if err := stream.RecvMsg(req); err != nil {
		return nil, err
	}
	var running []plan.Running
	var ended []plan.Exit
	err := s.request(req.GetSession(), func() error {
		running, ended = s.list()
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = stream.SendMsg(wireRunning(running))
	for err == nil && len(ended) > 0 {
		n := min(len(ended), exitPage)
		err = stream.SendMsg(&supervisorv1.ListResponse{Ended: mapped(ended[:n], wireExit)})
		ended = ended[n:]
	}
	return nil, err
}

func (s *supervisor) serveStart(req *supervisorv1.StartRequest) error {
	return s.startAttempt(specOf(req.GetSpec()))
}

func (s *supervisor) serveResize(req *supervisorv1.ResizeRequest) error {
	return s.resizeAttempt(keyOf(req.GetKey()), cpusOf(req.GetCpus()))
}

// serveKill does not wait for other requests, as these may wait for a disk that hangs. So it may come
// before a start of the same attempt that is being served: the agent repeats a kill until the attempt has ended.
func (s *supervisor) serveKill(_ context.Context, stream ttrpc.StreamServer) (any, error) {
	req := new(supervisorv1.KillRequest)
	if err := stream.RecvMsg(req); err != nil {
		return nil, err
	}
	return new(supervisorv1.KillResponse), toWire(s.killAttempt(req.GetSession(), keyOf(req.GetKey()), plan.Reason(req.GetReason())))
}

func (s *supervisor) serveForget(req *supervisorv1.ForgetRequest) error {
	return s.forget(mapped(req.GetKeys(), keyOf))
}

func (s *supervisor) serveKeep(req *supervisorv1.KeepTrajectoriesRequest) error {
	s.isolation.owners.keep(req.GetOpen())
	return nil
}

func (s *supervisor) serveMake(_ context.Context, stream ttrpc.StreamServer) (any, error) {
	req := new(supervisorv1.MakeTrajectoryRequest)
	if err := stream.RecvMsg(req); err != nil {
		return nil, err
	}
	resp := new(supervisorv1.MakeTrajectoryResponse)
	err := s.request(req.GetSession(), func() error {
		resp.Running = s.runningIn(req.GetTrajectory())
		return s.isolation.owners.prepare(req.GetTrajectory())
	})
	return resp, err
}

// runningIn is how many attempts of a trajectory have started and not ended.
func (s *supervisor) runningIn(trajectory uint64) (running uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attempts {
		if a.ended == nil && a.spec.Trajectory == trajectory && !a.spec.Call {
			running++
		}
	}
	return running
}

// serveMeasure reads files of the kernel while other requests are served.
func (s *supervisor) serveMeasure(_ context.Context, stream ttrpc.StreamServer) (any, error) {
	req := new(supervisorv1.MeasureRequest)
	if err := stream.RecvMsg(req); err != nil {
		return nil, err
	}
	if err := s.request(req.GetSession(), func() error { return nil }); err != nil {
		return nil, err
	}
	return &supervisorv1.MeasureResponse{Uses: mapped(s.measure(req.GetTrajectory()), wireUse)}, nil
}

func (s *supervisor) serveSetDeadline(req *supervisorv1.SetDeadlineRequest) error {
	return s.setDeadline(req.GetBoottimeNs())
}

// serveStop begins the end of the supervisor, which waits for the answer to be sent.
func (s *supervisor) serveStop(*supervisorv1.StopRequest) error {
	s.beginStop("told to stop by the agent")
	return nil
}

// serveWriteInput writes to an attempt for as long as that may take, while other requests are
// served.
func (s *supervisor) serveWriteInput(ctx context.Context, stream ttrpc.StreamServer) (any, error) {
	req := new(supervisorv1.WriteInputRequest)
	if err := stream.RecvMsg(req); err != nil {
		return nil, err
	}
	if err := s.request(req.GetSession(), func() error { return nil }); err != nil {
		return nil, err
	}
	state, err := s.writeInput(ctx, keyOf(req.GetKey()), Input{
		Writer: req.GetWriter(), Offset: req.Offset, Data: req.GetData(), EOF: req.GetEof(), Wait: req.GetWait().AsDuration(),
	})
	return &supervisorv1.WriteInputResponse{Offset: state.Offset, Closed: state.Closed}, toWire(err)
}

// serveFreeze freezes an attempt for as long as that may take, while other requests are served.
func (s *supervisor) serveFreeze(_ context.Context, stream ttrpc.StreamServer) (any, error) {
	req := new(supervisorv1.FreezeRequest)
	if err := stream.RecvMsg(req); err != nil {
		return nil, err
	}
	return new(supervisorv1.FreezeResponse), s.freezeAttempt(req.GetSession(), keyOf(req.GetKey()), req.GetFrozen())
}

func (s *supervisor) serveSignal(req *supervisorv1.SignalRequest) error {
	return s.signal(keyOf(req.GetKey()), Signal{Number: int(req.GetSignal()), All: req.GetAll(), Request: req.GetRequestId()})
}

func (s *supervisor) serveTerminal(req *supervisorv1.ResizeTerminalRequest) error {
	size := terminalOf(req.GetSize())
	if size == nil {
		size = new(Terminal) // is refused
	}
	return s.resizeTerminal(keyOf(req.GetKey()), *size)
}
