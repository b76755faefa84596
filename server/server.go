package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/handshake"
	"rota/api/httpx"
	"rota/api/intake"
	"rota/api/pki"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/clock"
	"rota/internal/failpoint"
	"rota/sched"
	"rota/server/dispatch"
	"rota/server/e2b"
	"rota/server/entry"
	"rota/server/gossip"
	"rota/server/lease"
	"rota/server/mux"
	"rota/server/replica"
	"rota/server/rpc"
	"rota/server/ui"
)

// shutdownGrace bounds how long a stopping server waits for calls under way.
const shutdownGrace = 5 * time.Second

// Server is one running server.
type Server struct {
	cfg     Config
	logger  hclog.Logger
	machine *fsm.Machine
	replica *replica.Replica
	mux     *mux.Mux
	gossip  *gossip.Gossip
	hub     *rpc.Hub
	streams *dispatch.Hub
	routes  *rpc.Routes
	rpc     *rpc.Server
	http    *http.Server
	leases  *leases
	metrics *metrics
	// keyring is gossip, once that has started; pilot is what this server sees as the leader.
	keyring atomic.Pointer[gossip.Gossip]
	pilot   atomic.Pointer[rotav1.GetAutopilotResponse]
	ui      *ui.UI
	dial    dialer
	// peers is what requests of other servers share while they are decoded.
	peers *intake.Budget
	// stopping: it does not take new work.
	stopping atomic.Bool

	// opened is replica, for what Raft may call before Open has returned it.
	opened atomic.Pointer[replica.Replica]
	// observed is log time as of the newest entry, with this server's clock then.
	observed atomic.Pointer[moment]
	// applied wakes the ticker, checkpoints holds the newest hash to quote.
	applied     chan struct{}
	checkpoints chan fsm.Effect
	wg          sync.WaitGroup
}

type moment struct {
	logNS int64
	at    time.Time
}

// Run runs a server until ctx is done. A leader then hands over before it stops.
func Run(ctx context.Context, cfg Config) error {
	s, err := Start(cfg)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return s.Stop()
}

// Start starts a server; Stop must be called.
func Start(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, logger: cfg.Logger,
		applied: make(chan struct{}, 1), checkpoints: make(chan fsm.Effect, 1),
		peers: intake.NewBudget(peersDecodingMax),
	}
	s.observed.Store(&moment{at: clock.Now()})
	if err := s.listen(); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.mux.Close())
	}
	s.serve()
	if err := s.join(); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.logger.Info("server is up", "id", cfg.ID, "listen", cfg.Listen, "tls", cfg.TLS.Enabled(), "version", cfg.Version)
	return s, nil
}

// listen takes the port.
func (s *Server) listen() error {
	var err error
	if s.dial, err = newDialer(s.cfg.TLS); err != nil {
		return err
	}
	conf, err := serverTLS(s.cfg.TLS)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	if s.mux, err = mux.New(l, conf, s.logger); err != nil {
		return errors.Join(err, l.Close())
	}
	s.mux.LetIn(s.letsIn)
	return nil
}

// advertised is an address that others resolve. DNS may not know the name yet when its server starts.
type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

