package hostile

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
	"rota/cmd/internal/devcluster"
)

const (
	// atOnce is how many requests are sent in parallel.
	atOnce = 64
	// decodingMemoryMax is what a process may take in memory meanwhile.
	decodingMemoryMax = 1 << 30
)

// bomb is a request that is small on the wire, or within its limit, and large in
// memory if it is decoded.
type bomb struct {
	name, path, contentType string
	agent                   bool // it is sent to the agent
	zipped                  bool
	body                    string
	// decoded: it is just within what one request may take, so some are decoded, and
	// then refused for what they say.
	decoded bool
}

// bombs are one for each endpoint, and one for each encoding.
func bombs() []bomb {
	const protocol, empties = "application/proto", 2<<20 - 8
	many := func(number byte) string { return zipped(bytes.Repeat([]byte{number<<3 | 2, 0}, empties)) }
	return []bomb{
		{name: "actions", path: "/rota.v1.ActionService/SubmitActions", contentType: protocol, zipped: true, body: many(4)},
		{name: "strings in a command", path: "/rota.v1.ActionService/SubmitActions", contentType: protocol, zipped: true,
			body: zipped([]byte(field(4, field(4, strings.Repeat("\x0a\x00", empties-16)))))},
		{name: "actions in JSON", path: "/rota.v1.ActionService/SubmitActions", contentType: "application/json",
			body: `{"actions":[{}` + strings.Repeat(",{}", 1<<20) + `]}`},
		{name: "reports of an agent", path: "/rota.v1.AgentService/ReportAttempts", contentType: protocol, zipped: true, body: many(3)},
		{name: "NUMA nodes of an agent", path: "/rota.v1.AgentService/RegisterNode", contentType: protocol, zipped: true, body: many(6)},
		{name: "commands of a server", path: "/peer.v1.PeerService/Propose", contentType: protocol, zipped: true, body: many(1)},
		{name: "actions just within the limit", path: "/rota.v1.ActionService/SubmitActions", contentType: protocol,
			body: strings.Repeat("\x22\x00", 100_000), decoded: true},
		{name: "strings just within the limit", path: "/rota.v1.ActionService/SubmitActions", contentType: protocol,
			body: field(4, field(4, strings.Repeat("\x0a\x00", 600_000))), decoded: true},
		{name: "output", agent: true, path: "/rota.v1.OutputService/ReadOutput", contentType: "application/grpc+proto",
			body: envelope(strings.Repeat("x", 4<<20))},
	}
}

// TestDecoding: 64 requests in parallel that are small on the wire and would be
// gigabytes in memory. Each is refused; the leader stays in office, the agent keeps
// its lease, and no process takes more than a gigabyte.
func TestDecoding(t *testing.T) {
	t.Parallel()
	cluster, api := startCluster(t, devcluster.Config{}, pki.Files{})
	before, err := api.Operator.GetStatus(t.Context(), &rotav1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bombs() {
		t.Run(b.name, func(t *testing.T) {
			target := cluster.Servers[0]
			if b.agent {
				target = cluster.Agents[0]
			}
			b.throw(t, target.Addr)
			if peak := memoryPeak(t, target.Pid()); peak > decodingMemoryMax {
				t.Errorf("%s has used %d MiB", target.Name, peak>>20)
			}
		})
	}
	after, err := api.Operator.GetStatus(t.Context(), &rotav1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if after.Term != before.Term || after.LeaderId != before.LeaderId || after.NodesUp != 1 {
		t.Errorf("leader %s of term %d with %d nodes up became %s of term %d with %d",
			before.LeaderId, before.Term, before.NodesUp, after.LeaderId, after.Term, after.NodesUp)
	}
}

// throw sends the request many times in parallel. Each must be refused as what it
// is, or because others are being decoded.
func (b bomb) throw(t *testing.T, addr string) {
	t.Helper()
	var wg sync.WaitGroup
	said := make([]string, atOnce)
	for i := range said {
		wg.Go(func() { said[i] = b.send(t, addr) })
	}
	wg.Wait()
	decoded := 0
	for _, answer := range said {
		switch {
		case b.decoded && strings.Contains(answer, "invalid_argument"):
			decoded++
		case !strings.Contains(answer, "resource_exhausted") && !strings.Contains(answer, "Grpc-Status 8"):
			t.Fatalf("answered %q", answer)
		}
	}
	if b.decoded && decoded == 0 {
		t.Error("none was decoded: this is above the limit of one request")
	}
	t.Logf("%d of %d were decoded", decoded, atOnce)
}

func (b bomb) send(t *testing.T, addr string) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+b.path, strings.NewReader(b.body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", b.contentType)
	if b.zipped {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, Grpc-Status %s: %s", resp.Status, resp.Header.Get("Grpc-Status")+resp.Trailer.Get("Grpc-Status"), answer)
}
