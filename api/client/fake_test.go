package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// cluster is what the fake servers of a test share: it remembers requests and
// numbers events like the real one.
type cluster struct {
	mu       sync.Mutex
	moved    chan struct{}
	actions  []*rotav1.Action // by ID - 1
	requests map[string][]uint64
	events   []*rotav1.ActionEvent
	executed int // submissions that were not replays
	logTime  time.Time
	streams  atomic.Int32 // watches that were opened
}

func newCluster() *cluster {
	return &cluster{moved: make(chan struct{}), requests: map[string][]uint64{}, logTime: time.Unix(1_800_000_000, 0)}
}

func (c *cluster) event(a *rotav1.Action, s rotav1.ActionState) {
	a.State = s
	a.Revision = uint64(len(c.events) + 1)
	c.events = append(c.events, &rotav1.ActionEvent{Revision: a.Revision, ActionId: a.Id, Namespace: a.Namespace, State: s})
	close(c.moved)
	c.moved = make(chan struct{})
}

// submit accepts a submission, or says why not.
func (c *cluster) submit(r *rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.ExpireTime != nil && r.ExpireTime.AsTime().Before(c.logTime) {
		return refuse(connect.CodeDeadlineExceeded, "REQUEST_EXPIRED", 0)
	}
	if r.ExpireTime != nil && r.ExpireTime.AsTime().After(c.logTime.Add(time.Hour+time.Minute)) {
		return refuse(connect.CodeInvalidArgument, "INVALID", 0)
	}
	ids, replayed := c.requests[r.RequestId]
	if !replayed {
		c.executed++
		for _, spec := range r.Actions {
			a := &rotav1.Action{Id: uint64(len(c.actions) + 1), Namespace: "default", Spec: spec}
			c.actions = append(c.actions, a)
			ids = append(ids, a.Id)
			c.event(a, rotav1.ActionState_ACTION_STATE_QUEUED)
		}
		c.requests[r.RequestId] = ids
	}
	return &rotav1.SubmitActionsResult{Outcome: &rotav1.SubmitActionsResult_Response{
		Response: &rotav1.SubmitActionsResponse{Ids: ids, Replayed: replayed},
	}}
}

func (c *cluster) finish(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.event(c.actions[id-1], rotav1.ActionState_ACTION_STATE_SUCCEEDED)
}

func (c *cluster) name(id uint64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.actions[id-1].Spec.Name
}

func (c *cluster) executions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.executed
}

func refuse(code connect.Code, reason string, retry time.Duration) *rotav1.SubmitActionsResult {
	d := &rotav1.ErrorDetail{Reason: reason, Message: reason, Code: uint32(code)}
	if retry > 0 {
		d.RetryDelay = durationpb.New(retry)
	}
	return &rotav1.SubmitActionsResult{Outcome: &rotav1.SubmitActionsResult_Error{Error: d}}
}

// unavailable is the error of a call that may be repeated at once.
func unavailable(reason string) error {
	return detailError(refuse(connect.CodeUnavailable, reason, time.Millisecond).GetError())
}

// server is one fake server. The hooks make it fail.
type server struct {
	rotav1connect.UnimplementedActionServiceHandler
	rotav1connect.UnimplementedOperatorServiceHandler
	*cluster
	addr string
	// calls counts batches, received the submissions in them.
	calls, received atomic.Int32
	// before and after are called around each batch; an error is the answer, and a
	// panic with http.ErrAbortHandler breaks the connection.
	before, after func(call int32) error
	// batchMax is how many submissions fit into a message; 0: any number.
	batchMax int
	// one, if set, answers submissions one by one instead of the cluster.
	one func(*rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult
	// stale counts reads that may be of an older state, certain those that may not.
	stale, certain atomic.Int32
	// streamMax ends watches after so many messages; 0: never.
	streamMax int
	// leader is named in each answer.
	leader string
	// behind is how far this server's idea of log time lags; timeless says that it
	// has none yet.
	behind   time.Duration
	timeless bool
	// cancel answers CancelActions.
	cancel func(call int32) error
	// transfer answers TransferLeadership.
	transfer func(call int32) error
}

func (c *cluster) server(t testing.TB) *server {
	s := &server{cluster: c}
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewActionServiceHandler(s, codec.ForHandler()))
	mux.Handle(rotav1connect.NewOperatorServiceHandler(s, codec.ForHandler()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	srv := httpx.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.leader != "" {
			w.Header().Set(leaderHeader, s.leader)
		}
		mux.ServeHTTP(w, r)
	}))
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return s
}

