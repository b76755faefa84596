package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

func (w *world) workers() rotav1connect.WorkerServiceClient {
	return rotav1connect.NewWorkerServiceClient(w.http, w.url, codec.ForClient())
}

func (w *world) trajectories() rotav1connect.TrajectoryServiceClient {
	return rotav1connect.NewTrajectoryServiceClient(w.http, w.url, codec.ForClient())
}

// workerSpec is a worker with a token time of so many milliseconds.
func workerSpec(name string, ms int) *rotav1.WorkerSpec {
	return &rotav1.WorkerSpec{
		Name: name, Policy: "math", Url: "http://127.0.0.1:1", Slots: 2, Profile: &rotav1.WorkerProfile{
			Points: []*rotav1.WorkerProfilePoint{{BatchSize: 1, TokenTime: durationpb.New(time.Duration(ms) * time.Millisecond)}},
		},
	}
}

func (w *world) registerWorker(spec *rotav1.WorkerSpec) *rotav1.Worker {
	w.t.Helper()
	resp, err := w.workers().RegisterWorker(w.t.Context(), &rotav1.RegisterWorkerRequest{Spec: spec})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Worker
}

// generating opens a trajectory of policy math.
func (w *world) generating() *rotav1.Trajectory {
	w.t.Helper()
	resp, err := w.trajectories().OpenTrajectory(w.t.Context(), &rotav1.OpenTrajectoryRequest{Generation: &rotav1.GenerationSpec{Policy: "math", TaskClass: "gsm"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Trajectory
}

// routesOf follows routes.
type routesOf struct {
	t      *testing.T
	stream *connect.ServerStreamForClient[rotav1.WatchRoutesResponse]
	resets int
	routes map[uint64]*rotav1.Route
	// workers are by name; suspended has policies.
	workers   map[string]*rotav1.Worker
	suspended map[string]bool
}

func (w *world) watchRoutes(t *testing.T, policy string) *routesOf {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	stream, err := w.workers().WatchRoutes(ctx, &rotav1.WatchRoutesRequest{Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return &routesOf{t: t, stream: stream}
}

// until takes messages until what they say is as it should be.
func (r *routesOf) until(what string, ok func() bool) {
	r.t.Helper()
	for r.stream.Receive() {
		m := r.stream.Msg()
		if m.Reset_ {
			r.resets++
			r.routes, r.workers, r.suspended = map[uint64]*rotav1.Route{}, map[string]*rotav1.Worker{}, map[string]bool{}
		}
		for _, route := range m.Routes {
			r.routes[route.TrajectoryId] = route
		}
		for _, id := range m.EndedTrajectoryIds {
			delete(r.routes, id)
		}
		for _, w := range m.Workers {
			r.workers[w.Spec.Name] = w
		}
		for _, name := range m.RemovedWorkers {
			delete(r.workers, name)
		}
		for _, p := range m.SuspendedPolicies {
			r.suspended[p] = true
		}
		for _, p := range m.ResumedPolicies {
			delete(r.suspended, p)
		}
		if ok() {
			return
		}
	}
	r.t.Fatalf("%s: the stream ended with %v, at %v", what, r.stream.Err(), r.routes)
}

// TestTheLifeOfAGeneration: a trajectory is given a worker, generates, leaves it when it fails,
// and ends; a watcher hears of each.
func TestTheLifeOfAGeneration(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.workers()
	w.registerWorker(workerSpec("fast", 10))
	w.registerWorker(workerSpec("slow", 50))
	opened := w.generating()
	if g := opened.Generation; g.GetWorker() != "fast" || g.PredictedTokens == 0 || g.Priority == 0 || g.State != rotav1.GenerationState_GENERATION_STATE_IDLE || !strings.Contains(g.Reason, "of 2 workers") {
		t.Fatalf("opened: %v", g)
	}
	watch := w.watchRoutes(t, "")
	at := func(worker string) func() bool {
		return func() bool { return watch.routes[opened.Id].GetWorker() == worker }
	}
	watch.until("at first", func() bool { return at("fast")() && len(watch.workers) == 2 })

	report := &rotav1.ReportGenerationsRequest{RequestId: "r1", Generations: []*rotav1.GenerationReport{{
		TrajectoryId: opened.Id, Worker: "fast", Turns: 1, OutputTokens: 300, ContextTokens: 900, Generating: true,
		GenerateTime: durationpb.New(3 * time.Second), FinishReason: "tool_calls",
	}}}
	for range 2 { // sent again, it counts once
		if _, err := c.ReportGenerations(ctx, report); err != nil {
			t.Fatal(err)
		}
	}
	got, err := w.trajectories().GetTrajectory(ctx, &rotav1.GetTrajectoryRequest{Id: opened.Id})
	if g := got.GetTrajectory().GetGeneration(); err != nil || g.GetTurns() != 1 || g.OutputTokens != 300 || g.ContextTokens != 900 || g.GenerateTime.AsDuration() != 3*time.Second ||
		g.State != rotav1.GenerationState_GENERATION_STATE_GENERATING {
		t.Errorf("after a turn: %v, %v", g, err)
	}
	fast, err := c.GetWorker(ctx, &rotav1.GetWorkerRequest{Name: "fast"})
	if m := fast.GetWorker(); err != nil || m.Trajectories != 1 || m.Generating != 1 || m.OutputTokens != 300 || m.PredictedTokens == 0 {
		t.Errorf("its worker: %v, %v", m, err)
	}

	_, err = c.ReportGenerations(ctx, &rotav1.ReportGenerationsRequest{Workers: []*rotav1.WorkerReport{{Worker: "fast", Failed: true, Message: "connection refused"}}})
	if err != nil {
		t.Fatal(err)
	}
	watch.until("after a failure", func() bool {
		return at("slow")() && watch.workers["fast"].State == rotav1.WorkerState_WORKER_STATE_DOWN && watch.workers["fast"].Message == "connection refused"
	})
	for _, suspended := range []bool{true, false} {
		if suspended {
			_, err = c.SuspendGeneration(ctx, &rotav1.SuspendGenerationRequest{Id: opened.Id})
		} else {
			_, err = c.ResumeGeneration(ctx, &rotav1.ResumeGenerationRequest{Id: opened.Id})
		}
		if err != nil {
			t.Fatal(err)
		}
		watch.until("suspended or resumed", func() bool { return watch.routes[opened.Id].Suspended == suspended })
	}
	if _, err := w.trajectories().CloseTrajectory(ctx, &rotav1.CloseTrajectoryRequest{Id: opened.Id}); err != nil {
		t.Fatal(err)
	}
	watch.until("at the end", func() bool { return watch.routes[opened.Id] == nil })
	if watch.resets != 1 {
		t.Errorf("everything was sent %d times", watch.resets)
	}
}

// TestWorkersThatMissAVersion: they are stale until somebody says that they have it.
func TestWorkersThatMissAVersion(t *testing.T) {
	w := newWorld(t)
	w.registerWorker(workerSpec("a", 10))
	watch := w.watchRoutes(t, "math")
	w.apply(&logv1.Command{Verb: &logv1.Command_SuspendPolicy{SuspendPolicy: &logv1.SuspendPolicy{Policy: "math"}}})
	watch.until("suspended", func() bool { return watch.suspended["math"] })
	w.apply(&logv1.Command{Verb: &logv1.Command_PublishVersion{PublishVersion: &logv1.PublishVersion{Policy: "math", Version: 2}}},
		&logv1.Command{Verb: &logv1.Command_SuspendPolicy{SuspendPolicy: &logv1.SuspendPolicy{Policy: "math", Resume: true}}})
	watch.until("stale", func() bool {
		return !watch.suspended["math"] && watch.workers["a"].State == rotav1.WorkerState_WORKER_STATE_STALE
	})
	if g := w.generating().Generation; g.Worker != "" || !strings.Contains(g.Reason, "1 without the version") {
		t.Errorf("opened while all workers are stale: %v", g)
	}
	version := uint64(2)
	if _, err := w.workers().UpdateWorker(t.Context(), &rotav1.UpdateWorkerRequest{Name: "a", Version: &version}); err != nil {
		t.Fatal(err)
	}
	watch.until("up", func() bool {
		return watch.workers["a"].State == rotav1.WorkerState_WORKER_STATE_UP && watch.routes[1].GetWorker() == "a"
	})
	w.registerWorker(&rotav1.WorkerSpec{Name: "a", Policy: "code", Url: "http://h:1", Profile: workerSpec("", 1).Profile})
	watch.until("of another policy", func() bool { return watch.workers["a"] == nil && watch.routes[1].GetWorker() == "" })
}

// TestASlowWatcherIsSentTheNewest: of what changed often it is sent one message, and it costs a
// bounded memory.
func TestASlowWatcherIsSentTheNewest(t *testing.T) {
	w := newWorld(t)
	w.registerWorker(workerSpec("a", 10))
	opened := w.generating()
	watch := w.watchRoutes(t, "")
	watch.until("at first", func() bool { return len(watch.routes) == 1 })
	for i := range 200 {
		w.apply(&logv1.Command{Verb: &logv1.Command_SuspendTrajectory{SuspendTrajectory: &logv1.SuspendTrajectory{Id: opened.Id, Resume: i%2 == 1}}})
	}
	if _, err := w.workers().RemoveWorker(t.Context(), &rotav1.RemoveWorkerRequest{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	watch.until("at the end", func() bool { return watch.routes[opened.Id].GetWorker() == "" && !watch.routes[opened.Id].Suspended })
}

// TestListWorkers pages by name, of one policy or of all.
func TestListWorkers(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		spec := workerSpec(fmt.Sprintf("w%d", i), 10)
		spec.Policy = []string{"math", "code"}[i%2]
		w.registerWorker(spec)
	}
	for _, test := range []struct {
		policy string
		size   uint32
		want   string
	}{{"", 2, "w0 w1|w2 w3|w4"}, {"math", 0, "w0 w2 w4"}, {"code", 1, "w1|w3"}} {
		var pages []string
		for req := (&rotav1.ListWorkersRequest{Policy: test.policy, PageSize: test.size}); ; {
			resp, err := w.workers().ListWorkers(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, m := range resp.Workers {
				names = append(names, m.Spec.Name)
			}
			if len(names) > 0 {
				pages = append(pages, strings.Join(names, " "))
			}
			if req.PageToken = resp.NextPageToken; req.PageToken == "" {
				break
			}
		}
		if got := strings.Join(pages, "|"); got != test.want {
			t.Errorf("policy %q, %d on a page: %s, want %s", test.policy, test.size, got, test.want)
		}
	}
}

// TestWhatNoWorkerCanBe is refused with a word on what to correct.
func TestWhatNoWorkerCanBe(t *testing.T) {
	w := newWorld(t)
	for what, change := range map[string]func(*rotav1.WorkerSpec){
		"spec.name":                         func(s *rotav1.WorkerSpec) { s.Name = "" },
		"spec.policy":                       func(s *rotav1.WorkerSpec) { s.Policy = "" },
		"spec.url":                          func(s *rotav1.WorkerSpec) { s.Url = "10.0.0.7:8000" },
		"spec.dialect":                      func(s *rotav1.WorkerSpec) { s.Dialect = 9 },
		"spec.slots":                        func(s *rotav1.WorkerSpec) { s.Slots = 1 << 20 },
		"spec.profile.points":               func(s *rotav1.WorkerSpec) { s.Profile = nil },
		"spec.profile.points[0].token_time": func(s *rotav1.WorkerSpec) { s.Profile.Points[0].TokenTime = nil },
		"spec.profile.points[1].batch_size": func(s *rotav1.WorkerSpec) { s.Profile.Points = append(s.Profile.Points, s.Profile.Points[0]) },
	} {
		spec := workerSpec("a", 10)
		change(spec)
		_, err := w.workers().RegisterWorker(t.Context(), &rotav1.RegisterWorkerRequest{Spec: spec})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := w.trajectories().OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{Generation: &rotav1.GenerationSpec{Policy: "never named"}})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a policy that does not exist: %v", err)
	}
	_, err = w.workers().ReportGenerations(t.Context(), &rotav1.ReportGenerationsRequest{})
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an empty report: %v", err)
	}
}
