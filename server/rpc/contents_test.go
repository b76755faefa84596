package rpc_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/server/rpc"
)

// fileAgent answers reads with a MiB, once it may.
type fileAgent struct {
	rotav1connect.FileServiceClient
	reading atomic.Int64
	may     chan struct{}
}

func (a *fileAgent) ReadFile(ctx context.Context, _ *rotav1.ReadFileRequest) (*rotav1.ReadFileResponse, error) {
	a.reading.Add(1)
	defer a.reading.Add(-1)
	select {
	case <-a.may:
		return &rotav1.ReadFileResponse{Data: make([]byte, 1<<20), SizeBytes: 1 << 20}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *fileAgent) StatFile(context.Context, *rotav1.StatFileRequest) (*rotav1.StatFileResponse, error) {
	return &rotav1.StatFileResponse{}, nil
}

// filesWorld has a trajectory in each of the namespaces a and b, and little room for their files.
func filesWorld(t *testing.T) (s *secured, agent *fileAgent) {
	agent = &fileAgent{may: make(chan struct{})}
	s = newSecured(t, func(d *rpc.Deps) { d.Files = func(string) rotav1connect.FileServiceClient { return agent } })
	rpc.SetContentsMax(s.server, 8)
	return s, agent
}

// TestFilesOfOneNamespaceLeaveRoomForOthers, whoever calls.
func TestFilesOfOneNamespaceLeaveRoomForOthers(t *testing.T) {
	s, agent := filesWorld(t)
	const alone = 3 // of 8
	read := func(ctx context.Context, ns string) error {
		_, err := s.root.Files.ReadFile(ctx, &rotav1.ReadFileRequest{TrajectoryId: s.ids[ns]["trajectory"], Path: "x"})
		return err
	}
	ended := make(chan error, alone+1)
	for range alone {
		go func() { ended <- read(t.Context(), "a") }()
	}
	eventually(t, "the calls of one namespace are at the agent", func() bool { return agent.reading.Load() == alone })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := read(ctx, "a") // it repeats the call
	detail := client.Detail(err)
	if connect.CodeOf(err) != connect.CodeResourceExhausted || detail.GetReason() != "OVERLOADED" || detail.RetryDelay == nil || !strings.Contains(detail.Message, "namespace a at once") {
		t.Errorf("one more: %v", err)
	}
	if _, err := s.root.Files.StatFile(t.Context(), &rotav1.StatFileRequest{TrajectoryId: s.ids["a"]["trajectory"], Path: "x"}); err != nil {
		t.Errorf("a call that carries no file: %v", err)
	}
	go func() { ended <- read(t.Context(), "b") }()
	eventually(t, "another namespace has room", func() bool { return agent.reading.Load() == alone+1 })
	close(agent.may)
	for range alone + 1 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := read(t.Context(), "a"); err != nil {
		t.Errorf("after the calls ended: %v", err)
	}
}

// TestFilesThatAreNotReadKeepTheirPlace until the server gives their clients up.
func TestFilesThatAreNotReadKeepTheirPlace(t *testing.T) {
	s, agent := filesWorld(t)
	close(agent.may)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const patience = 500 * time.Millisecond
	srv := httpx.Patience{Max: patience}.NewServer(s.server)
	go srv.Serve(l)
	defer srv.Close()
	c := httpx.NewRelayClient(nil) // it takes 64 KiB ahead
	defer c.CloseIdleConnections()
	_, secret := s.token("reader", allow("a", "file", "read"))
	ask := func() *http.Response {
		body := strings.NewReader(fmt.Sprintf(`{"trajectoryId":%d,"path":"x"}`, s.ids["a"]["trajectory"]))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+rotav1connect.FileServiceReadFileProcedure, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	began := time.Now()
	for n := range 3 { // of 8
		if resp := ask(); resp.StatusCode != http.StatusOK {
			t.Fatalf("call %d: %s", n, resp.Status)
		}
	}
	if resp := ask(); resp.StatusCode != http.StatusTooManyRequests || time.Since(began) > patience {
		t.Fatalf("beside three answers that are not read, after %v: %s", time.Since(began), resp.Status)
	}
	eventually(t, "there is room again", func() bool {
		resp := ask()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK
	})
	if took := time.Since(began); took < patience {
		t.Errorf("there is room after %v", took)
	}
}
