package rpc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

func (w *world) engines() rotav1connect.EngineServiceClient {
	return rotav1connect.NewEngineServiceClient(w.http, w.url, codec.ForClient())
}

func engineSpec(model string) *rotav1.EngineSpec {
	return &rotav1.EngineSpec{
		Model: model, Driver: rotav1.EngineDriver_ENGINE_DRIVER_VLLM, SleepLevel: 1,
		Command: &rotav1.Command{Argv: []string{"vllm", "serve", model, "--port", "{{port}}"}, Env: map[string]string{"HF_TOKEN": secret, "A": "1", "B": "2"}},
	}
}

// watchGPUs registers a node with GPUs and returns the messages that its agent gets.
func (w *world) watchGPUs(name string) (*fakeAgent, <-chan *rotav1.WatchNodeResponse) {
	w.t.Helper()
	req := registration(name, "127.0.0.1:1")
	req.Gpus = &rotav1.GpuInventory{Class: "H100", Count: 4, MemoryBytes: 80 << 30}
	return w.watching(req)
}

// watching registers a node and returns the messages that its agent gets.
func (w *world) watching(req *rotav1.RegisterNodeRequest) (*fakeAgent, <-chan *rotav1.WatchNodeResponse) {
	w.t.Helper()
	name := req.Name
	resp, err := w.agents().RegisterNode(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	a := &fakeAgent{w: w, name: name, incarnation: resp.Incarnation, index: resp.Index}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := w.agents().WatchNode(ctx, &rotav1.WatchNodeRequest{Name: name, Incarnation: resp.Incarnation, MinIndex: resp.Index, Changes: true})
	if err != nil {
		w.t.Fatal(err)
	}
	messages, done := make(chan *rotav1.WatchNodeResponse), make(chan struct{})
	go func() {
		defer close(done)
		for stream.Receive() {
			select {
			case messages <- stream.Msg():
			case <-ctx.Done():
				return
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); stream.Close(); <-done })
	return a, messages
}

// until takes messages until one is as the test says.
func until(t *testing.T, messages <-chan *rotav1.WatchNodeResponse, what string, ok func(*rotav1.WatchNodeResponse) bool) *rotav1.WatchNodeResponse {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case m := <-messages:
			if ok(m) {
				return m
			}
		case <-late:
			t.Fatalf("never told: %s", what)
		}
	}
}

// TestTheLifeOfAnEngine: it is declared, told to the node where its model is, reported, seen,
// declared anew and removed.
func TestTheLifeOfAnEngine(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.engines()
	a, messages := w.watchGPUs("n1")
	declared, err := c.RegisterEngine(ctx, &rotav1.RegisterEngineRequest{Engine: engineSpec("judge")})
	if err != nil || declared.Unchanged || declared.Engine.Generation == 0 || declared.Engine.Spec.Command.Env["HF_TOKEN"] != "[redacted]" {
		t.Fatalf("declared %v, %v", declared, err)
	}
	for range 5 { // maps have no order, and the declaration is the same
		if again, err := c.RegisterEngine(ctx, &rotav1.RegisterEngineRequest{Engine: engineSpec("judge")}); err != nil || !again.Unchanged {
			t.Fatalf("declared again: %v, %v", again, err)
		}
	}
	s := spec("judge", "--url", "{{engine}}/v1")
	s.Resources = &rotav1.Resources{Gpus: &rotav1.GpuDemand{Gpus: []uint32{2}, Model: "judge", MemoryBytes: 20 << 30}}
	id := w.submit(s)
	m := until(t, messages, "the engine", func(m *rotav1.WatchNodeResponse) bool { return len(m.Engines) == 1 })
	if e := m.Engines[0]; e.Generation != declared.Engine.Generation || e.Chunk.Gpus != 2 || e.MemoryBytes != 20<<30 ||
		!proto.Equal(e.Spec, engineSpec("judge")) || m.Assignments[0].Engine != "judge" {
		t.Errorf("told %v", m)
	}
	report := func(e *rotav1.EngineReport) {
		t.Helper()
		e.Model, e.Generation, e.Chunk = "judge", declared.Engine.Generation, m.Engines[0].Chunk
		if _, err := w.agents().ReportEngines(ctx, &rotav1.ReportEnginesRequest{Name: "n1", Incarnation: a.incarnation, Reports: []*rotav1.EngineReport{e}}); err != nil {
			t.Fatal(err)
		}
	}
	report(&rotav1.EngineReport{State: rotav1.EngineState_ENGINE_STATE_READY, Starts: 1, SetUp: durationpb.New(8 * time.Second), Message: strings.Repeat("é", 400)})
	got, err := c.GetEngine(ctx, &rotav1.GetEngineRequest{Model: "judge"})
	if err != nil || got.Engine.SetUp.AsDuration() != 8*time.Second || got.Engine.SetUps != 1 || len(got.Engine.Instances) != 1 {
		t.Fatalf("ready: %v, %v", got, err)
	}
	if i := got.Engine.Instances[0]; i.Node != "n1" || i.Chunk.Gpus != 2 || i.State != rotav1.EngineState_ENGINE_STATE_READY || i.ChangeTime == nil || len(i.Message) != 512 {
		t.Errorf("instance %v", i)
	}
	a.report(id, 1, exited(0))
	other := engineSpec("judge")
	other.SleepLevel = 2
	changed, err := c.RegisterEngine(ctx, &rotav1.RegisterEngineRequest{Engine: other})
	if err != nil || changed.Unchanged || changed.Engine.Generation <= declared.Engine.Generation || changed.Engine.SetUps != 1 {
		t.Errorf("changed: %v, %v", changed, err)
	}
	until(t, messages, "the new declaration", func(m *rotav1.WatchNodeResponse) bool {
		return len(m.Engines) == 1 && m.Engines[0].Generation == changed.Engine.Generation && m.Engines[0].Spec.SleepLevel == 2
	})
	report(&rotav1.EngineReport{State: rotav1.EngineState_ENGINE_STATE_FAILED, Failures: 3, Message: "exited with 1"})
	until(t, messages, "that it is not wanted where it failed", func(m *rotav1.WatchNodeResponse) bool { return len(m.Engines) == 0 })
	report(&rotav1.EngineReport{Gone: true})
	list, err := c.ListEngines(ctx, &rotav1.ListEnginesRequest{})
	if err != nil || len(list.Engines) != 1 || len(list.Engines[0].Instances) != 0 {
		t.Errorf("listed %v, %v", list, err)
	}
	if _, err := c.RemoveEngine(ctx, &rotav1.RemoveEngineRequest{Model: "judge"}); err != nil {
		t.Error(err)
	}
	for _, err := range []error{second(c.RemoveEngine(ctx, &rotav1.RemoveEngineRequest{Model: "judge"})), second(c.GetEngine(ctx, &rotav1.GetEngineRequest{Model: "judge"}))} {
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("an engine that is gone: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
