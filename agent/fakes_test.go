package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/agent/plan"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"

	"rota/agent/runtime"
	"rota/internal/clock"
)

// supervisor is a runtime in memory that outlives agents, as the real one does.
type supervisor struct {
	t testing.TB

	mu       sync.Mutex
	running  map[plan.Key]runtime.Spec
	ended    map[plan.Key]plan.Exit
	starts   map[plan.Key]int
	kills    map[plan.Key]plan.Reason
	frozen   map[plan.Key]bool
	immortal bool // kills have no effect
	// diesBeforeList is how many supervisors die before they answer a list.
	diesBeforeList int
	deadline       int64
	// deadlineTakes is how long a deadline is on its way.
	deadlineTakes time.Duration
	// unanswered is how many deadlines are never answered.
	unanswered int
	refused    int // starts after the deadline
	link       *link
	exitsMax   int // exits that a link holds
	kept       [][]uint64
	dir        string // that of trajectories
	changed    chan struct{}
}

// link is one agent's connection to it.
type link struct {
	*supervisor
	exits chan plan.Exit
	once  sync.Once
}

func newSupervisor(t testing.TB) *supervisor {
	return &supervisor{
		t: t, running: map[plan.Key]runtime.Spec{}, ended: map[plan.Key]plan.Exit{},
		starts: map[plan.Key]int{}, kills: map[plan.Key]plan.Reason{}, frozen: map[plan.Key]bool{}, changed: make(chan struct{}),
	}
}

func (s *supervisor) dial(context.Context) (runtime.Runtime, error) {
	s.lock()
	defer s.unlock()
	l := &link{supervisor: s, exits: make(chan plan.Exit, max(1000, s.exitsMax))}
	for _, e := range s.ended {
		l.exits <- e
	}
	s.link = l
	return l, nil
}

func (s *supervisor) lock() { s.mu.Lock() }

func (s *supervisor) unlock() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

func (s *supervisor) end(e plan.Exit) {
	delete(s.running, e.Key)
	s.ended[e.Key] = e
	if s.link != nil {
		s.link.exits <- e
	}
}

// finish lets a running attempt exit with code 0.
func (s *supervisor) finish(key plan.Key) {
	s.lock()
	defer s.unlock()
	s.end(plan.Exit{Key: key, Reason: plan.ReasonExited, Stdout: []byte("done\n")})
}

// crash loses everything, as the death of a supervisor process does. With
// forgetful its successor does not even know what it ran.
func (s *supervisor) crash(forgetful bool) {
	s.lock()
	defer s.unlock()
	l := s.link
	s.link = nil
	for key := range s.running {
		delete(s.running, key)
		if !forgetful {
			s.ended[key] = plan.Exit{Key: key, Reason: plan.ReasonSupervisorLost}
		}
	}
	l.hangUp()
}

func (l *link) Close() error {
	l.lock()
	defer l.unlock()
	if l.link == l {
		l.link = nil
	}
	l.hangUp()
	return nil
}

func (l *link) hangUp() { l.once.Do(func() { close(l.exits) }) }

func (l *link) Exits() <-chan plan.Exit { return l.exits }

func (s *supervisor) Describe() runtime.Description {
	return runtime.Description{Mode: "process", Resizes: true}
}

func (s *supervisor) Stop(context.Context) error { return nil }

func (s *supervisor) Start(_ context.Context, spec runtime.Spec) error {
	s.lock()
	defer s.unlock()
	if s.deadline == 0 {
		s.t.Errorf("attempt %s was started without a lease", spec.Key)
	}
	if clock.Boottime() >= s.deadline {
		s.refused++
		return runtime.ErrDeadlinePassed
	}
	for key := range s.running {
		if key.Action == spec.Key.Action || key.Incarnation != spec.Key.Incarnation {
			s.t.Errorf("attempt %s was started while %s runs", spec.Key, key)
		}
	}
	s.running[spec.Key] = spec
	if s.starts[spec.Key]++; s.starts[spec.Key] > 1 {
		s.t.Errorf("attempt %s was started twice", spec.Key)
	}
	return nil
}

func (s *supervisor) Resize(_ context.Context, key plan.Key, cpus []int) error {
	s.lock()
	defer s.unlock()
	if spec, runs := s.running[key]; runs {
		spec.CPUs = cpus
		s.running[key] = spec
	}
	return nil
}

func (s *supervisor) Freeze(_ context.Context, key plan.Key, frozen bool) error {
	s.lock()
	defer s.unlock()
	if _, runs := s.running[key]; runs {
		s.frozen[key] = frozen
	}
	return nil
}

func (s *supervisor) Kill(_ context.Context, key plan.Key, reason plan.Reason) error {
	s.lock()
	defer s.unlock()
	s.kills[key] = reason
	if _, runs := s.running[key]; runs && !s.immortal {
		s.end(plan.Exit{Key: key, Reason: reason})
	}
	return nil
}

func (s *supervisor) WriteInput(context.Context, plan.Key, runtime.Input) (runtime.InputState, error) {
	return runtime.InputState{}, runtime.ErrNotRunning
}