// open opens the log and the state machine behind it.
func (s *Server) open() error {
	s.machine = fsm.New(fsm.Options{
		Logger: s.logger.Named("fsm"), OnEffects: s.onEffects, OnFatal: s.cfg.Exit, Voters: s.voters,
	})
	s.hub = rpc.NewHub(s.machine)
	s.routes = rpc.NewRoutes()
	s.streams = dispatch.New(s.machine, s.logger.Named("dispatch"))
	s.streams.Trace = s.trace
	s.metrics = newMetrics(s)
	var err error
	s.replica, err = replica.Open(replica.Config{
		ServerID: s.cfg.ID, Dir: s.cfg.DataDir, Address: s.cfg.Advertise, Zone: s.cfg.Zone, Machine: s.machine,
		Stream:     mux.NewStreamLayer(s.mux, advertised(s.cfg.Advertise), s.dial.raft),
		PeerClient: s.dial.peer, Bootstrap: s.cfg.Bootstrap, ClusterID: s.clusterID,
		Logger: s.logger, Exit: s.cfg.Exit, LogStore: s.cfg.LogStore,
		HeartbeatTimeout: s.cfg.HeartbeatTimeout, SnapshotThreshold: s.cfg.SnapshotThreshold,
		TrailingLogs: s.cfg.TrailingLogs, DiskHangLimit: s.cfg.DiskHangLimit, Timings: s.metrics.timings(),
	})
	if err != nil {
		return err
	}
	s.opened.Store(s.replica)
	s.metrics.meter.from = s.replica.Status().LastIndex
	if _, err := s.newPredictor(); err != nil {
		return errors.Join(err, s.replica.Shutdown(context.Background()))
	}
	s.leases = newLeases(lease.New(s.machine.View, clock.Now), s.replica, s.metrics.renewals)
	s.rpc = rpc.New(rpc.Deps{
		Machine: s.machine, Replica: s.replica, Cluster: cluster{s.replica, s.machine}, Dispatch: s.streams, Events: s.hub, Routes: s.routes,
		Renew: s.renew, RenewTurn: s.renewTurn, Explain: sched.Explain, ExplainTurn: explainTurn,
		EstimateStarts: estimateStarts, EstimateRoom: sched.EstimateRoom, ReservedIntervals: sched.ReservedIntervals,
		ExplainSpared: explainSpared,
		LogTime:       s.logTime, Output: s.dial.output, Files: s.dial.files, Streams: s.dial.streams, Usage: s.dial.usage, Images: s.dial.images, Operator: s.dial.operator,
		Keyring: s.dial.keyring, Autopilot: s.pilot.Load,
		JWT: newJWT(), AccessReset: s.accessReset, Audit: s.auditor(),
		Refusal: refusal, Observe: s.metrics.observe, Tracer: s.cfg.Tracer, TLS: s.cfg.TLS.Enabled(), ServerID: s.cfg.ID,
		Version: s.cfg.Version, LevelMax: s.machine.LevelMax(), Logger: s.logger.Named("rpc"),
	})
	s.ui = ui.New(ui.Options{
		API: s.rpc, Counts: s.uiCounts, ServerID: s.cfg.ID, Version: s.cfg.Version, Logger: s.logger.Named("ui"),
	})
	s.metrics.decoders = append(s.metrics.decoders, decoder{"clients", s.rpc.Clients}, decoder{"agents", s.rpc.Agents})
	return nil
}

// serve starts answering, and what runs beside it.
func (s *Server) serve() {
	root := http.NewServeMux()
	root.Handle("/", s.rpc)
	root.Handle(ui.Root, s.onlyIfCertified(s.ui, pki.RoleServer, pki.RoleOperator, pki.RoleClient))
	root.Handle("GET /{$}", http.RedirectHandler(ui.Root, http.StatusFound))
	root.Handle(s.peerHandler())
	root.Handle(s.keyringHandler())
	s.nextRoutes(root)
	s.statusRoutes(root)
	var handler http.Handler = root
	drain := func() {}
	if s.cfg.E2B != nil {
		sandboxes := e2b.New(e2b.Options{API: s.rpc, Templates: s.cfg.E2B})
		handler, drain = sandboxes.Before(root), sandboxes.Drain
	}
	s.http = s.patience().NewServer(s.refuseRebound(handler))
	s.http.ErrorLog = s.logger.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})
	ctx, cancel := context.WithCancel(context.Background())
	s.http.RegisterOnShutdown(cancel)
	s.http.RegisterOnShutdown(drain)
	s.start(func() { s.fatal("serve the port", s.mux.Serve()) })
	s.start(func() {
		if err := s.http.Serve(s.mux.HTTP()); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.fatal("serve HTTP", err)
		}
	})
	s.start(func() { s.hub.Run(ctx) })
	s.start(func() { s.metrics.meter.run(ctx) })
	s.start(func() { s.lead(ctx) })
	s.start(func() { s.quote(ctx) })
	s.start(func() { s.ui.Run(ctx) })
}

// patience ends answers that are not read.
func (s *Server) patience() httpx.Patience {
	complaints := &handshake.Complaints{Logger: s.logger.Named("http")}
	return httpx.Patience{Max: s.cfg.ReadMax, Over: func(r *http.Request) {
		s.metrics.unread.Inc()
		complaints.Unread(r)
	}}
}

