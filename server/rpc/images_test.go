package rpc_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/server/rpc"
)

// images is an agent that prefetches.
type images struct {
	rotav1connect.UnimplementedImageServiceHandler
	incarnations map[string]uint64 // of nodes
	prefetch     func(context.Context, *rotav1.PrefetchImageRequest, *connect.ServerStream[rotav1.PrefetchImageResponse]) error
}

func (i *images) PrefetchImage(ctx context.Context, req *rotav1.PrefetchImageRequest, stream *connect.ServerStream[rotav1.PrefetchImageResponse]) error {
	if i.prefetch == nil {
		return i.UnimplementedImageServiceHandler.PrefetchImage(ctx, req, stream)
	}
	return i.prefetch(ctx, req, stream)
}

// newImageWorld has a server whose node n1 has an agent that prefetches.
func newImageWorld(t *testing.T, i *images) (*world, rotav1connect.ImageServiceClient) {
	t.Helper()
	_, h := rotav1connect.NewImageServiceHandler(i, codec.ForHandler())
	agent := httptest.NewUnstartedServer(h)
	agent.Config.Protocols = new(http.Protocols)
	agent.Config.Protocols.SetUnencryptedHTTP2(true)
	agent.Start()
	t.Cleanup(agent.Close)
	i.incarnations = map[string]uint64{}
	var w *world
	w = newWorld(t, func(d *rpc.Deps) {
		d.Images = func(addr string) rotav1connect.ImageServiceClient {
			return rotav1connect.NewImageServiceClient(w.http, httpx.BaseURL(addr, false), codec.ForClient())
		}
	})
	for name, addr := range map[string]string{"n1": agent.Listener.Addr().String(), "n2": "127.0.0.1:1"} {
		resp, err := w.agents().RegisterNode(t.Context(), registration(name, addr))
		if err != nil {
			t.Fatal(err)
		}
		i.incarnations[name] = resp.Incarnation
	}
	return w, rotav1connect.NewImageServiceClient(w.http, w.url, codec.ForClient())
}

// prefetched reads a prefetch to its end.
func prefetched(t *testing.T, c rotav1connect.ImageServiceClient, node, image string) (said []*rotav1.PrefetchImageResponse, err error) {
	t.Helper()
	stream, err := c.PrefetchImage(t.Context(), &rotav1.PrefetchImageRequest{Node: node, Image: image})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for stream.Receive() {
		said = append(said, stream.Msg())
	}
	return said, stream.Err()
}

// TestAPrefetchReachesItsNode: a server passes on what the agent says, and how it ends.
func TestAPrefetchReachesItsNode(t *testing.T) {
	i := &images{}
	_, c := newImageWorld(t, i)
	i.prefetch = func(_ context.Context, req *rotav1.PrefetchImageRequest, stream *connect.ServerStream[rotav1.PrefetchImageResponse]) error {
		if req.Image != "tools:1" {
			t.Errorf("the agent is asked for %q", req.Image)
		}
		for _, m := range []*rotav1.PrefetchImageResponse{{DownloadedBytes: 1, TotalBytes: 2}, {Done: true}} {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		return nil
	}
	said, err := prefetched(t, c, "n1", "tools:1")
	if err != nil || len(said) != 2 || said[0].DownloadedBytes != 1 || said[0].TotalBytes != 2 || !said[1].Done {
		t.Errorf("a client hears %v: %v", said, err)
	}
	// The agent hears when its caller is gone.
	came, gone := make(chan struct{}), make(chan struct{})
	i.prefetch = func(ctx context.Context, _ *rotav1.PrefetchImageRequest, _ *connect.ServerStream[rotav1.PrefetchImageResponse]) error {
		close(came)
		<-ctx.Done()
		close(gone)
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		stream, err := c.PrefetchImage(ctx, &rotav1.PrefetchImageRequest{Node: "n1", Image: "tools:1"})
		if err == nil {
			stream.Receive()
			_ = stream.Close()
		}
	}()
	for _, event := range []chan struct{}{came, gone} {
		select {
		case <-event:
			cancel()
		case <-time.After(30 * time.Second):
			t.Fatal("the agent heard nothing of it")
		}
	}
}

// TestAPrefetchThatCannotBe has a reason for each case.
func TestAPrefetchThatCannotBe(t *testing.T) {
	i := &images{}
	w, c := newImageWorld(t, i)
	refused := connect.NewError(connect.CodeFailedPrecondition, nil)
	if detail, err := connect.NewErrorDetail(&rotav1.ErrorDetail{Reason: "IMAGE_UNAVAILABLE", Message: "add --pull"}); err == nil {
		refused.AddDetail(detail)
	}
	says := func(err error) func(context.Context, *rotav1.PrefetchImageRequest, *connect.ServerStream[rotav1.PrefetchImageResponse]) error {
		return func(context.Context, *rotav1.PrefetchImageRequest, *connect.ServerStream[rotav1.PrefetchImageResponse]) error {
			return err
		}
	}
	for _, x := range []struct {
		node, image, reason string
		code                connect.Code
		agent               func(context.Context, *rotav1.PrefetchImageRequest, *connect.ServerStream[rotav1.PrefetchImageResponse]) error
	}{
		{"", "tools:1", "INVALID", connect.CodeInvalidArgument, nil},
		{"n1", "", "INVALID", connect.CodeInvalidArgument, nil},
		{"n3", "tools:1", "NODE_NOT_FOUND", connect.CodeNotFound, nil},
		{"n2", "tools:1", "NODE_UNREACHABLE", connect.CodeUnavailable, nil},
		{"n1", "tools:1", "AGENT_TOO_OLD", connect.CodeFailedPrecondition, nil},
		{"n1", "tools:1", "NODE_UNREACHABLE", connect.CodeUnavailable, says(nil)},
		{"n1", "tools:1", "IMAGE_UNAVAILABLE", connect.CodeFailedPrecondition, says(refused)},
	} {
		i.prefetch = x.agent
		said, err := prefetched(t, c, x.node, x.image)
		if connect.CodeOf(err) != x.code || codec.Detail(err).GetReason() != x.reason || len(said) > 0 {
			t.Errorf("node %q, image %q: %v, %v; want %v, %s", x.node, x.image, said, err, x.code, x.reason)
		}
	}
	w.apply(&logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: "n1", Incarnation: i.incarnations["n1"]}}})
	if _, err := prefetched(t, c, "n1", "tools:1"); codec.Detail(err).GetReason() != "NODE_DOWN" {
		t.Errorf("of a node that is down: %v", err)
	}
}
