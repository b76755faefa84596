package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"rota/api/codec"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/intake"
	"rota/api/rights"
	"rota/api/share"
	"rota/fsm/state"
	"rota/internal/telemetry/tracing"
)

// requestBytesMax is the largest request that is read.
const requestBytesMax = 4 << 20

// What requests that are being decoded may take in memory, all together. Those of
// agents have a budget of their own, which clients cannot spend.
const (
	clientsDecodingMax = 192 << 20
	filesDecodingMax   = 64 << 20
	agentsDecodingMax  = 96 << 20
)

// compressBytesMin is the smallest answer that is compressed for who asks for
// it: below, compression costs more than the bytes.
const compressBytesMin = 16 << 10

// Machine is the replicated state of this server.
type Machine interface {
	// View calls with the state, which must be neither kept nor changed.
	View(func(*state.State))
	// Level returns the active feature level, as far as this server knows.
	Level() state.Level
	// Fork returns a copy for long reads.
	Fork() *state.State
	// Foresee returns the state that commands would leave of a copy, and their results. It
	// changes nothing.
	Foresee(s *state.State, commands ...*logv1.Command) (*state.State, []*logv1.Result, error)
	// WaitApplied returns when the entry at an index has been applied.
	WaitApplied(ctx context.Context, index uint64) error
	// HashSince returns the hash of the state after the first entry from an index
	// on, of the newest if from is 0 or long ago; it waits for that entry.
	HashSince(ctx context.Context, from uint64) (index, hash uint64, err error)
}

// Replica is this server's place in the cluster. Any server can propose and
// read: those that do not lead ask the leader.
type Replica interface {
	Propose(ctx context.Context, commands ...*logv1.Command) ([]*logv1.Result, error)
	// ReadIndex returns an index such that a state at least that new has
	// everything that was acknowledged before the call.
	ReadIndex(ctx context.Context) (uint64, error)
	// Leader returns the leader as far as it is known.
	Leader() (id, addr string)
}

// Cluster is what an operator can ask of the Raft group. The changes work on
// the leader only; handlers pass them on to it.
type Cluster interface {
	Status() Status
	Peers(ctx context.Context) ([]*rotav1.Peer, error)
	AddPeer(ctx context.Context, id, addr string, voter bool) error
	MovePeer(ctx context.Context, id, addr string) error
	RemovePeer(ctx context.Context, id string) error
	TransferLeadership(ctx context.Context, id string) error
	TakeSnapshot(ctx context.Context) (index, sizeBytes uint64, err error)
}

// Status is Raft's view of this server.
type Status struct {
	Term, Commit uint64
	Quarantined  bool
}

// Dispatcher sends nodes their desired state.
type Dispatcher interface {
	Watch(ctx context.Context, req *rotav1.WatchNodeRequest, send func(*rotav1.WatchNodeResponse) error) error
}

