package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/api/gen/peer/v1/peerv1connect"
	"rota/fsm/state"
)

// machine is a state machine that remembers the names of the namespaces that
// were created, in order.
type machine struct {
	mu      sync.Mutex
	changed broadcaster
	state   machineState
	block   chan struct{}      // Apply waits for it if not nil: see hold
	level   func() state.Level // LevelMin if nil
}

type machineState struct {
	Applied uint64
	Now     int64
	Names   []string
	Hash    uint64
}

// hold has Apply wait until release is called.
func (m *machine) hold() (release func()) {
	block := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.block = block
	return func() { close(block) }
}

func (m *machine) Apply(l *raft.Log) any {
	m.mu.Lock()
	block := m.block
	m.mu.Unlock()
	if block != nil {
		<-block
	}
	var entry logv1.Entry
	if err := entry.UnmarshalVT(l.Data); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Now = max(m.state.Now, entry.TimeNs)
	results := make([]*logv1.Result, len(entry.Commands))
	for i, c := range entry.Commands {
		name := c.GetCreateNamespace().GetName()
		m.state.Names = append(m.state.Names, name)
		h := fnv.New64a()
		fmt.Fprint(h, m.state.Hash, l.Index, l.Term, name)
		m.state.Hash = h.Sum64()
		results[i] = &logv1.Result{Index: l.Index, FirstId: uint64(len(m.state.Names))}
	}
	m.state.Applied = l.Index
	m.changed.fire()
	return results
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	s := m.view()
	return s, nil
}

func (s machineState) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode(s); err != nil {
		return err
	}
	return sink.Close()
}

func (s machineState) Release() {}

func (m *machine) Restore(r io.ReadCloser) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = machineState{}
	defer m.changed.fire()
	return json.NewDecoder(r).Decode(&m.state)
}

func (m *machine) view() machineState {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	s.Names = append([]string(nil), s.Names...)
	return s
}

func (m *machine) Now() int64      { return m.view().Now }
func (m *machine) Applied() uint64 { return m.view().Applied }

func (m *machine) Level() state.Level {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.level == nil {
		return state.LevelMin
	}
	return m.level()
}

func (m *machine) WaitApplied(ctx context.Context, index uint64) error {
	for {
		changed := m.changed.wait()
		if m.Applied() >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stream is a TCP stream layer that can be partitioned, or cut off as kill -9
// does.
type stream struct {
	net.Listener
	mu    sync.Mutex
	conns map[net.Conn]bool
	// Refused directions.
	noIn, noOut bool
	// delay is put before every read of an accepted connection.
	delay time.Duration
}

func listen(t testing.TB, address string) *stream {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return &stream{Listener: l, conns: make(map[net.Conn]bool)}
}

func (s *stream) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		if s.noIn {
			_ = conn.Close()
			s.mu.Unlock()
			continue
		}
		s.conns[conn] = true
		if s.delay > 0 {
			conn = slowConn{conn, s.delay}
		}
		s.mu.Unlock()
		return conn, nil
	}
}

type slowConn struct {
	net.Conn
	delay time.Duration
}

func (c slowConn) Read(p []byte) (int, error) {
	time.Sleep(c.delay)
	return c.Conn.Read(p[:min(len(p), 4096)])
}

func (s *stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", string(address), timeout)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noOut {
		_ = conn.Close()
		return nil, syscall.EHOSTUNREACH
	}
	s.conns[conn] = true
	return conn, nil
}

// partition closes all connections and refuses new ones as told.
func (s *stream) partition(noIn, noOut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noIn, s.noOut = noIn, noOut
	for c := range s.conns {
		_ = c.Close()
	}
	clear(s.conns)
}

// cut closes everything at once.
func (s *stream) cut() {
	_ = s.Listener.Close()
	s.partition(true, true)
}

// node is one server of a test cluster.
type node struct {
	id, address string
	dir         string
	stream      *stream
	machine     *machine
	replica     *Replica
	exit        chan error
	peer        *http.Server
}

type cluster struct {
	t     testing.TB
	nodes []*node
	edit  func(*Config)

	mu    sync.Mutex
	peers map[string]string // raft address to HTTP address
	http  *http.Client

	servers []*http.Server
}

type peerHandler struct {
	peerv1connect.UnimplementedPeerServiceHandler
	r *Replica
}

func (h peerHandler) Propose(ctx context.Context, req *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	return h.r.ServePropose(ctx, req)
}

func (h peerHandler) ReadIndex(ctx context.Context, req *peerv1.ReadIndexRequest) (*peerv1.ReadIndexResponse, error) {
	return h.r.ServeReadIndex(ctx, req)
}

func (h peerHandler) Describe(ctx context.Context, req *peerv1.DescribeRequest) (*peerv1.DescribeResponse, error) {
	return h.r.ServeDescribe(ctx, req)
}

// newCluster starts n voters; edit may change each one's Config.
func newCluster(t testing.TB, n int, edit func(*Config)) *cluster {
	t.Helper()
	c := newClusterOf(t, n, edit)
	c.startAll()
	return c
}

func (c *cluster) startAll() {
	c.t.Helper()
	servers := c.bootstrapList()
	for _, nd := range c.nodes {
		c.start(nd, servers)
	}
	for _, nd := range c.nodes {
		eventually(c.t, nd.id+" votes", func() bool { return !nd.replica.Status().Quarantined })
	}
}

