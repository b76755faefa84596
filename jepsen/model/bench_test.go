package model

import (
	"testing"

	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// BenchmarkStep measures one entry of a busy cluster: the machine alone, and the
// machine with the model beside it. The difference is what a step costs.
func BenchmarkStep(b *testing.B) {
	for _, with := range []struct {
		name  string
		model bool
	}{{"machine", false}, {"machine and model", true}} {
		b.Run(with.name, func(b *testing.B) {
			w := newWorld(b, 1, &logv1.Settings{RetentionNs: 60 * second, QueueActionsMax: 100, RequestsMax: 1000, TrajectoriesMax: 40})
			const entries = 4000
			var log []*logv1.Entry
			for range entries {
				w.now += w.rand.Int64N(second)
				e := &logv1.Entry{TimeNs: w.now, Commands: []*logv1.Command{w.command(), w.command()}}
				data, _ := e.MarshalVT()
				w.index++
				w.machine.Apply(&raft.Log{Index: w.index, Data: data})
				w.machine.View(func(s *state.State) { w.s = s })
				log = append(log, e)
			}
			b.ResetTimer()
			for n := 0; n < b.N; n += entries {
				replay(b, log[:min(entries, b.N-n)], with.model)
			}
		})
	}
}

func replay(b *testing.B, log []*logv1.Entry, with bool) {
	w := &world{machine: fsm.New(fsm.Options{}), model: New(), now: second}
	bootstrap := &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "test", Settings: &logv1.Settings{
		RetentionNs: 60 * second, QueueActionsMax: 100, RequestsMax: 1000, TrajectoriesMax: 40,
	}}}}
	w.must(b, bootstrap)
	for _, e := range log {
		w.now = e.TimeNs
		if entry, results, err := w.real(e.Commands...); err != nil {
			b.Fatal(err)
		} else if with {
			if err := w.model.Step(w.index, 0, entry, results, w.s); err != nil {
				b.Fatal(err)
			}
		}
	}
}