// Deps is what handlers work with. All fields are needed except where it says
// so.
type Deps struct {
	Machine  Machine
	Replica  Replica
	Cluster  Cluster
	Dispatch Dispatcher
	Events   *Hub
	// Routes tells gateways what changed.
	Routes *Routes
	// Renew renews a node's lease at the leader.
	Renew func(ctx context.Context, name string, incarnation uint64) (fenced bool, err error)
	// RenewTurn renews the lease of a turn at the leader. Not renewed: the turn has
	// ended, another token counts, or its holder does not stop though it was asked to.
	RenewTurn func(ctx context.Context, turn, token uint64) (renewed bool, err error)
	// ReservedIntervals visits what is reserved of a group between two slots, in order.
	ReservedIntervals func(st *state.State, group state.GroupID, from, to int64, fn func(job state.JobID, start, end, nodes int64))
	// Explain says what a queued action waits for at a log time, or why a running one has as
	// many cores as it has.
	Explain func(st *state.State, a *state.Action, now int64) string
	// ExplainTurn says what a turn waits for that is not held yet, at a log time.
	ExplainTurn func(st *state.State, t *state.Turn, now int64) string
	// EstimateStarts says when actions start, from a log time on; EstimateRoom how long it
	// takes until an action has left its queue, in nanoseconds, if that is known.
	EstimateStarts func(st *state.State, actions []*state.Action, now int64) []StartEstimate
	EstimateRoom   func(st *state.State, now int64) (ns int64, known bool)
	// ExplainSpared says why models stay on GPUs that an action might have been given, in the
	// state before it came. Those that are cheapest to evict come first, at most so many; more
	// says that there are others.
	ExplainSpared func(st *state.State, a *state.Action, given GivenGPUs, most int) (spared []SparedModel, more bool)
	// LogTime estimates log time now, in nanoseconds: that of the newest applied
	// entry and what has passed since on the server's own clock; 0 before the first.
	LogTime func() int64
	// Output, Files, Streams, Usage, Images and Operator return clients of an agent and of a server.
	Output   func(addr string) rotav1connect.OutputServiceClient
	Files    func(addr string) rotav1connect.FileServiceClient
	Streams  func(addr string) rotav1connect.StreamServiceClient
	Usage    func(addr string) rotav1connect.UsageServiceClient
	Images   func(addr string) rotav1connect.ImageServiceClient
	Operator func(addr string) rotav1connect.OperatorServiceClient
	// Keyring returns a client for the gossip keys of a server or of an agent.
	Keyring func(addr string, agent bool) rotav1connect.KeyringServiceClient
	// Autopilot describes the servers as the leader sees them; on the leader only.
	Autopilot func() *rotav1.GetAutopilotResponse
	// Refusal turns errors of Replica, Cluster, Dispatch, Renew and RenewTurn into
	// what clients are told; nil for an error that it does not know.
	Refusal func(error) *logv1.Refusal
	// Tracer makes the spans of submissions; nil: none.
	Tracer *tracing.Tracer
	// Observe is called after each call, with code 0 for success. Optional.
	Observe func(procedure string, code connect.Code, took time.Duration)
	// JWT checks a JSON Web Token against methods and returns what it says; nil: none is accepted.
	JWT func(ctx context.Context, token string, methods []*rotav1.AuthMethod) (*JWT, error)
	// Audit is called after each call that changes something, and after each refusal for the
	// caller's rights, before the caller is answered. Optional.
	Audit func(AuditRecord)
	// AccessReset returns the number that an operator has written into the folder of this server
	// to have another first token made, and Forget removes it. Optional.
	AccessReset func() (number uint64, forget func(), err error)
	// TLS: connections are TLS, so peers have an identity that is checked.
	TLS      bool
	ServerID string
	Version  string
	// LevelMax is the newest feature level that this build supports.
	LevelMax state.Level
	Logger   hclog.Logger
}

// Server is the HTTP handler of all services.
type Server struct {
	Deps
	mux    http.Handler
	health *grpchealth.StaticChecker
	// Clients and Agents are what their requests share while they are decoded.
	Clients, Agents *intake.Budget
	files           *intake.Budget // of clients who write files or input
	census          census
	access          *accessCache
	calls           *share.Slots[string] // by caller
	contents        *share.Slots[string] // by namespace
	prefetches      atomic.Int64         // of images, that are under way
	strangers       strangers
	repeats         seen       // in the audit log
	keyring         sync.Mutex // is held while gossip keys change
	newestKey       gossipKey  // that this server made, guarded by keyring
	estimates       estimateBudget
	explains        estimateBudget
	room            roomDelay
	// routesTick is how often a watch of routes is shown to be alive.
	routesTick time.Duration
	// members is held while the servers are asked for the levels that they know, shared while one is
	// being added.
	members sync.RWMutex
	// draining is done when streams are to end.
	draining context.Context
	drain    context.CancelFunc
}

