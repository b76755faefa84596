package workload

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/jepsen/history"
)

// broken streams two events and is cut off. After the second time it no longer
// keeps what comes next.
type broken struct {
	rotav1connect.UnimplementedActionServiceHandler
	asked chan uint64 // after which revision
	times int
}

func (b *broken) WatchActions(_ context.Context, req *rotav1.WatchActionsRequest, stream *connect.ServerStream[rotav1.WatchActionsResponse]) error {
	after := req.GetAfterRevision()
	b.asked <- after
	if b.times++; b.times == 3 {
		err := connect.NewError(connect.CodeOutOfRange, errors.New("too old"))
		detail, _ := connect.NewErrorDetail(&rotav1.ErrorDetail{Reason: "REVISION_TOO_OLD", Revision: 100})
		err.AddDetail(detail)
		return err
	}
	event := func(n uint64) *rotav1.ActionEvent {
		return &rotav1.ActionEvent{Revision: n, ActionId: 7, State: rotav1.ActionState_ACTION_STATE_RUNNING, Attempt: 1}
	}
	// What was looked at lies behind what has matched.
	err := stream.Send(&rotav1.WatchActionsResponse{Events: []*rotav1.ActionEvent{event(after + 1), event(after + 3)}, Revision: after + 5})
	return errors.Join(err, connect.NewError(connect.CodeUnavailable, errors.New("cut off")))
}

func TestAWatcherGoesOnWhereItWas(t *testing.T) {
	b := &broken{asked: make(chan uint64, 10)}
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewActionServiceHandler(b, codec.ForHandler()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpx.NewServer(mux)
	go server.Serve(l)
	defer server.Close()
	env := alone(l.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- watches(ctx, env, 0) }()
	for _, want := range []uint64{0, 5, 10, 100, 105} {
		select {
		case after := <-b.asked:
			if after != want {
				t.Errorf("it went on after revision %d, want %d", after, want)
			}
		case <-time.After(patience):
			t.Fatalf("it did not go on after revision %d", want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	checkNotes(t, env.Record.Record().WatchNotes)
	events := env.Record.Record().Watch
	for i, want := range []struct {
		watcher  int
		revision uint64
		resumed  bool
	}{{1, 1, false}, {1, 3, false}, {1, 6, true}, {1, 8, false}, {2, 101, false}, {2, 103, false}} {
		if i >= len(events) {
			t.Fatalf("%d events were recorded", len(events))
		}
		e := events[i]
		if e.Watcher != want.watcher || e.Revision != want.revision || e.Resumed != want.resumed ||
			e.Action != 7 || e.Attempt != 1 || e.State != "RUNNING" || e.Server != "server-1" {
			t.Errorf("event %d: %+v, want %+v", i, e, want)
		}
	}
}

// checkNotes: a watcher notes each stream, and what it is told.
func checkNotes(t *testing.T, notes []history.WatchNote) {
	t.Helper()
	for i, want := range []history.WatchNote{
		{Watcher: 1, Kind: history.WatchBegan},
		{Watcher: 1, Kind: history.WatchTold, Revision: 5},
		{Watcher: 1, Kind: history.WatchResumed, Revision: 5, Reason: "unavailable: cut off"},
		{Watcher: 1, Kind: history.WatchTold, Revision: 10},
		{Watcher: 1, Kind: history.WatchResumed, Revision: 10, Reason: "unavailable: cut off"},
		{Watcher: 2, Kind: history.WatchBegan, Revision: 100, Lost: 10, Reason: "REVISION_TOO_OLD"},
	} {
		if i >= len(notes) {
			t.Fatalf("%d notes were recorded", len(notes))
		}
		got := notes[i]
		if want.Server, want.At = "server-1", got.At; got != want {
			t.Errorf("note %d: %+v, want %+v", i, got, want)
		}
	}
}

func TestWatchersAreWaitedFor(t *testing.T) {
	var p positions
	if p.behind("server-1", 7) {
		t.Error("a server without a watcher is waited for")
	}
	if p.move("server-1", 6); !p.behind("server-1", 7) || p.behind("server-1", 6) {
		t.Error("a watcher at revision 6 is to come to 7, not to 6")
	}
	if p.leave("server-1"); p.behind("server-1", 7) {
		t.Error("a watcher that has ended is waited for")
	}
}
