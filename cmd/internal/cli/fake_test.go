package cli

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// commandVariable has the test binary be rota.
const commandVariable = "ROTA_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// serve runs services for a test, and returns their address.
func serve(t *testing.T, services map[string]http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, service := range services {
		mux.Handle(path, service)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httpx.NewServer(mux)
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return l.Addr().String()
}

// services collects handlers as connect makes them.
type services map[string]http.Handler

func (s services) add(path string, h http.Handler) { s[path] = h }

// actionServer has one action, which does not end by itself.
type actionServer struct {
	rotav1connect.UnimplementedActionServiceHandler
	rotav1connect.UnimplementedOperatorServiceHandler

	action *rotav1.Action
	// unreachable: the node of the action is.
	unreachable bool

	mu       sync.Mutex
	reads    int
	canceled []uint64
}

func newActionServer(state rotav1.ActionState) *actionServer {
	return &actionServer{
		action: &rotav1.Action{Id: 7, Revision: 1, Attempt: 1, State: state, Spec: &rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"yes"}}}},
	}
}

func (s *actionServer) serve(t *testing.T) (addr string) {
	all := services{}
	all.add(rotav1connect.NewActionServiceHandler(s, codec.ForHandler()))
	all.add(rotav1connect.NewOperatorServiceHandler(s, codec.ForHandler()))
	return serve(t, all)
}

func (s *actionServer) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	return &rotav1.GetStatusResponse{}, nil
}

func (s *actionServer) GetAction(context.Context, *rotav1.GetActionRequest) (*rotav1.GetActionResponse, error) {
	return &rotav1.GetActionResponse{Action: proto.CloneOf(s.action), Revision: 1}, nil
}

func (s *actionServer) ListActions(context.Context, *rotav1.ListActionsRequest) (*rotav1.ListActionsResponse, error) {
	return &rotav1.ListActionsResponse{Actions: []*rotav1.Action{proto.CloneOf(s.action)}}, nil
}

func (s *actionServer) BatchSubmitActions(_ context.Context, req *rotav1.BatchSubmitActionsRequest) (*rotav1.BatchSubmitActionsResponse, error) {
	resp := &rotav1.BatchSubmitActionsResponse{}
	for range req.Requests {
		resp.Results = append(resp.Results, &rotav1.SubmitActionsResult{Outcome: &rotav1.SubmitActionsResult_Response{
			Response: &rotav1.SubmitActionsResponse{Ids: []uint64{s.action.Id}},
		}})
	}
	return resp, nil
}

func (s *actionServer) RunAction(ctx context.Context, _ *rotav1.RunActionRequest, stream *connect.ServerStream[rotav1.RunActionResponse]) error {
	chunk := &rotav1.OutputChunk{Stream: rotav1.OutputStream_OUTPUT_STREAM_STDOUT, Attempt: 1, Data: []byte("y\n")}
	for _, msg := range []*rotav1.RunActionResponse{
		{Update: &rotav1.RunActionResponse_Action{Action: s.action}}, {Update: &rotav1.RunActionResponse_Output{Output: chunk}},
	} {
		if err := stream.Send(msg); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *actionServer) WatchActions(ctx context.Context, _ *rotav1.WatchActionsRequest, _ *connect.ServerStream[rotav1.WatchActionsResponse]) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *actionServer) ReadActionOutput(ctx context.Context, _ *rotav1.ReadActionOutputRequest, stream *connect.ServerStream[rotav1.ReadActionOutputResponse]) error {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	if s.unreachable {
		err := connect.NewError(connect.CodeUnavailable, nil)
		detail, _ := connect.NewErrorDetail(&rotav1.ErrorDetail{
			Code: uint32(connect.CodeUnavailable), Reason: "NODE_UNREACHABLE", Message: "node n cannot be reached", RetryDelay: durationpb.New(time.Second),
		})
		err.AddDetail(detail)
		return err
	}
	err := stream.Send(&rotav1.ReadActionOutputResponse{Chunk: &rotav1.OutputChunk{
		Stream: rotav1.OutputStream_OUTPUT_STREAM_STDOUT, Attempt: 1, Data: []byte("y\n"),
	}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *actionServer) CancelActions(_ context.Context, req *rotav1.CancelActionsRequest) (*rotav1.CancelActionsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.canceled = append(s.canceled, req.Ids...)
	return &rotav1.CancelActionsResponse{Canceled: 1}, nil
}

// wasCanceled reports whether the action was canceled, once.
func (s *actionServer) wasCanceled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Equal(s.canceled, []uint64{s.action.Id})
}

// writerFunc is a function that writes.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// ends runs a command line, and returns its exit code and what it says.
func ends(ctx context.Context, out writerFunc, args ...string) (code int, says string) {
	var errOut bytes.Buffer
	code = run(ctx, args, out, &errOut)
	return code, errOut.String()
}

func discard(p []byte) (int, error) { return len(p), nil }
