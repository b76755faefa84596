package rpc_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/protobuf/proto"

	"rota/api/client"
	"rota/api/codec"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/api/pki"
	"rota/fsm"
	"rota/server/rpc"
)

func TestAnActionGoesThroughAnAgent(t *testing.T) {
	w := newWorld(t)
	a := w.agent("n1", nil)
	assignments := make(chan *rotav1.Assignment, 1)
	go a.serve(t.Context(), func(as *rotav1.Assignment) *rotav1.ActionResult {
		assignments <- as
		r := exited(0)
		r.Message = strings.Repeat("é", 1000)
		r.StdoutTail, r.StderrTail = bytes.Repeat([]byte("o"), 9000), []byte("err")
		return r
	})
	s := spec("make", "-j{{cores}}")
	s.Resources = &rotav1.Resources{Cores: proto.Uint32(2), MemoryBytes: 1 << 20}
	id := w.submit(s)
	as := <-assignments
	if as.ActionId != id || as.Attempt != 1 || len(as.Cpus) != 2 || as.MemoryBytes != 1<<20 || as.Command.Argv[1] != "-j{{cores}}" || as.Namespace != "default" {
		t.Errorf("assigned %v", as)
	}
	eventually(t, "the report arrives", func() bool { return client.Final(w.get(id).State) })
	got := w.get(id)
	if r := got.Result; len(r.StdoutTail)+len(r.StderrTail) > 4096 || string(r.StderrTail) != "err" || len(r.Message) > 1024 {
		t.Errorf("kept %d + %d bytes of output and %d of message", len(r.StdoutTail), len(r.StderrTail), len(r.Message))
	}
	// Late and repeated reports change nothing and are answered like any other.
	before := revision(w.machine)
	a.report(id, 1, exited(9))
	a.report(id, 7, exited(9))
	if after := revision(w.machine); after != before || w.get(id).State != got.State {
		t.Errorf("revision went from %d to %d: %v", before, after, w.get(id))
	}
}

func TestAnHTTPCallGoesToAnAgent(t *testing.T) {
	w := newWorld(t)
	a := w.agent("n1", nil)
	assignments := make(chan *rotav1.Assignment, 1)
	go a.serve(t.Context(), func(as *rotav1.Assignment) *rotav1.ActionResult {
		assignments <- as
		return exited(22)
	})
	call := &rotav1.HttpCall{Url: "http://engine:8000/wake_up", Method: "POST", Headers: map[string]string{"A": "1", "B": "2"}, Accept: []uint32{200}}
	id := w.submit(&rotav1.ActionSpec{Http: call})
	if as := <-assignments; as.Command != nil || !proto.Equal(as.Http, call) {
		t.Errorf("assigned %v", as)
	}
	eventually(t, "the report arrives", func() bool { return client.Final(w.get(id).State) })
	for name := range call.Headers {
		call.Headers[name] = "[redacted]"
	}
	if got := w.get(id); got.State != rotav1.ActionState_ACTION_STATE_FAILED || !proto.Equal(got.Spec.Http, call) {
		t.Errorf("ended as %v", got)
	}
}

// TestReportsAreCommittedInParts reports more at once than one entry should settle.
func TestReportsAreCommittedInParts(t *testing.T) {
	w := newWorld(t)
	a := w.agent("n1", nil)
	var weights []int
	w.lost = func(c *logv1.Command) error {
		weights = append(weights, fsm.Weight(c))
		return nil
	}
	req := &rotav1.ReportAttemptsRequest{Name: a.name, Incarnation: a.incarnation}
	for i := range uint64(1024) {
		req.Reports = append(req.Reports, &rotav1.AttemptReport{ActionId: 1 + i, Attempt: 1, Result: exited(0)})
	}
	resp, err := w.agents().ReportAttempts(t.Context(), req)
	if err != nil || resp.Index != w.machine.Applied() {
		t.Fatalf("answered %v, %v; want index %d", resp, err, w.machine.Applied())
	}
	if want := []int{fsm.EntryWeight, fsm.EntryWeight}; !slices.Equal(weights, want) {
		t.Errorf("the parts weigh %v, want %v", weights, want)
	}
}