// newQuietCluster starts n voters that wait long for a leader, and elects one. They found the
// cluster with ordinary time-outs: the servers that do so first may split their first vote, and
// those that come too late then wait for the next.
func newQuietCluster(t testing.TB, n int, heartbeat time.Duration, edit func(*Config)) (c *cluster, lead *node) {
	t.Helper()
	c = newCluster(t, n, nil)
	c.edit = func(cfg *Config) {
		cfg.HeartbeatTimeout, cfg.LeaderLease = heartbeat, heartbeat
		if edit != nil {
			edit(cfg)
		}
	}
	for _, nd := range c.nodes {
		c.kill(nd)
	}
	for _, nd := range c.nodes {
		c.start(nd, nil)
	}
	return c, c.elect()
}

// newClusterOf is newCluster before any voter was started.
func newClusterOf(t testing.TB, n int, edit func(*Config)) *cluster {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c := &cluster{
		t: t, edit: edit, peers: make(map[string]string),
		http: &http.Client{Transport: &http.Transport{Protocols: protocols}},
	}
	root := t.TempDir()
	for i := range n {
		nd := &node{id: fmt.Sprintf("s%d", i+1), stream: listen(t, "127.0.0.1:0")}
		nd.address = nd.stream.Addr().String()
		nd.dir = filepath.Join(root, nd.id)
		c.nodes = append(c.nodes, nd)
	}
	t.Cleanup(c.close)
	return c
}

func testLogger() hclog.Logger {
	if os.Getenv("REPLICA_TEST_LOG") == "" {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, TimeFormat: "15:04:05.000"})
}

func (c *cluster) config(nd *node, bootstrap []Server) Config {
	cfg := Config{
		ServerID: nd.id, Dir: nd.dir, Address: nd.address, Machine: nd.machine, Stream: nd.stream,
		PeerClient: c.client, Bootstrap: bootstrap, Logger: testLogger().Named(nd.id),
		Exit:             func(err error) { nd.exit <- err },
		HeartbeatTimeout: 600 * time.Millisecond,
		LeaderLease:      600 * time.Millisecond,
	}
	if c.edit != nil {
		c.edit(&cfg)
	}
	return cfg
}

// start opens a node that is not running.
func (c *cluster) start(nd *node, bootstrap []Server) {
	c.t.Helper()
	if nd.stream == nil {
		nd.stream = listen(c.t, nd.address)
	}
	nd.machine = &machine{}
	nd.exit = make(chan error, 16)
	r, err := Open(c.config(nd, bootstrap))
	if err != nil {
		c.t.Fatalf("open %s: %v", nd.id, err)
	}
	nd.replica = r
	address := c.serve(peerHandler{r: r})
	nd.peer = c.servers[len(c.servers)-1]
	c.mu.Lock()
	c.peers[nd.address] = address
	c.mu.Unlock()
}

// serve answers PeerService on a port of its own and returns its URL.
func (c *cluster) serve(service peerv1connect.PeerServiceHandler) string {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	_, h := peerv1connect.NewPeerServiceHandler(service)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: h, Protocols: protocols}
	c.servers = append(c.servers, server)
	go func() { _ = server.Serve(l) }()
	return "http://" + l.Addr().String()
}

func (c *cluster) client(address string) peerv1connect.PeerServiceClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	return peerv1connect.NewPeerServiceClient(c.http, c.peers[address])
}

// kill ends a node as kill -9 would: its ports refuse at once.
func (c *cluster) kill(nd *node) {
	nd.stream.cut()
	_ = nd.peer.Close()
	r := nd.replica
	r.once.Do(func() { _ = r.stop(context.Background()) })
	nd.replica, nd.stream = nil, nil
}

// shutdown ends a node gracefully.
func (c *cluster) shutdown(nd *node) {
	c.t.Helper()
	if err := nd.replica.Shutdown(c.ctx()); err != nil {
		c.t.Errorf("shut down %s: %v", nd.id, err)
	}
	_ = nd.peer.Close()
	nd.replica, nd.stream = nil, nil
}

func (c *cluster) close() {
	for _, nd := range c.nodes {
		if nd.replica != nil {
			c.kill(nd)
		}
	}
	for _, s := range c.servers {
		_ = s.Close()
	}
	c.http.CloseIdleConnections()
}

const testPatience = 12 * time.Second

func (c *cluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	c.t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testPatience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// leader waits for a node that is ready to lead.
func (c *cluster) leader() *node {
	c.t.Helper()
	var lead *node
	eventually(c.t, "a leader", func() bool {
		for _, nd := range c.nodes {
			if nd.replica != nil && nd.replica.IsLeader() {
				lead = nd
				return true
			}
		}
		return false
	})
	return lead
}

// followers are the running nodes that do not lead, once they know who does.
func (c *cluster) followers() []*node {
	c.t.Helper()
	lead := c.leader()
	var nodes []*node
	for _, nd := range c.nodes {
		if nd.replica == nil || nd == lead {
			continue
		}
		eventually(c.t, nd.id+" knows the leader", func() bool {
			id, _ := nd.replica.Leader()
			return id == lead.id
		})
		nodes = append(nodes, nd)
	}
	return nodes
}

func create(name string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: name}}}
}

// propose commits one name through a node.
func (c *cluster) propose(nd *node, name string) *logv1.Result {
	c.t.Helper()
	results, err := nd.replica.Propose(c.ctx(), create(name))
	if err != nil {
		c.t.Fatalf("propose %q through %s: %v", name, nd.id, err)
	}
	return results[0]
}

// agree waits until all running nodes have the same state.
func (c *cluster) agree() machineState {
	c.t.Helper()
	var first machineState
	eventually(c.t, "all nodes have the same state", func() bool {
		any := false
		for _, nd := range c.nodes {
			if nd.replica == nil {
				continue
			}
			s := nd.machine.view()
			if !any {
				first, any = s, true
			}
			if s.Applied != first.Applied || s.Hash != first.Hash {
				return false
			}
		}
		return true
	})
	return first
}
