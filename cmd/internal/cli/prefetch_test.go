package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// imageServer has nodes, of which some run containers and some can get the image.
type imageServer struct {
	rotav1connect.UnimplementedNodeServiceHandler
	rotav1connect.UnimplementedImageServiceHandler

	mu          sync.Mutex
	asked       []string
	now, atOnce int
	breaks      int // streams that break off yet
}

func (s *imageServer) ListNodes(_ context.Context, req *rotav1.ListNodesRequest) (*rotav1.ListNodesResponse, error) {
	if req.Pool == "bare" {
		return &rotav1.ListNodesResponse{Nodes: []*rotav1.Node{{Name: "n4"}}}, nil
	}
	return &rotav1.ListNodesResponse{Nodes: []*rotav1.Node{{Name: "n1", Containers: true}, {Name: "n2", Containers: true}, {Name: "n3"}}}, nil
}

func (s *imageServer) PrefetchImage(_ context.Context, req *rotav1.PrefetchImageRequest, stream *connect.ServerStream[rotav1.PrefetchImageResponse]) error {
	s.mu.Lock()
	s.asked = append(s.asked, req.Node+" "+req.Image)
	s.now++
	s.atOnce = max(s.atOnce, s.now)
	broken := s.breaks > 0
	s.breaks--
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	if req.Node == "n9" {
		e := connect.NewError(connect.CodeFailedPrecondition, errors.New("no"))
		detail, err := connect.NewErrorDetail(&rotav1.ErrorDetail{Reason: "IMAGE_UNAVAILABLE", Message: "add --pull"})
		if err == nil {
			e.AddDetail(detail)
		}
		return e
	}
	if err := stream.Send(&rotav1.PrefetchImageResponse{DownloadedBytes: 1 << 20, TotalBytes: 2 << 20}); err != nil || broken {
		return err
	}
	return stream.Send(&rotav1.PrefetchImageResponse{Done: true})
}

// runPrefetch runs the command against the server.
func runPrefetch(t *testing.T, s *imageServer, args ...string) (out, errs string, code int) {
	t.Helper()
	all := services{}
	all.add(rotav1connect.NewNodeServiceHandler(s, codec.ForHandler()))
	all.add(rotav1connect.NewImageServiceHandler(s, codec.ForHandler()))
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append([]string{"--addr", serve(t, all), "image", "prefetch"}, args...), &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

func TestPrefetchOfAnImage(t *testing.T) {
	s := &imageServer{breaks: 1}
	out, errs, code := runPrefetch(t, s, "tools:1", "--parallel", "1")
	if code != 0 || strings.Count(out, "ready after") != 2 || !strings.Contains(out, "n1: ready") || !strings.Contains(errs, "n2: 1MiB of 2MiB") {
		t.Errorf("exit code %d: %q, %q", code, out, errs)
	}
	if got := strings.Join(s.asked, ", "); got != "n1 tools:1, n1 tools:1, n2 tools:1" || s.atOnce != 1 {
		t.Errorf("it asked for %q, %d at once", got, s.atOnce)
	}
	out, errs, code = runPrefetch(t, s, "tools:1", "--node", "n9", "--node", "n1", "--node", "n1")
	if code != exitError || !strings.Contains(out, "n9: add --pull") || !strings.Contains(out, "n1: ready") || !strings.Contains(errs, "1 of 2 nodes") {
		t.Errorf("of a node that fails: exit code %d: %q, %q", code, out, errs)
	}
	out, _, code = runPrefetch(t, s, "tools:1", "--node", "n9", "-o", "json")
	if code != exitError || !strings.Contains(out, `"error":"add --pull"`) {
		t.Errorf("as JSON: exit code %d: %q", code, out)
	}
	for want, args := range map[string][]string{
		"give only one":   {"--node", "n1", "--pool", "p"},
		"--parallel is 0": {"--parallel", "0"},
		"pool bare":       {"--pool", "bare"},
	} {
		if _, errs, code := runPrefetch(t, s, append(args, "tools:1")...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d: %q", args, code, errs)
		}
	}
}
