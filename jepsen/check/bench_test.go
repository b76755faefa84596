package check

import (
	"testing"

	"rota/jepsen/history"
)

// BenchmarkCheckers holds each checker against a record of some 20,000 calls, as a
// run of a minute leaves behind. What checkers share, such as the replay
// of the log, is counted with each.
func BenchmarkCheckers(b *testing.B) {
	const rounds = 8_000
	r := healthy(b, rounds)
	b.Logf("%d calls, %d executions, %d events, %d entries", len(r.Ops), len(r.Executions), len(r.Watch), len(r.Logs[0].Entries))
	run := func(name string, check func(*history.Record)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				check(r)
			}
		})
	}
	for _, c := range All() {
		run(c.Name, func(r *history.Record) { c.Check(r) })
	}
	run("all", func(r *history.Record) { Run(r, Limits{}) })
}
