package rpc_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/server/ui"
)

// BenchmarkPage is what one look at a part of the web page costs a server that knows 10,000 nodes,
// 100,000 running and 20,000 queued actions. An open page looks every two seconds.
func BenchmarkPage(b *testing.B) {
	const nodes, cores, queued = 10_000, 10, 20_000
	w := newWorldOf(b, &logv1.Settings{QueueActionsMax: 10_000_000, QueueBytesMax: 1 << 40})
	cpus := make([]uint32, cores)
	for c := range cpus {
		cpus[c] = uint32(c)
	}
	for i := range nodes {
		w.apply(&logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
			Name: fmt.Sprint("node-", i), JournalId: "j", MemoryBytes: 512 << 30, NumaNodes: []*logv1.NumaNode{{Cpus: cpus}},
		}}})
	}
	encoded, err := spec("pytest", "-x", "tests/unit").MarshalVT()
	if err != nil {
		b.Fatal(err)
	}
	for range (nodes*cores + queued) / 4000 {
		batch := make([]*logv1.Action, 4000)
		for i := range batch {
			batch[i] = &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, Spec: encoded}
		}
		w.apply(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
			Namespace: "default", Actions: batch,
		}}})
	}
	for busy := true; busy; {
		w.apply(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
		w.machine.View(func(s *state.State) { busy = s.HasWork() })
	}
	w.machine.View(func(s *state.State) {
		if c := s.Counts(); c.Running != nodes*cores || c.Queued != queued {
			b.Fatalf("%d running and %d queued", c.Running, c.Queued)
		}
	})
	page := ui.New(ui.Options{API: w.server, Counts: func() ui.Counts { return ui.Counts{} }, Logger: hclog.NewNullLogger()})
	for _, path := range []string{"", "actions?state=queued", "actions?state=running", "actions?state=ended", "nodes", "nodes/node-77", "gpus", "rollouts"} {
		b.Run("/"+path, func(b *testing.B) {
			for b.Loop() {
				r := httptest.NewRecorder()
				page.ServeHTTP(r, httptest.NewRequest(http.MethodGet, ui.Root+path, nil))
				if r.Code != http.StatusOK {
					b.Fatal(r.Code, r.Body)
				}
			}
		})
	}
}