// New returns the handler of all services but those between servers, with
// health and reflection.
func New(deps Deps) *Server {
	s := &Server{Deps: deps, Clients: intake.NewBudget(clientsDecodingMax), Agents: intake.NewBudget(agentsDecodingMax), files: intake.NewBudget(filesDecodingMax), access: newAccessCache(), calls: share.New[string](callsMax), contents: share.New[string](contentsMax), routesTick: progressInterval}
	s.draining, s.drain = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mount := func(path string, h http.Handler) { mux.Handle(path, withContents(intake.Handler(h, s.limits(path)))) }
	options := []connect.HandlerOption{
		codec.ForHandler(),
		intake.ForHandler(),
		connect.WithReadMaxBytes(requestBytesMax),
		connect.WithCompressMinBytes(compressBytesMin),
		connect.WithInterceptors(interceptor{s}),
		connect.WithRecover(s.recovered),
	}
	mount(rotav1connect.NewActionServiceHandler(s, options...))
	mount(rotav1connect.NewTrajectoryServiceHandler(s, options...))
	mount(rotav1connect.NewFileServiceHandler(s, options...))
	mount(rotav1connect.NewStreamServiceHandler(s, options...))
	mount(rotav1connect.NewUsageServiceHandler(s, options...))
	mount(rotav1connect.NewImageServiceHandler(s, options...))
	mount(rotav1connect.NewSnapshotServiceHandler(s, options...))
	mount(rotav1connect.NewNodeServiceHandler(s, options...))
	mount(rotav1connect.NewClassServiceHandler(s, options...))
	mount(rotav1connect.NewQuotaServiceHandler(s, options...))
	mount(rotav1connect.NewJobServiceHandler(s, options...))
	mount(rotav1connect.NewTurnServiceHandler(s, options...))
	mount(rotav1connect.NewLedgerServiceHandler(s, options...))
	mount(rotav1connect.NewEngineServiceHandler(s, options...))
	mount(rotav1connect.NewResidencyServiceHandler(s, options...))
	mount(rotav1connect.NewMigrationServiceHandler(s, options...))
	mount(rotav1connect.NewWorkerServiceHandler(s, options...))
	mount(rotav1connect.NewRewardServiceHandler(s, options...))
	mount(rotav1connect.NewRolloutServiceHandler(s, options...))
	mount(rotav1connect.NewOperatorServiceHandler(s, options...))
	mount(rotav1connect.NewAccessServiceHandler(s, options...))
	mount(rotav1connect.NewAgentServiceHandler(s, options...))
	services := []string{
		rotav1connect.ActionServiceName, rotav1connect.TrajectoryServiceName, rotav1connect.FileServiceName, rotav1connect.StreamServiceName, rotav1connect.UsageServiceName, rotav1connect.ImageServiceName, rotav1connect.SnapshotServiceName, rotav1connect.NodeServiceName,
		rotav1connect.ClassServiceName, rotav1connect.QuotaServiceName,
		rotav1connect.JobServiceName, rotav1connect.TurnServiceName, rotav1connect.LedgerServiceName,
		rotav1connect.EngineServiceName, rotav1connect.ResidencyServiceName, rotav1connect.MigrationServiceName,
		rotav1connect.WorkerServiceName, rotav1connect.RewardServiceName,
		rotav1connect.RolloutServiceName,
		rotav1connect.OperatorServiceName, rotav1connect.AccessServiceName, rotav1connect.AgentServiceName,
	}
	s.health = grpchealth.NewStaticChecker(services...)
	standard := connect.WithHandlerOptions(
		intake.ForHandler(), connect.WithReadMaxBytes(requestBytesMax), connect.WithInterceptors(interceptor{s}))
	mount(grpchealth.NewHandler(s.health, standard))
	reflector := grpcreflect.NewStaticReflector(services...)
	mount(grpcreflect.NewHandlerV1(reflector, standard))
	mount(grpcreflect.NewHandlerV1Alpha(reflector, standard))
	s.mux = s.checkCaller(s.nameLeader(mux))
	return s
}

