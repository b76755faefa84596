package e2b

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/gen/e2b/process"
	rotav1 "rota/api/gen/rota/v1"
)

// actionsPage is how many actions are read at once when one of a sandbox is looked for.
const actionsPage = 1000

// processes is the service of that name. A process is an action of the sandbox.
type processes struct{ e *E2B }

// pidOf is the number of an action as a process. The IDs of actions have more bits; two live
// actions of a sandbox with the same lower ones would have to be 2^32 actions apart.
func pidOf(action uint64) uint32 { return uint32(action) }

// Start submits an action and follows it. The action goes on when the caller leaves; when the
// time of the call is over, it is canceled.
func (p processes) Start(ctx context.Context, req *process.StartRequest, stream *connect.ServerStream[process.StartResponse]) error {
	s := sandboxIn(ctx)
	spec, err := s.actionSpec(ctx, req)
	if err != nil {
		return err
	}
	submission := &rotav1.RunActionRequest{RequestId: "e2b-" + rand.Text(), Namespace: s.namespace, Action: spec}
	f := &follower{sandbox: s, tty: spec.Tty != nil, keepalive: keepaliveOf(ctx), send: func(event *process.ProcessEvent) error {
		return stream.Send(&process.StartResponse{Event: event})
	}}
	for p := persist(); ; {
		// The request ID makes one action of all tries.
		if err = f.run(ctx, submission); f.action.Load() != 0 || !p.again(ctx, err) {
			break
		}
	}
	if id := f.action.Load(); id != 0 && ctx.Err() == context.DeadlineExceeded {
		s.cancel(ctx, id)
	}
	return err
}

// actionSpec is what a request becomes.
func (s *sandbox) actionSpec(ctx context.Context, req *process.StartRequest) (*rotav1.ActionSpec, error) {
	c := req.Process
	if c.GetCmd() == "" {
		return nil, invalid("the process has no cmd")
	}
	dir, err := workDir(c.GetCwd())
	if err != nil {
		return nil, err
	}
	spec := &rotav1.ActionSpec{
		Name: req.GetTag(), TrajectoryId: s.id,
		Command:   &rotav1.Command{Argv: append([]string{c.Cmd}, c.Args...), Env: c.Envs, Dir: dir},
		Resources: &rotav1.Resources{Cores: &s.template.Cores, MaxCores: s.template.MaxCores},
	}
	switch size := req.GetPty().GetSize(); {
	case req.Pty != nil:
		spec.Tty = &rotav1.TerminalSize{Rows: size.GetRows(), Columns: size.GetCols()}
	case req.Stdin == nil || *req.Stdin:
		spec.Stdin = true
	}
	// A server that stops does not see the end of the call, so the node sees to it, too.
	if deadline, ok := ctx.Deadline(); ok {
		spec.RunTimeout = durationpb.New(min(max(time.Until(deadline), time.Millisecond), timeoutMax))
	}
	return spec, nil
}

// cancel ends an action after the time of a call is over.
func (s *sandbox) cancel(ctx context.Context, action uint64) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	_, _ = s.actions.CancelActions(ctx, &rotav1.CancelActionsRequest{Ids: []uint64{action}}) // its run timeout ends it otherwise
}

// Connect follows an action from the beginning of its output. The end of the call does not end
// the action.
func (p processes) Connect(ctx context.Context, req *process.ConnectRequest, stream *connect.ServerStream[process.ConnectResponse]) error {
	s := sandboxIn(ctx)
	a, err := s.find(ctx, req.Process)
	if err != nil {
		return err
	}
	f := &follower{sandbox: s, tty: a.Spec.GetTty() != nil, keepalive: keepaliveOf(ctx), send: func(event *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: event})
	}}
	return f.join(ctx, a)
}

// List lists the actions of the sandbox that have not ended.
func (p processes) List(ctx context.Context, _ *process.ListRequest) (*process.ListResponse, error) {
	resp := &process.ListResponse{}
	err := sandboxIn(ctx).live(ctx, false, func(a *rotav1.Action) bool {
		info := &process.ProcessInfo{Pid: pidOf(a.Id), Config: &process.ProcessConfig{Envs: a.Spec.GetCommand().GetEnv()}}
		if argv := a.Spec.GetCommand().GetArgv(); len(argv) > 0 {
			info.Config.Cmd, info.Config.Args = argv[0], argv[1:]
		}
		if dir := a.Spec.GetCommand().GetDir(); dir != "" {
			cwd := dir
			if dir[0] != '/' {
				cwd = outside(dir)
			}
			info.Config.Cwd = &cwd
		}
		if a.Spec.Name != "" {
			info.Tag = &a.Spec.Name
		}
		resp.Processes = append(resp.Processes, info)
		return true
	})
	return resp, err
}