func (s *supervisor) Signal(context.Context, plan.Key, runtime.Signal) error {
	return runtime.ErrNotRunning
}

func (s *supervisor) ResizeTerminal(context.Context, plan.Key, runtime.Terminal) error {
	return runtime.ErrNotRunning
}

func (s *supervisor) List(context.Context) (running []plan.Running, ended []plan.Exit, err error) {
	s.lock()
	defer s.unlock()
	if s.diesBeforeList > 0 {
		s.diesBeforeList--
		return nil, nil, runtime.ErrLost
	}
	for key, spec := range s.running {
		running = append(running, plan.Running{Key: key, CPUs: spec.CPUs})
	}
	for _, e := range s.ended {
		ended = append(ended, e)
	}
	return running, ended, nil
}

func (s *supervisor) Forget(_ context.Context, keys []plan.Key) error {
	s.lock()
	defer s.unlock()
	for _, key := range keys {
		delete(s.ended, key)
	}
	return nil
}

func (s *supervisor) KeepTrajectories(_ context.Context, open []uint64) error {
	s.lock()
	defer s.unlock()
	s.kept = append(s.kept, open)
	return nil
}

func (s *supervisor) MakeTrajectory(_ context.Context, trajectory uint64) (running int, err error) {
	return 0, os.MkdirAll(runtime.TrajectoryDir(s.dir, trajectory), 0o700)
}

func (s *supervisor) Measure(_ context.Context, trajectory uint64) (uses []runtime.Use, err error) {
	s.lock()
	defer s.unlock()
	for key, spec := range s.running {
		if spec.Trajectory == trajectory {
			uses = append(uses, runtime.Use{Key: key, CPU: time.Second, Memory: 2 << 20, MemoryPeak: 3 << 20})
		}
	}
	return uses, nil
}

func (s *supervisor) SetDeadline(ctx context.Context, boottimeNS int64) error {
	time.Sleep(s.deadlineTakes)
	s.lock()
	defer s.unlock()
	if s.unanswered > 0 {
		s.unanswered--
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return ctx.Err()
	}
	s.deadline = boottimeNS
	return nil
}

// until waits for a condition on a supervisor.
func (s *supervisor) until(what string, cond func(*supervisor) bool) {
	s.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		ok, changed := cond(s), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			s.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func (s *supervisor) untilRuns(keys ...plan.Key) {
	s.t.Helper()
	s.until("attempts to run", func(s *supervisor) bool {
		return !slices.ContainsFunc(keys, func(k plan.Key) bool { _, runs := s.running[k]; return !runs })
	})
}

// cluster is the servers as an agent sees them: some addresses, one state.
type cluster struct {
	rotav1connect.UnimplementedAgentServiceHandler
	t         testing.TB
	addresses []string
	listeners []*http.Server

	mu          sync.Mutex
	changed     chan struct{}
	incarnation uint64
	nextNumber  uint64 // of an incarnation; 0: the same for ever
	index       uint64
	desired     map[plan.Key]*rotav1.Assignment
	script      []*rotav1.WatchNodeResponse // sent first, as it is
	lease       time.Duration
	noLeases    bool
	fenced      bool
	noReports   bool
	registered  []*rotav1.RegisterNodeRequest
	reports     map[plan.Key]*rotav1.ActionResult
	throttles   map[plan.Key]*rotav1.Throttle
	reported    int // requests that arrived
	watchers    map[string]int
	lowDisk     []bool // as it was reported
	sickGPUs    []string
	engines     []*rotav1.DesiredEngine
	engineSaid  []*rotav1.EngineReport // all, in order
	migrations  []*rotav1.DesiredMigration
	migrated    []*rotav1.MigrationReport // all, in order
	unheard     int                       // so many reports of migrations fail
}

// serverReadMax is what real servers read of one message.
const serverReadMax = 4 << 20

func newCluster(t testing.TB, servers int) *cluster {
	return newClusterReading(t, servers, serverReadMax)
}

// newClusterReading is a cluster that refuses messages of more than readMax bytes.
func newClusterReading(t testing.TB, servers, readMax int) *cluster {
	c := &cluster{
		t: t, changed: make(chan struct{}), incarnation: 7, nextNumber: 8, index: 100, lease: time.Minute,
		desired: map[plan.Key]*rotav1.Assignment{}, reports: map[plan.Key]*rotav1.ActionResult{}, throttles: map[plan.Key]*rotav1.Throttle{}, watchers: map[string]int{},
	}
	for range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle(rotav1connect.NewAgentServiceHandler(c, connect.WithReadMaxBytes(readMax)))
		srv := httpx.NewServer(mux)
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(func() { srv.Close() })
		c.addresses, c.listeners = append(c.addresses, l.Addr().String()), append(c.listeners, srv)
	}
	return c
}

// change changes the cluster's state and tells every stream.
func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index++
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// assign grants an action to the node, once there is one.
func (c *cluster) assign(action uint64, argv ...string) plan.Key {
	c.t.Helper()
	c.until("registration", func(c *cluster) bool { return len(c.registered) > 0 })
	key := plan.Key{Action: action, Attempt: 1}
	c.change(func() {
		key.Incarnation = c.incarnation
		c.desired[key] = assignment(action, argv...)
	})
	return key
}