// uiCounts are the numbers of the charts of the page.
func (s *Server) uiCounts() (c ui.Counts) {
	s.machine.View(func(st *state.State) {
		n := st.Counts()
		c = ui.Counts{
			Queued: uint64(n.Queued), Running: uint64(n.Running), Trajectories: uint64(n.OpenTrajectories),
			Submitted: uint64(st.Meta().LastAction),
		}
	})
	return c
}

func (s *Server) start(fn func()) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		fn()
	}()
}

func (s *Server) fatal(what string, err error) {
	if err != nil {
		s.cfg.Exit(fmt.Errorf("%s: %w", what, err))
	}
}

// join tells other members where this server is.
func (s *Server) join() error {
	g := s.cfg.Gossip
	if g.Bind == "" {
		return nil
	}
	g.Name, g.Logger = s.cfg.ID, s.logger
	g.Meta = gossip.Member{Role: gossip.RoleServer, Addr: s.cfg.Advertise}
	var err error
	if s.gossip, err = gossip.Start(g); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	s.keyring.Store(s.gossip)
	return nil
}

// Stop hands leadership over, ends all streams and closes everything.
func (s *Server) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	s.stopping.Store(true)
	s.logger.Info("server is stopping", "id", s.cfg.ID)
	if s.gossip != nil {
		s.gossip.Stop()
	}
	err := s.replica.Shutdown(ctx)
	s.rpc.Drain()
	if e := s.http.Shutdown(ctx); e != nil {
		err = errors.Join(err, s.http.Close())
	}
	err = errors.Join(err, s.mux.Close())
	s.wg.Wait()
	s.dial.close()
	return err
}

// onEffects passes on what an entry changed. It runs inside Apply and does not
// block.
func (s *Server) onEffects(effects []fsm.Effect) {
	failpoint.Hit(failpoint.EffectsDue)
	s.observed.Store(&moment{s.machine.Now(), clock.Now()})
	for _, e := range effects {
		switch e.Kind {
		case fsm.EffectNode:
			s.streams.Dirty(e.Node)
		case fsm.EffectPlaced:
			s.streams.Placed(e.Node)
		case fsm.EffectRestored:
			s.streams.AllDirty()
			s.hub.NotifyPolicies()
			s.metrics.meter.notify(true)
		case fsm.EffectEvents:
			s.hub.Notify()
			s.metrics.meter.notify(false)
		case fsm.EffectResized:
			s.metrics.meter.resized.Inc()
		case fsm.EffectPolicies:
			s.hub.NotifyPolicies()
		case fsm.EffectUploadExpired:
			s.logger.Warn("the upload of a backup stood still and was dropped; to restore it, begin again", "upload", e.Name, "parts", e.Index)
		case fsm.EffectCheckpoint:
			replace(s.checkpoints, e)
		}
	}
	s.routes.Notify(rpc.RouteChangesOf(effects))
	replace(s.applied, struct{}{})
}

// replace puts a value into a channel of one, instead of what it holds.
func replace[T any](ch chan T, v T) {
	for {
		select {
		case ch <- v:
			return
		default:
		}
		select {
		case <-ch:
		default:
		}
	}
}

// logTime estimates log time: the newest entry's, and what has passed since. It
// is 0 until this process has applied the entry that gave the cluster its time, or
// restored a snapshot.
func (s *Server) logTime() int64 {
	m := s.observed.Load()
	if m.logNS < entry.WallFloor {
		return 0
	}
	return m.logNS + int64(clock.Now().Sub(m.at))
}

// clusterID is of the state that this server holds, empty without any.
func (s *Server) clusterID() (id string) {
	s.machine.View(func(st *state.State) { id = st.Meta().ClusterID })
	return id
}

// voters is how many servers vote, as this one knows.
func (s *Server) voters() int {
	r := s.opened.Load()
	if r == nil {
		return math.MaxInt32 // not known yet: no quote has a majority
	}
	peers, err := r.Peers(context.Background())
	if err != nil {
		return math.MaxInt32
	}
	n := 0
	for _, p := range peers {
		if p.Voter {
			n++
		}
	}
	return n
}
