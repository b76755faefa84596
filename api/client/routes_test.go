package client

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// routesServer begins each watch with a reset, and is silent then.
type routesServer struct {
	rotav1connect.UnimplementedWorkerServiceHandler
	first rotav1.WatchRoutesResponse
}

func (s *routesServer) WatchRoutes(ctx context.Context, _ *rotav1.WatchRoutesRequest, stream *connect.ServerStream[rotav1.WatchRoutesResponse]) error {
	if err := stream.Send(&s.first); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func serveRoutes(t *testing.T, s *routesServer) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewWorkerServiceHandler(s, codec.ForHandler()))
	srv := httpx.NewServer(mux)
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return l.Addr().String()
}

// TestStaleRoutesAreRefused: the next server is asked. If all of them are refused, that is an error.
func TestStaleRoutesAreRefused(t *testing.T) {
	stale := &routesServer{first: rotav1.WatchRoutesResponse{Reset_: true, Complete: true, Stale: true}}
	fresh := &routesServer{first: rotav1.WatchRoutesResponse{Reset_: true, Complete: true}}
	one, other := serveRoutes(t, stale), serveRoutes(t, fresh)
	watch := func(retry time.Duration, refuse bool, addrs ...string) (*rotav1.WatchRoutesResponse, error) {
		c, err := New(Config{Addrs: addrs, RetryFor: retry})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for m, err := range c.WatchRoutesUnless(t.Context(), &rotav1.WatchRoutesRequest{}, func(m *rotav1.WatchRoutesResponse) bool { return refuse && m.Stale }) {
			return m, err
		}
		return nil, nil
	}
	if m, err := watch(time.Minute, false, one, other); err != nil || !m.Stale {
		t.Errorf("where none is refused: %v, %v", m, err)
	}
	if m, err := watch(time.Minute, true, one, other); err != nil || m.Stale || !m.Reset_ {
		t.Errorf("the other server knows more: %v, %v", m, err)
	}
	if m, err := watch(time.Second, true, one); Detail(err).GetReason() != "STALE" {
		t.Errorf("no server knows more: %v, %v", m, err)
	}
}