// limits are those of the requests below a path.
func (s *Server) limits(path string) intake.Limits {
	budget := s.Clients
	switch path {
	case "/" + rotav1connect.AgentServiceName + "/":
		budget = s.Agents
	case "/" + rotav1connect.FileServiceName + "/", "/" + rotav1connect.StreamServiceName + "/":
		budget = s.files
	}
	return intake.Limits{MessageBytes: requestBytesMax, Budget: budget, Sender: callerName}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Drain ends all streams, so that the HTTP server can be shut down. Their
// clients go on at another server, and health tells new ones to do the same.
func (s *Server) Drain() {
	s.health.SetStatus("", grpchealth.StatusNotServing)
	s.drain()
}

// nameLeader tells callers of a server that does not lead who does, so that
// they can save the detour.
func (s *Server) nameLeader(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, addr := s.Replica.Leader(); id != s.ServerID && addr != "" {
			w.Header().Set("Rota-Leader", addr)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) recovered(_ context.Context, spec connect.Spec, _ http.Header, cause any) error {
	s.Logger.Error("panic in a handler", "procedure", spec.Procedure, "panic", cause, "stack", string(debug.Stack()))
	return fmt.Errorf("panic: %v", cause)
}

// interceptor ends streams at a drain, measures calls and makes their errors
// what clients are told.
type interceptor struct{ s *Server }

// WrapUnary is around unary calls.
func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		begin, procedure := time.Now(), req.Spec().Procedure
		noted := &call{procedure: procedure}
		ctx = context.WithValue(ctx, callKey{}, noted)
		resp, err := i.guarded(ctx, noted, next, req)
		return resp, i.end(ctx, procedure, begin, err)
	}
}

// guarded makes a call if its caller may, and leaves out of the answer what the caller may not
// read.
func (i interceptor) guarded(ctx context.Context, noted *call, next connect.UnaryFunc, req connect.AnyRequest) (connect.AnyResponse, error) {
	procedure := req.Spec().Procedure
	msg, ok := req.Any().(proto.Message)
	if ok {
		noted.request = msg
		noted.about(msg)
		if err := i.s.authorize(ctx, procedure, msg); err != nil {
			return nil, err
		}
	}
	resp, err := next(ctx, req)
	if err != nil {
		return nil, err
	}
	answer, ok := resp.Any().(proto.Message)
	c := callerOf(ctx)
	if !ok || c == nil {
		return resp, nil
	}
	need, may := requiredRights[procedure], c.may
	if need.verb == rights.Read {
		// This server may have been behind when it looked, and has caught up since.
		if may, err = i.s.stillAllowed(ctx); err != nil {
			return nil, err
		}
	}
	need.leaveOut(answer, may)
	return resp, nil
}

// WrapStreamingHandler is around streams.
func (i interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		begin := time.Now()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(i.s.draining, func() { cancel(errDraining) })()
		ctx = context.WithValue(ctx, callKey{}, &call{})
		err := next(ctx, &guardedStream{StreamingHandlerConn: conn, ctx: ctx, s: i.s, need: requiredRights[conn.Spec().Procedure], end: cancel})
		var why *failure // that this server ended the stream
		if err != nil && errors.As(context.Cause(ctx), &why) {
			err = why
		}
		return i.end(ctx, conn.Spec().Procedure, begin, err)
	}
}

// WrapStreamingClient is for clients.
func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (i interceptor) end(ctx context.Context, procedure string, begin time.Time, err error) error {
	i.s.audit(ctx, procedure, err)
	var code connect.Code
	if err != nil {
		e := i.s.connectError(procedure, err)
		code, err = e.Code(), e
	}
	if i.s.Observe != nil {
		i.s.Observe(procedure, code, time.Since(begin))
	}
	return err
}