func assignment(action uint64, argv ...string) *rotav1.Assignment {
	if len(argv) == 0 {
		argv = []string{"true"}
	}
	return &rotav1.Assignment{
		ActionId: action, Attempt: 1, Cpus: []uint32{0}, Namespace: "default",
		Command: &rotav1.Command{Argv: argv}, RunTimeout: durationpb.New(0),
	}
}

func (c *cluster) RegisterNode(_ context.Context, req *rotav1.RegisterNodeRequest) (*rotav1.RegisterNodeResponse, error) {
	resp := &rotav1.RegisterNodeResponse{ClusterId: "test"}
	c.change(func() {
		if req.Incarnation != c.incarnation && c.nextNumber > 0 {
			c.incarnation = c.nextNumber
			c.nextNumber++
			clear(c.desired)
		}
		c.registered = append(c.registered, req)
		c.fenced = false
		resp.Incarnation, resp.Index = c.incarnation, c.index
		resp.LeaseDuration, resp.LeaseMargin = durationpb.New(c.lease), durationpb.New(c.lease/4)
	})
	return resp, nil
}

func (c *cluster) WatchNode(ctx context.Context, req *rotav1.WatchNodeRequest, stream *connect.ServerStream[rotav1.WatchNodeResponse]) error {
	c.mu.Lock()
	script := c.script
	c.mu.Unlock()
	for _, m := range script {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	sent := map[plan.Key]bool{}
	for {
		c.mu.Lock()
		m := &rotav1.WatchNodeResponse{Index: c.index, Fenced: c.fenced || req.Incarnation != c.incarnation, Engines: c.engines, Migrations: c.migrations}
		for key, as := range c.desired {
			if as = proto.CloneOf(as); sent[key] {
				as.Command = nil
			}
			sent[key] = true
			m.Assignments = append(m.Assignments, as)
		}
		changed := c.changed
		c.mu.Unlock()
		if err := stream.Send(m); err != nil || m.Fenced {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-time.After(time.Second):
		}
	}
}

func (c *cluster) ReportAttempts(_ context.Context, req *rotav1.ReportAttemptsRequest) (*rotav1.ReportAttemptsResponse, error) {
	resp := &rotav1.ReportAttemptsResponse{}
	var err error
	c.change(func() {
		if c.reported++; c.noReports {
			err = connect.NewError(connect.CodeUnavailable, nil)
			return
		}
		resp.Index = c.index
		for _, r := range req.Reports {
			key := plan.Key{Action: r.ActionId, Attempt: r.Attempt, Incarnation: req.Incarnation}
			delete(c.desired, key)
			c.reports[key], c.throttles[key] = r.Result, r.Throttle
		}
	})
	return resp, err
}

func (c *cluster) RenewLease(_ context.Context, req *rotav1.RenewLeaseRequest) (*rotav1.RenewLeaseResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noLeases {
		return nil, connect.NewError(connect.CodeUnavailable, nil)
	}
	return &rotav1.RenewLeaseResponse{Fenced: c.fenced || req.Incarnation != c.incarnation}, nil
}

func (c *cluster) ReportGpus(_ context.Context, req *rotav1.ReportGpusRequest) (*rotav1.ReportGpusResponse, error) {
	sick := ""
	for _, s := range req.Sick {
		sick += fmt.Sprintf("%d: %s; ", s.Gpu, s.Reason)
	}
	c.change(func() { c.sickGPUs = append(c.sickGPUs, sick) })
	return &rotav1.ReportGpusResponse{}, nil
}

func (c *cluster) ReportDisk(_ context.Context, req *rotav1.ReportDiskRequest) (*rotav1.ReportDiskResponse, error) {
	c.change(func() { c.lowDisk = append(c.lowDisk, req.Low) })
	return &rotav1.ReportDiskResponse{}, nil
}

func (c *cluster) ReportEngines(_ context.Context, req *rotav1.ReportEnginesRequest) (*rotav1.ReportEnginesResponse, error) {
	c.change(func() { c.engineSaid = append(c.engineSaid, req.Reports...) })
	return &rotav1.ReportEnginesResponse{}, nil
}

func (c *cluster) ReportMigrations(_ context.Context, req *rotav1.ReportMigrationsRequest) (*rotav1.ReportMigrationsResponse, error) {
	var err error
	c.change(func() {
		if c.unheard--; c.unheard >= 0 {
			err = connect.NewError(connect.CodeUnavailable, nil)
			return
		}
		c.migrated = append(c.migrated, req.Reports...)
	})
	return &rotav1.ReportMigrationsResponse{}, err
}

// until waits for a condition on a cluster.
func (c *cluster) until(what string, cond func(*cluster) bool) {
	c.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		c.mu.Lock()
		ok, changed := cond(c), c.changed
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			c.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// result waits for the report of an attempt.
func (c *cluster) result(key plan.Key) *rotav1.ActionResult {
	c.t.Helper()
	c.until("the report of "+key.String(), func(c *cluster) bool { return c.reports[key] != nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports[key]
}
