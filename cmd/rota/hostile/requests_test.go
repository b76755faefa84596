package hostile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
	"rota/cmd/internal/devcluster"
)

// request is something that a server has to refuse or to ignore.
type request struct {
	name string
	// path is SERVICE/METHOD in rota.v1, or a whole path.
	path, contentType, body string
	method                  string // POST if empty
	header                  map[string]string
	// code is Connect's, or "ok"; says is in the answer.
	code, says string
}

// scene is a cluster with something of everything, and what is known of it.
type scene struct {
	*testing.T
	base                           string
	api                            *client.Client
	running, queued, ended, absent uint64 // actions
	node                           *rotav1.Node
	trajectory                     uint64
}

// TestRequests: whatever is sent, the answer is clear and nothing changes.
func TestRequests(t *testing.T) {
	t.Parallel()
	cluster, api := startCluster(t, devcluster.Config{}, pki.Files{})
	s := &scene{T: t, base: "http://" + cluster.Servers[0].Addr, api: api}
	s.build()
	before := takeContents(t, cluster, api)
	seen := s.look()
	for name, requests := range map[string][]request{
		"malformed": s.malformed(), "oversized": s.oversized(), "unknown": s.unknown(), "invalid": s.invalid(),
		"replayed and expired": s.replayed(), "agent": s.agent(), "operator": s.operator(), "peer": s.peer(), "streams": s.streams(),
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range requests {
				t.Run(r.name, func(t *testing.T) {
					s.send(t, r)
					if now := s.look(); now != seen {
						t.Fatalf("something has changed, from\n%s\nto\n%s", seen, now)
					}
				})
			}
		})
	}
	t.Run("bytes", func(t *testing.T) {
		for name, text := range garbage {
			t.Run(name, func(t *testing.T) {
				var both sync.WaitGroup
				for _, p := range []*devcluster.Process{cluster.Servers[0], cluster.Agents[0]} {
					both.Go(func() { pour(t, p.Addr, text) })
				}
				both.Wait()
				if now := s.look(); now != seen {
					t.Fatalf("something has changed, from\n%s\nto\n%s", seen, now)
				}
			})
		}
	})
	for _, p := range []*devcluster.Process{cluster.Servers[0], cluster.Agents[0]} {
		if peak := memoryPeak(t, p.Pid()); peak > 512<<20 {
			t.Errorf("%s has used %d MiB", p.Name, peak>>20)
		}
	}
	// So that there is something to write, whatever was run of the above.
	s.send(t, request{path: "/peer.v1.PeerService/Propose", body: `{"commands":[{"tick":{}}]}`, code: "ok"})
	checkSame(t, before, takeContents(t, cluster, api))
}

// memoryPeak is the most memory that a process has had, in bytes. It must run.
func memoryPeak(t *testing.T, pid int) uint64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "VmHWM:")
	var kib uint64
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		t.Fatal(err)
	}
	t.Logf("process %d has had %d MiB", pid, kib>>10)
	return kib << 10
}

// garbage is what begins like something that the ports know. 0x01 announces
// Raft, whose requests are numbered from 0 and in MessagePack.
var garbage = map[string]string{
	"zeros":                       strings.Repeat("\x00", 1<<16),
	"TLS":                         "\x16\x03\x01\x02\x00\x01",
	"HTTP that never ends":        "POST / HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<20),
	"HTTP/2 with a bad frame":     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
	"Raft of an unknown kind":     "\x01\xff\xff\xff\xff",
	"Raft without sense":          "\x01\x00" + strings.Repeat("\xc1", 1<<12),
	"Raft with a long text":       "\x01\x00\x81\xdb\xff\xff\xff\xff",
	"Raft with a long array":      "\x01\x00\x81\xa7Entries\xdd\xff\xff\xff\xff",
	"Raft with a huge snapshot":   "\x01\x02\x81\xa4Size\xcf\x7f\xff\xff\xff\xff\xff\xff\xff",
	"Raft with maps without end":  "\x01\x00" + strings.Repeat("\x81\xa1x", 1<<18),
	"Raft with a header too long": "\x01\x00\x81\xa9RPCHeader\xdf\xff\xff\xff\xff",
}

// pour sends bytes and waits until the other side has had enough of them, or has
// made clear that it waits for more.
func pour(t *testing.T, addr, text string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return // it did not want to hear all of it
	}
	if err := conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20)) // any end is good
}

