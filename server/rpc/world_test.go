package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"rota/api/codec"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/fsm"
	"rota/fsm/state"
	"rota/sched"
	"rota/server/dispatch"
	"rota/server/rpc"
)

var (
	errNoLeader       = errors.New("no leader")
	errUnknownOutcome = errors.New("unknown outcome")
)

// world is one server with the real state machine and the real HTTP, and without
// Raft: what is proposed is applied.
type world struct {
	t       testing.TB
	machine *fsm.Machine
	events  *rpc.Hub
	hub     *dispatch.Hub
	server  *rpc.Server
	routes  *rpc.Routes
	http    *http.Client
	url     string
	addr    string

	mu    sync.Mutex
	index uint64
	start time.Time
	// ahead is how far the wall clock is ahead of log time; 0: entries do not say.
	ahead time.Duration
	// lost, if set, is called after a command is applied and may lose the answer.
	lost func(*logv1.Command) error
	// leader is who this server believes to lead; itself if empty.
	leader [2]string
	// forwards counts calls of the operator service at another server.
	operator rotav1connect.OperatorServiceClient
}

func newWorld(t testing.TB, change ...func(*rpc.Deps)) *world {
	return newWorldOf(t, &logv1.Settings{EventsMax: 2048}, change...)
}

// newWorldOf is a world with other settings.
func newWorldOf(t testing.TB, settings *logv1.Settings, change ...func(*rpc.Deps)) *world {
	w := &world{t: t, start: time.Now(), http: httpx.NewClient(nil)}
	w.machine = fsm.New(fsm.Options{OnEffects: w.effects, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	w.events = rpc.NewHub(w.machine)
	w.routes = rpc.NewRoutes()
	w.hub = dispatch.New(w.machine, hclog.NewNullLogger())
	deps := rpc.Deps{
		Machine: w.machine, Replica: w, Cluster: w, Dispatch: w.hub, Events: w.events, Routes: w.routes,
		Renew: func(context.Context, string, uint64) (bool, error) { return false, nil },
		RenewTurn: func(_ context.Context, turn, _ uint64) (bool, error) {
			live := false
			w.machine.View(func(s *state.State) {
				t := s.Turn(state.TurnID(turn))
				live = t != nil && t.State.Live()
			})
			return live, nil
		},
		ReservedIntervals: sched.ReservedIntervals,
		Explain:           sched.Explain,
		ExplainTurn:       func(st *state.State, t *state.Turn, _ int64) string { return sched.ExplainTurn(st, t) },
		EstimateStarts: func(st *state.State, all []*state.Action, now int64) (out []rpc.StartEstimate) {
			for _, e := range sched.EstimateStarts(st, all, now) {
				out = append(out, rpc.StartEstimate(e))
			}
			return out
		},
		EstimateRoom: sched.EstimateRoom,
		ExplainSpared: func(st *state.State, a *state.Action, given rpc.GivenGPUs, most int) (out []rpc.SparedModel, more bool) {
			spared, more := sched.ExplainSpared(st, a, sched.Given(given), most)
			for _, m := range spared {
				out = append(out, rpc.SparedModel(m))
			}
			return out, more
		},
		LogTime: w.logTime,
		Keyring: func(addr string, _ bool) rotav1connect.KeyringServiceClient {
			return rotav1connect.NewKeyringServiceClient(w.http, httpx.BaseURL(addr, false), codec.ForClient())
		},
		Autopilot: func() *rotav1.GetAutopilotResponse { return nil },
		Output: func(addr string) rotav1connect.OutputServiceClient {
			return rotav1connect.NewOutputServiceClient(w.http, httpx.BaseURL(addr, false), codec.ForClient())
		},
		Operator: func(string) rotav1connect.OperatorServiceClient { return w.operator },
		Refusal:  refusal,
		ServerID: "s1", Version: "test", Logger: hclog.NewNullLogger(),
	}
	for _, f := range change {
		f(&deps)
	}
	w.server = rpc.New(deps)
	ctx, cancel := context.WithCancel(context.Background())
	go w.events.Run(ctx)
	w.addr, _ = serve(t, w.server)
	w.url = httpx.BaseURL(w.addr, false)
	t.Cleanup(func() {
		w.server.Drain()
		cancel()
		w.http.CloseIdleConnections()
	})
	w.apply(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{
		ClusterId: "test", Level: uint32(state.LevelMax), Settings: settings,
	}}})
	return w
}