func (s *server) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timeless {
		return &rotav1.GetStatusResponse{}, nil
	}
	return &rotav1.GetStatusResponse{LogTime: timestamppb.New(s.logTime.Add(-s.behind))}, nil
}

// RunAction submits an action, which succeeds at once.
func (s *server) RunAction(_ context.Context, req *rotav1.RunActionRequest, stream *connect.ServerStream[rotav1.RunActionResponse]) error {
	result := s.submit(&rotav1.SubmitActionsRequest{RequestId: req.RequestId, ExpireTime: req.ExpireTime, Actions: []*rotav1.ActionSpec{req.Action}})
	if detail := result.GetError(); detail != nil {
		return detailError(detail)
	}
	id := result.GetResponse().Ids[0]
	s.finish(id)
	s.mu.Lock()
	ended := proto.CloneOf(s.actions[id-1])
	s.mu.Unlock()
	return stream.Send(&rotav1.RunActionResponse{Update: &rotav1.RunActionResponse_Action{Action: ended}})
}

func (s *server) CancelActions(context.Context, *rotav1.CancelActionsRequest) (*rotav1.CancelActionsResponse, error) {
	if err := s.cancel(s.calls.Add(1)); err != nil {
		return nil, err
	}
	return &rotav1.CancelActionsResponse{}, nil
}

func (s *server) TransferLeadership(context.Context, *rotav1.TransferLeadershipRequest) (*rotav1.TransferLeadershipResponse, error) {
	if err := s.transfer(s.calls.Add(1)); err != nil {
		return nil, err
	}
	return &rotav1.TransferLeadershipResponse{}, nil
}

func (s *server) BatchSubmitActions(_ context.Context, req *rotav1.BatchSubmitActionsRequest) (*rotav1.BatchSubmitActionsResponse, error) {
	call := s.calls.Add(1)
	s.received.Add(int32(len(req.Requests)))
	if s.before != nil {
		if err := s.before(call); err != nil {
			return nil, err
		}
	}
	if s.batchMax > 0 && len(req.Requests) > s.batchMax {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("message size is larger than configured max"))
	}
	one := s.submit
	if s.one != nil {
		one = s.one
	}
	resp := &rotav1.BatchSubmitActionsResponse{}
	for _, r := range req.Requests {
		resp.Results = append(resp.Results, one(r))
	}
	if s.after != nil {
		if err := s.after(call); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

func (s *server) GetAction(_ context.Context, req *rotav1.GetActionRequest) (*rotav1.GetActionResponse, error) {
	if req.AllowStale {
		s.stale.Add(1)
	} else {
		s.certain.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Id == 0 || req.Id > uint64(len(s.actions)) {
		return nil, detailError(&rotav1.ErrorDetail{Reason: "ACTION_NOT_FOUND", Code: uint32(connect.CodeNotFound)})
	}
	return &rotav1.GetActionResponse{Action: proto.CloneOf(s.actions[req.Id-1]), Revision: uint64(len(s.events))}, nil
}

func (s *server) WatchActions(ctx context.Context, req *rotav1.WatchActionsRequest, stream *connect.ServerStream[rotav1.WatchActionsResponse]) error {
	s.streams.Add(1)
	s.mu.Lock()
	at := int(req.GetAfterRevision())
	if req.AfterRevision == nil {
		at = len(s.events)
	}
	s.mu.Unlock()
	for n := 0; s.streamMax == 0 || n < s.streamMax; n++ {
		s.mu.Lock()
		var events []*rotav1.ActionEvent
		for ; at < len(s.events) && len(events) < 3; at++ {
			if req.ActionId == 0 || s.events[at].ActionId == req.ActionId {
				events = append(events, s.events[at])
			}
		}
		moved, more := s.moved, at < len(s.events)
		s.mu.Unlock()
		if err := stream.Send(&rotav1.WatchActionsResponse{Events: events, Revision: uint64(at)}); err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	panic(http.ErrAbortHandler) // as if the server were killed
}

// connectTo returns a client of some servers.
func connectTo(t testing.TB, servers ...*server) *Client {
	config := Config{RetryFor: 20 * time.Second}
	for _, s := range servers {
		config.Addrs = append(config.Addrs, s.addr)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func spec(i int) *rotav1.ActionSpec {
	return &rotav1.ActionSpec{Name: fmt.Sprint(i), Command: &rotav1.Command{Argv: []string{"true"}}}
}

var errTest = errors.New("a test's error")