// live visits the actions of a sandbox that have not ended, the newest first.
func (s *sandbox) live(ctx context.Context, stale bool, visit func(*rotav1.Action) bool) error {
	req := &rotav1.ListActionsRequest{
		Namespace: s.namespace, TrajectoryId: s.id, PageSize: actionsPage, NewestFirst: true, AllowStale: stale,
		States: []rotav1.ActionState{rotav1.ActionState_ACTION_STATE_QUEUED, rotav1.ActionState_ACTION_STATE_RUNNING},
	}
	for {
		resp, err := s.actions.ListActions(ctx, req)
		if err != nil {
			return err
		}
		for _, a := range resp.Actions {
			if !visit(a) {
				return nil
			}
		}
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			return nil
		}
	}
}

// find returns the live action that is meant. This server's own state is enough if it has it.
func (s *sandbox) find(ctx context.Context, which *process.ProcessSelector) (found *rotav1.Action, err error) {
	match := func(a *rotav1.Action) bool {
		if tag := which.GetTag(); tag != "" {
			return a.Spec.GetName() == tag
		}
		return pidOf(a.Id) == which.GetPid()
	}
	for _, stale := range []bool{true, false} {
		err = s.live(ctx, stale, func(a *rotav1.Action) bool {
			if match(a) {
				found = a
			}
			return found == nil
		})
		if err != nil || found != nil {
			return found, err
		}
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no process %s runs in the sandbox", name(which)))
}

func name(which *process.ProcessSelector) string {
	if tag := which.GetTag(); tag != "" {
		return fmt.Sprintf("with the tag %.100q", tag)
	}
	return fmt.Sprint(which.GetPid())
}

// SendSignal sends a signal. What is still queued is canceled.
func (p processes) SendSignal(ctx context.Context, req *process.SendSignalRequest) (*process.SendSignalResponse, error) {
	s := sandboxIn(ctx)
	signal := map[process.Signal]string{process.Signal_SIGNAL_SIGTERM: "TERM", process.Signal_SIGNAL_SIGKILL: "KILL"}[req.Signal]
	if signal == "" {
		return nil, invalid("the signal must be SIGTERM or SIGKILL")
	}
	a, err := s.find(ctx, req.Process)
	if err != nil {
		return nil, err
	}
	if a.State == rotav1.ActionState_ACTION_STATE_RUNNING {
		_, err = s.streams.SignalAction(ctx, &rotav1.SignalActionRequest{
			ActionId: a.Id, Signal: signal, All: req.Signal == process.Signal_SIGNAL_SIGKILL, RequestId: "e2b-" + rand.Text(),
		})
	} else {
		_, err = s.actions.CancelActions(ctx, &rotav1.CancelActionsRequest{Ids: []uint64{a.Id}})
	}
	return &process.SendSignalResponse{}, err
}

// Update changes the size of a terminal.
func (p processes) Update(ctx context.Context, req *process.UpdateRequest) (*process.UpdateResponse, error) {
	s := sandboxIn(ctx)
	a, err := s.find(ctx, req.Process)
	if err != nil {
		return nil, err
	}
	if size := req.GetPty().GetSize(); size != nil {
		_, err = s.streams.ResizeActionTerminal(ctx, &rotav1.ResizeActionTerminalRequest{
			ActionId: a.Id, Size: &rotav1.TerminalSize{Rows: size.Rows, Columns: size.Cols},
		})
	}
	return &process.UpdateResponse{}, err
}

// keepaliveOf is how often the caller wants to hear something.
func keepaliveOf(ctx context.Context) time.Duration {
	header := http.Header{}
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		header = info.RequestHeader()
	}
	every, err := time.ParseDuration(header.Get(keepaliveHeader) + "s")
	if err != nil {
		return keepaliveDefault
	}
	return min(max(every, time.Second), keepaliveDefault)
}