func TestAnOldIncarnationIsFenced(t *testing.T) {
	w := newWorld(t)
	a := w.agent("n1", nil)
	fenced := make(chan error, 1)
	go func() { fenced <- a.serve(t.Context(), nil) }()
	eventually(t, "the agent is connected", func() bool { return w.hub.Connected() == 1 })
	req := registration("n1", "127.0.0.1:1")
	req.MemoryBytes /= 2 // the machine was rebuilt
	resp, err := w.agents().RegisterNode(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Incarnation == a.incarnation {
		t.Fatalf("the incarnation is still %d", a.incarnation)
	}
	if err := <-fenced; err != nil {
		t.Errorf("the old stream ended with %v", err)
	}
}

func issue(t *testing.T, dir string, role pki.Role, name string) pki.Files {
	t.Helper()
	if err := pki.Issue(dir, role, name); err != nil {
		t.Fatal(err)
	}
	return pki.FilesIn(dir, name)
}

func TestRolesDecideWhoMayCallWhat(t *testing.T) {
	w := newWorld(t, func(d *rpc.Deps) { d.TLS = true })
	dir := t.TempDir()
	if err := pki.NewCA(dir); err != nil {
		t.Fatal(err)
	}
	issued, name := 0, "" // name is the newest certificate's
	files := func(role pki.Role) pki.Files {
		issued++
		name = fmt.Sprint(role, issued)
		return issue(t, dir, role, name)
	}
	conf, err := pki.ServerConfig(files(pki.RoleServer))
	if err != nil {
		t.Fatal(err)
	}
	conf.NextProtos = []string{"h2", "http/1.1"}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httpx.NewServer(w.server)
	go srv.Serve(tls.NewListener(l, conf))
	t.Cleanup(func() { srv.Close() })

	for _, c := range []struct {
		role                    pki.Role
		agent, client, operator bool
	}{
		{pki.RoleServer, false, true, true},
		{pki.RoleOperator, false, true, true},
		{pki.RoleClient, false, true, false},
		{pki.RoleAgent, true, false, false},
	} {
		t.Run(string(c.role), func(t *testing.T) {
			conf, err := pki.ClientConfig(files(c.role), pki.RoleServer)
			if err != nil {
				t.Fatal(err)
			}
			h := httpx.NewClient(conf)
			defer h.CloseIdleConnections()
			url := httpx.BaseURL(l.Addr().String(), true)
			verdict := func(err error) bool {
				if code := connect.CodeOf(err); err != nil && code != connect.CodePermissionDenied {
					t.Errorf("unexpected error: %v", err)
				} else if err != nil && client.Detail(err).GetReason() != "WRONG_ROLE" && client.Detail(err).GetReason() != "OPERATOR_REQUIRED" {
					t.Errorf("no detail in %v", err)
				}
				return err == nil
			}
			_, err = rotav1connect.NewAgentServiceClient(h, url, codec.ForClient()).
				RenewLease(t.Context(), &rotav1.RenewLeaseRequest{Name: name, Incarnation: 1})
			if verdict(err) != c.agent {
				t.Errorf("agent service: %v", err)
			}
			_, err = rotav1connect.NewAgentServiceClient(h, url, codec.ForClient()).
				RenewLease(t.Context(), &rotav1.RenewLeaseRequest{Name: "another", Incarnation: 1})
			if reason := client.Detail(err).GetReason(); c.agent && reason != "WRONG_NODE" {
				t.Errorf("for another node: %v", err)
			}
			_, err = rotav1connect.NewOperatorServiceClient(h, url, codec.ForClient()).
				GetStatus(t.Context(), &rotav1.GetStatusRequest{})
			if verdict(err) != c.client {
				t.Errorf("operator service: %v", err)
			}
			_, err = rotav1connect.NewOperatorServiceClient(h, url, codec.ForClient()).
				RemovePeer(t.Context(), &rotav1.RemovePeerRequest{Id: "server-2"})
			if verdict(err) != c.operator {
				t.Errorf("removal of a server: %v", err)
			}
			if _, err := grpchealth.NewClient(h, url).Check(t.Context(), &grpchealth.CheckRequest{}); err != nil {
				t.Errorf("health: %v", err)
			}
		})
	}
	if _, err := w.operators().GetStatus(t.Context(), &rotav1.GetStatusRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("without TLS: %v", err)
	}
}

// operatorAt records what is passed on to it.
type operatorAt struct {
	rotav1connect.OperatorServiceClient
	removed []string
}

func (o *operatorAt) RemovePeer(_ context.Context, req *rotav1.RemovePeerRequest) (*rotav1.RemovePeerResponse, error) {
	o.removed = append(o.removed, req.Id)
	return &rotav1.RemovePeerResponse{}, nil
}

func TestMembershipIsChangedAtTheLeader(t *testing.T) {
	w := newWorld(t)
	leader := &operatorAt{}
	w.operator = leader
	remove := func() error {
		_, err := w.operators().RemovePeer(t.Context(), &rotav1.RemovePeerRequest{Id: "s3"})
		return err
	}
	if err := remove(); err != nil || len(leader.removed) != 0 {
		t.Errorf("at the leader: %v, passed on %v", err, leader.removed)
	}
	w.leader = [2]string{"s2", "127.0.0.1:2"}
	if err := remove(); err != nil || fmt.Sprint(leader.removed) != "[s3]" {
		t.Errorf("at a follower: %v, passed on %v", err, leader.removed)
	}
	// Two servers that each believe the other to lead must not play ping-pong.
	w.operator = w.operators()
	if err := remove(); client.Detail(err).GetReason() != "NO_LEADER" {
		t.Errorf("in a circle: %v", err)
	}
	w.leader = [2]string{"s2", ""}
	if err := remove(); client.Detail(err).GetReason() != "NO_LEADER" {
		t.Errorf("without a leader: %v", err)
	}
}

func TestStatusAndPools(t *testing.T) {
	w := newWorld(t)
	w.agent("n1", nil)
	w.submit(spec("true")) // runs
	big := spec("true")
	big.Resources = &rotav1.Resources{Cores: proto.Uint32(4)}
	w.submit(big) // waits
	status, err := w.operators().GetStatus(t.Context(), &rotav1.GetStatusRequest{})
	if err != nil || status.QueuedActions != 1 || status.RunningActions != 1 || status.NodesUp != 1 || status.LeaderId != "s1" || status.LogTime == nil {
		t.Errorf("status is %v, %v", status, err)
	}
	pools, err := w.operators().ListPools(t.Context(), &rotav1.ListPoolsRequest{})
	if err != nil || len(pools.Pools) != 1 || pools.Pools[0].QueuedActions != 1 || pools.Pools[0].NodesUp != 1 {
		t.Errorf("pools are %v, %v", pools, err)
	}
	nodes, err := rotav1connect.NewNodeServiceClient(w.http, w.url).ListNodes(t.Context(), &rotav1.ListNodesRequest{})
	if err != nil || len(nodes.Nodes) != 1 || nodes.Nodes[0].RunningActions != 1 || len(nodes.Nodes[0].FreeCpus) != 3 || nodes.Nodes[0].Labels["zone"] != "a" {
		t.Errorf("nodes are %v, %v", nodes, err)
	}
	hash, err := w.operators().GetStateHash(t.Context(), &rotav1.GetStateHashRequest{MinIndex: w.machine.Applied()})
	if err != nil || len(hash.Hash) != 16 {
		t.Errorf("hash is %v, %v", hash, err)
	}
}
