package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
	"rota/api/pki"
	"rota/cmd/internal/devcluster"
)

// TestUnread: clients that ask for output and read nothing of it are given up, over both protocols.
// One that reads is served beside them.
func TestUnread(t *testing.T) {
	const size = 16 << 20 // all that a node keeps, and more than fits in the buffers of the kernel
	c, api := startCluster(t, devcluster.Config{}, pki.Files{})
	resp, err := api.Actions.SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{
		{Command: &rotav1.Command{Argv: []string{"head", "-c", strconv.Itoa(size), "/dev/zero"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	id := resp.Ids[0]
	if _, err := api.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	base, call := "http://"+c.Addrs()[0], envelope(fmt.Sprintf(`{"actionId":"%d"}`, id))
	http1 := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return conn, err
	}}}
	http2 := httpx.NewRelayClient(nil)
	for _, c := range []*http.Client{http1, http2} {
		defer c.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/rota.v1.ActionService/ReadActionOutput", strings.NewReader(call))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", connectJSON)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	began := time.Now()
	if got := readOutput(t, api, id); got != size {
		t.Errorf("a client that reads got %d bytes", got)
	}
	until(t, "both are given up", func() bool { return unread(t, base) == 2 })
	if took := time.Since(began); took < httpx.ReadMax/2 {
		t.Errorf("they were given up after %v", took)
	}
}

// readOutput returns how many bytes of output there are.
func readOutput(t *testing.T, api *client.Client, action uint64) (bytes int) {
	t.Helper()
	stream, err := api.Actions.ReadActionOutput(t.Context(), &rotav1.ReadActionOutputRequest{ActionId: action})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		bytes += len(stream.Msg().Chunk.Data)
	}
	if err := stream.Err(); err != nil {
		t.Error(err)
	}
	return bytes
}

// unread is how many answers a server has ended.
func unread(t *testing.T, base string) int {
	t.Helper()
	resp, err := http.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "rota_unread_answers_total "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the server has no such metric")
	return 0
}