// build leaves one action running, one queued and one ended, and a trajectory.
func (s *scene) build() {
	s.Helper()
	s.ended = s.submit("first", 1, "true")
	if _, err := s.api.Wait(s.Context(), s.ended); err != nil {
		s.Fatal(err)
	}
	s.running = s.submit("second", 2, "sleep", "1000")
	s.queued = s.submit("third", 1, "true")
	s.absent = s.queued + 1000
	until(s.T, "an action runs", func() bool {
		resp, err := s.api.Actions.GetAction(s.Context(), &rotav1.GetActionRequest{Id: s.running})
		return err == nil && resp.Action.State == rotav1.ActionState_ACTION_STATE_RUNNING
	})
	open, err := s.api.Trajectories.OpenTrajectory(s.Context(), &rotav1.OpenTrajectoryRequest{MemoryBytes: 1 << 20})
	if err != nil {
		s.Fatal(err)
	}
	s.trajectory = open.Trajectory.Id
	node, err := s.api.Nodes.GetNode(s.Context(), &rotav1.GetNodeRequest{Name: "node-1"})
	if err != nil {
		s.Fatal(err)
	}
	s.node = node.Node
}

func (s *scene) submit(requestID string, cores uint32, argv ...string) uint64 {
	s.Helper()
	resp, err := s.api.Actions.SubmitActions(s.Context(), &rotav1.SubmitActionsRequest{
		RequestId: requestID,
		Actions:   []*rotav1.ActionSpec{{Command: &rotav1.Command{Argv: argv}, Resources: &rotav1.Resources{Cores: proto.Uint32(cores)}}},
	})
	if err != nil {
		s.Fatal(err)
	}
	return resp.Ids[0]
}

// look is everything that the API shows, but the clock.
func (s *scene) look() string {
	s.Helper()
	var b strings.Builder
	show := func(m proto.Message, err error) {
		if err != nil {
			s.Fatal(err)
		}
		raw, err := protojson.Marshal(m)
		if err != nil {
			s.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil { // protojson varies its spaces
			s.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", compact.Bytes())
	}
	ctx := s.Context()
	status, err := s.api.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
	if err == nil {
		status.LogTime, status.AppliedIndex, status.CommitIndex = nil, 0, 0
	}
	show(status, err)
	actions, err := s.api.Actions.ListActions(ctx, &rotav1.ListActionsRequest{PageSize: 1000})
	show(actions, err)
	trajectories, err := s.api.Trajectories.ListTrajectories(ctx, &rotav1.ListTrajectoriesRequest{IncludeEnded: true})
	show(trajectories, err)
	nodes, err := s.api.Nodes.ListNodes(ctx, &rotav1.ListNodesRequest{})
	show(nodes, err)
	namespaces, err := s.api.Operator.ListNamespaces(ctx, &rotav1.ListNamespacesRequest{})
	for _, n := range namespaces.GetNamespaces() {
		n.Usage.MemoryByteSeconds = 0 // it grows with time, as a trajectory is open
	}
	show(namespaces, err)
	pools, err := s.api.Operator.ListPools(ctx, &rotav1.ListPoolsRequest{})
	show(pools, err)
	peers, err := s.api.Operator.ListPeers(ctx, &rotav1.ListPeersRequest{})
	show(peers, err)
	return b.String()
}

// send sends a request and checks the answer.
func (s *scene) send(t *testing.T, r request) {
	t.Helper()
	path, method := r.path, r.method
	if !strings.HasPrefix(path, "/") {
		path = "/rota.v1." + path
	}
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.base+path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", r.contentType)
	if r.contentType == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	begin := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatalf("half an answer: %v", err)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("answered after %v", took)
	}
	if got := codeOf(resp, answer); got != r.code || !strings.Contains(string(answer), r.says) {
		t.Errorf("answered %s %q, want %s and %q", got, answer, r.code, r.says)
	}
}

// codeOf is the Connect code of an answer, or "http STATUS" where it has none.
// Errors must say something.
func codeOf(resp *http.Response, answer []byte) string {
	body := answer
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/connect+") {
		body = endOfStream(answer)
	} else if resp.StatusCode == http.StatusOK {
		return "ok"
	}
	var e struct {
		Error *struct{ Code, Message string }
		Code  string
		// Message is for people.
		Message string
	}
	if json.Unmarshal(body, &e) != nil {
		return "http " + fmt.Sprint(resp.StatusCode)
	}
	if e.Error != nil {
		e.Code, e.Message = e.Error.Code, e.Error.Message
	} else if resp.StatusCode == http.StatusOK {
		return "ok"
	}
	if e.Code == "" || e.Message == "" {
		return fmt.Sprintf("an error that says nothing (http %d)", resp.StatusCode)
	}
	return e.Code
}

// endOfStream is the last message of a stream, in which Connect puts the error.
func endOfStream(answer []byte) []byte {
	for len(answer) >= 5 {
		size := int(binary.BigEndian.Uint32(answer[1:5]))
		if len(answer) < 5+size {
			return nil
		}
		if answer[0]&2 != 0 {
			return answer[5 : 5+size]
		}
		answer = answer[5+size:]
	}
	return nil
}

// envelope is a message of a stream.
func envelope(body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))) + body
}

func zipped(body []byte) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body) // to memory
	w.Close()
	return b.String()
}

// field is a field of a protocol buffer that holds bytes.
func field(number protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
}