// serve answers requests on loopback until kill, or the end of the test.
func serve(t testing.TB, h http.Handler) (addr string, kill func() error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httpx.NewServer(h)
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return l.Addr().String(), srv.Close
}

func refusal(err error) *logv1.Refusal {
	switch {
	case errors.Is(err, errNoLeader):
		return rpc.NoLeader()
	case errors.Is(err, errUnknownOutcome):
		return rpc.UnknownOutcome()
	case errors.Is(err, dispatch.ErrBehind):
		return rpc.Behind()
	}
	return nil
}

func (w *world) effects(all []fsm.Effect) {
	w.routes.Notify(rpc.RouteChangesOf(all))
	for _, e := range all {
		switch e.Kind {
		case fsm.EffectNode:
			w.hub.Dirty(e.Node)
		case fsm.EffectPlaced:
			w.hub.Placed(e.Node)
		case fsm.EffectEvents:
			w.events.Notify()
		case fsm.EffectPolicies:
			w.events.NotifyPolicies()
		}
	}
}

const epoch = 1_800_000_000_000_000_000

func (w *world) logTime() int64 { return epoch + int64(time.Since(w.start)) }

// apply commits commands in one entry.
func (w *world) apply(commands ...*logv1.Command) []*logv1.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	entry := &logv1.Entry{TimeNs: w.logTime(), Commands: commands}
	if w.ahead != 0 {
		entry.WallNs = entry.TimeNs + int64(w.ahead)
	}
	data, err := entry.MarshalVT()
	if err != nil {
		w.t.Fatal(err)
	}
	w.index++
	results, ok := w.machine.Apply(&raft.Log{Index: w.index, Data: data}).([]*logv1.Result)
	if !ok {
		w.t.Fatalf("entry %d was not applied", w.index)
	}
	return results
}

// The replica.

func (w *world) Propose(ctx context.Context, commands ...*logv1.Command) ([]*logv1.Result, error) {
	results := w.apply(commands...)
	if w.lost != nil {
		if err := w.lost(commands[0]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (w *world) ReadIndex(context.Context) (uint64, error) { return w.machine.Applied(), nil }

func (w *world) Leader() (id, addr string) {
	if w.leader[0] != "" {
		return w.leader[0], w.leader[1]
	}
	return "s1", w.addr
}

// The cluster.

func (w *world) Status() rpc.Status { return rpc.Status{Term: 3, Commit: w.machine.Applied()} }

func (w *world) Peers(context.Context) ([]*rotav1.Peer, error) {
	return []*rotav1.Peer{{Id: "s1", Address: w.addr, Voter: true, Leader: true}}, nil
}
func (w *world) AddPeer(context.Context, string, string, bool) error  { return nil }
func (w *world) MovePeer(context.Context, string, string) error       { return nil }
func (w *world) RemovePeer(context.Context, string) error             { return nil }
func (w *world) TransferLeadership(context.Context, string) error     { return nil }
func (w *world) TakeSnapshot(context.Context) (uint64, uint64, error) { return 1, 2, nil }

// Clients.

func (w *world) actions() rotav1connect.ActionServiceClient {
	return rotav1connect.NewActionServiceClient(w.http, w.url, codec.ForClient())
}

func (w *world) agents() rotav1connect.AgentServiceClient {
	return rotav1connect.NewAgentServiceClient(w.http, w.url, codec.ForClient())
}

func (w *world) operators() rotav1connect.OperatorServiceClient {
	return rotav1connect.NewOperatorServiceClient(w.http, w.url, codec.ForClient())
}

func spec(argv ...string) *rotav1.ActionSpec {
	return &rotav1.ActionSpec{Command: &rotav1.Command{Argv: argv}}
}

// submit queues one action and returns its ID.
func (w *world) submit(s *rotav1.ActionSpec) uint64 {
	w.t.Helper()
	resp, err := w.actions().SubmitActions(w.t.Context(), &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{s}})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Ids[0]
}

func (w *world) get(id uint64) *rotav1.Action {
	w.t.Helper()
	resp, err := w.actions().GetAction(w.t.Context(), &rotav1.GetActionRequest{Id: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Action
}

// fakeAgent registers a node with some cores, and does with each new assignment
// what the test says.
type fakeAgent struct {
	w           *world
	name        string
	incarnation uint64
	index       uint64
	output      *httptest.Server
}

func registration(name, addr string) *rotav1.RegisterNodeRequest {
	return &rotav1.RegisterNodeRequest{
		Name: name, Address: addr, JournalId: "journal-" + name, MemoryBytes: 8 << 30, Runtime: "test",
		NumaNodes: []*rotav1.NumaNode{{Cpus: []uint32{0, 1}}, {Cpus: []uint32{2, 3}}},
		Labels:    map[string]string{"zone": "a", "class": "small"},
	}
}

func (w *world) agent(name string, output rotav1connect.OutputServiceHandler) *fakeAgent {
	w.t.Helper()
	a := &fakeAgent{w: w, name: name}
	addr := "127.0.0.1:1"
	if output != nil {
		_, h := rotav1connect.NewOutputServiceHandler(output, codec.ForHandler())
		a.output = httptest.NewUnstartedServer(h)
		a.output.Config.Protocols = new(http.Protocols)
		a.output.Config.Protocols.SetUnencryptedHTTP2(true)
		a.output.Start()
		w.t.Cleanup(a.output.Close)
		addr = a.output.Listener.Addr().String()
	}
	resp, err := w.agents().RegisterNode(w.t.Context(), registration(name, addr))
	if err != nil {
		w.t.Fatal(err)
	}
	a.incarnation, a.index = resp.Incarnation, resp.Index
	return a
}

// serve calls run with each new assignment, and reports the result that it
// returns; none for nil.
func (a *fakeAgent) serve(ctx context.Context, run func(*rotav1.Assignment) *rotav1.ActionResult) error {
	stream, err := a.w.agents().WatchNode(ctx, &rotav1.WatchNodeRequest{Name: a.name, Incarnation: a.incarnation, MinIndex: a.index})
	if err != nil {
		return err
	}
	defer stream.Close()
	seen := map[string]bool{}
	for stream.Receive() {
		for _, as := range stream.Msg().Assignments {
			key := fmt.Sprint(as.ActionId, as.Attempt)
			if seen[key] {
				continue
			}
			seen[key] = true
			go func() {
				if r := run(as); r != nil {
					a.report(as.ActionId, as.Attempt, r)
				}
			}()
		}
	}
	return stream.Err()
}

func (a *fakeAgent) report(id uint64, attempt uint32, r *rotav1.ActionResult) {
	_, err := a.w.agents().ReportAttempts(context.Background(), &rotav1.ReportAttemptsRequest{
		Name: a.name, Incarnation: a.incarnation,
		Reports: []*rotav1.AttemptReport{{ActionId: id, Attempt: attempt, Result: r}},
	})
	if err != nil && a.w.t.Context().Err() == nil { // else the test is over
		a.w.t.Errorf("report: %v", err)
	}
}

func exited(code int32) *rotav1.ActionResult {
	return &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_EXITED, ExitCode: code}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func revision(m *fsm.Machine) (r uint64) {
	m.View(func(s *state.State) { r = s.Meta().Revision })
	return r
}
